"""The command behind scripts/chaos."""

import argparse
import json
import signal
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType
from typing import Any

from breaker import schedule
from chaos import LAST_ROUNDS, Drill
from fleet import Fleet

ABOUT = """\
Break a real Flower deployment while a run goes on, and check afterwards that all books agree.

A SuperLink with TLS and three authenticated SuperNodes play a small gated app. Meanwhile nodes,
the server app and the SuperLink get SIGKILL and SIGSTOP, one node's disk is full for a while and
another's network is cut. What died is started again; a run that ended is started
again with the same folder. At the end every client's account at the server must be what its own
file says, every sample must have been taken and paid once, and no buffer may hold too many.
"""
EXAMPLES = """\
examples:
  scripts/chaos                                     20 rounds, 12 faults, about 6 minutes
  scripts/chaos --seed 2 --rounds 40 --faults 36    a long one, about 20 minutes
  scripts/chaos --json chaos.json --keep chaos      also keep all files and logs in a folder

The seed decides what is broken, where and after which round; how far the processes are at that
moment is up to the machine. The disk needs the right to mount (root); without it that kind of
fault is left out. Exit code 1: the books differ, or the run did not end in time.
"""


def main() -> int:
    parser = argparse.ArgumentParser(
        "scripts/chaos",
        description=ABOUT,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", type=int, default=1, help="decides the faults (1)")
    parser.add_argument("--rounds", type=int, default=20, help="rounds of the run (20)")
    parser.add_argument("--faults", type=int, default=12, help="how many things to break (12)")
    parser.add_argument("--minutes", type=float, default=30, help="give up after this long (30)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result there, too")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="new folder for all files")
    chosen = parser.parse_args()
    if chosen.rounds < 6:
        parser.error(f"--rounds must be 6 or more, got {chosen.rounds}")
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, _interrupted)
    if chosen.keep is not None:
        chosen.keep.mkdir(parents=True)
        return _play(chosen, chosen.keep.resolve())
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        return _play(chosen, Path(folder))


def _interrupted(number: int, _: FrameType | None) -> None:
    """Leave by way of all clean-ups; further signals wait until they are done."""
    for one in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(one, signal.SIG_IGN)
    sys.exit(128 + number)


def _play(chosen: argparse.Namespace, folder: Path) -> int:
    started = time.monotonic()
    with Fleet(folder) as fleet:
        disk = fleet.disk is not None
        if not disk:
            print("no right to mount a small disk here: no disk will be full")
        faults = schedule(chosen.seed, chosen.rounds - LAST_ROUNDS - 1, chosen.faults, disk=disk)
        print(f"seed {chosen.seed}: {chosen.rounds} rounds, {len(faults)} faults", flush=True)
        drill = Drill(fleet, folder / "chaos", faults, chosen.rounds, tell=_tell)
        unfinished = _ended(drill, chosen.minutes)
        fleet.stop()  # so that nobody writes any more; the disk is still there
        wrong = unfinished or drill.reconciled()
        result = {
            "seed": chosen.seed,
            "wall_seconds": round(time.monotonic() - started),
            **drill.report(),
            "discrepancies": wrong,
        }
    _show(result)
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(result, indent=2) + "\n")
    return 1 if wrong else 0


def _ended(drill: Drill, minutes: float) -> list[str]:
    try:
        drill.play(60 * minutes)
    except TimeoutError as late:
        return [str(late)]
    return []


def _tell(text: str) -> None:
    print(text, flush=True)


def _show(result: dict[str, Any]) -> None:
    print()
    print(f"{'fault':<20}{'times':>6}{'rounds missed':>15}{'recovery s: median':>20}{'worst':>8}")
    for kind, one in result["kinds"].items():
        if one["faults"]:
            median, worst = (
                "-" if one[name] is None else f"{one[name]:.1f}" for name in ("median", "worst")
            )
            print(f"{kind:<20}{one['faults']:>6}{one['rounds_missed']:>15}{median:>20}{worst:>8}")
    print(
        f"\n{result['faults']} faults ({result['signals']} by signal), "
        f"{result['not_begun']} not begun; {result['rounds']} rounds, of "
        f"{result['undisturbed_round_seconds']} s where undisturbed; the run was started "
        f"{result['run_starts']} times; {result['wall_seconds']} s in all"
    )
    print(f"discrepancies: {len(result['discrepancies'])}")
    for one in result["discrepancies"]:
        print(f"  {one}")


if __name__ == "__main__":
    sys.exit(main())
