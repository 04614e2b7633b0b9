"""Run the showcase: a broker, thirty phones, an annotator and three fleets, on this machine.

python examples/showcase/run.py --out showcase-run
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from showcase.annotator import Annotator
from showcase.broker import Broker, MissingBrokerError, find_mosquitto
from showcase.data import MissingDataError, load
from showcase.phones import Phones
from showcase.readings import subscribe
from showcase.results import FLEETS, Fleet, draw, outcome, table, write_report

APP = Path(__file__).parent
PEOPLE = 30
ROUNDS = 20
CANDIDATES = 6
"""Windows that a client looks at in a round; ``candidates`` of the app."""
PRICE = 0.25
"""Of a label."""
LABELS = 2
"""That the budget of a round buys for each person."""
LOOK_SECONDS = 0.2


class FleetFailedError(Exception):
    """A fleet ended before its last round."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run everything; 0 if books agree and limits were kept."""
    given = _parser().parse_args(arguments)
    console = Console()
    try:
        wrong = _run(given, console)
    except (FleetFailedError, MissingBrokerError, MissingDataError) as missing:
        console.print(f"showcase: {missing}", style="red", highlight=False, soft_wrap=True)
        return 1
    for one in wrong:
        console.print(f"WRONG: {one}", style="red", highlight=False)
    return bool(wrong)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    out = Path("showcase-run")
    parser.add_argument("--out", type=Path, default=out, help="folder for everything it writes")
    parser.add_argument("--data", default="", help="folder with HAPT; $TIDEGATE_DATA by default")
    parser.add_argument("--seed", type=int, default=1, help="of streams, choices and delays")
    for name, most, told in (
        ("--people", PEOPLE, "phones, and clients of each fleet"),
        ("--rounds", ROUNDS, "a phone has no windows for more"),
    ):
        allowed = range(1, most + 1)
        parser.add_argument(
            name, type=int, default=most, choices=allowed, metavar=f"1..{most}", help=told
        )
    return parser


def _run(given: argparse.Namespace, console: Console) -> list[str]:
    """Play all fleets at once, and tell what came of it; what is wrong, if anything is."""
    begun = time.monotonic()
    find_mosquitto()
    windows = load(given.data)
    out = given.out.absolute()
    if out.exists() and any(out.iterdir()):
        raise MissingDataError(f"{given.out} is not empty; give another folder with --out")
    people = range(1, given.people + 1)
    with ExitStack() as open_parts:
        broker = open_parts.enter_context(Broker(out / "broker"))
        annotator = open_parts.enter_context(Annotator(windows, given.seed))
        console.print(
            f"Mosquitto listens on port {broker.port}, the annotator on {annotator.port}; "
            f"{len(people)} phones, {len(FLEETS)} fleets of {len(people)} clients",
            highlight=False,
        )
        subscribe(broker.port, out / "spools", [fleet.name for fleet in FLEETS], people)
        count = CANDIDATES * given.rounds
        phones = open_parts.enter_context(Phones(broker.port, windows, people, count, given.seed))
        places = broker.port, annotator.port
        with _started(given, out, places) as processes:
            _follow(processes, given.rounds, out, phones, annotator, console)
    annotator.write_bill(out / "bill.csv")
    with console.status("auditing devices, writing pages"):
        outcomes = [outcome(fleet, out, annotator, people) for fleet in FLEETS]
        write_report(out, "half-margin", "random")
        note = f"{len(people)} people, {given.rounds} rounds, seed {given.seed}, one run each"
        draw(outcomes, out / "accuracy.png", note)
    console.print(table(outcomes), highlight=False)
    received = sum(one.received for one in outcomes)
    console.print(
        f"\n{received:,} windows came over MQTT, none lost; no window trained in more than "
        f"{max(one.most_uses for one in outcomes)} rounds; {time.monotonic() - begun:.0f} s in all."
        if not (wrong := [text for one in outcomes for text in one.wrong()])
        else "",
        highlight=False,
    )
    for name, text in WRITTEN.items():
        console.print(f"  {given.out / name}: {text}", highlight=False, soft_wrap=True)
    return wrong


WRITTEN = {
    "accuracy.png": "accuracy by labels paid",
    "report.html": "the fleet that chooses half by margin, beside the one that chooses at random",
    "audit-half-margin.html": "what its devices kept; the other fleets have pages of their own",
    "bill.csv": "the annotator's bill, one row a label",
}


@contextmanager
def _started(
    given: argparse.Namespace, out: Path, places: tuple[int, int]
) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Every fleet in a process of its own, by its name; none outlives the showcase."""
    processes = dict[str, subprocess.Popen[bytes]]()
    try:
        for fleet in FLEETS:
            with (out / f"{fleet.name}.log").open("wb") as log:
                processes[fleet.name] = subprocess.Popen(  # noqa: S603 - our own command
                    _command(fleet, given, out, places),
                    stdout=log,
                    stderr=log,
                    env={"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **os.environ},
                )
        yield processes
    finally:
        for process in processes.values():
            process.terminate()
            process.wait()


def _command(
    fleet: Fleet, given: argparse.Namespace, out: Path, places: tuple[int, int]
) -> list[str]:
    """``tidegate run`` of this app, with what is special about a fleet."""
    broker, annotator = places
    settings = {
        "num-server-rounds": given.rounds,
        "ranking": fleet.ranking,
        "random-share": fleet.random_share,
        "price": PRICE,
        "budget": PRICE * LABELS * given.people,
        "candidates": CANDIDATES,
        "seed": given.seed,
        "data": Path(given.data).absolute() if given.data else "",
        "broker-port": broker,
        "annotator-port": annotator,
        "spools": out / "spools",
        "run": fleet.name,
        "folder": out / fleet.name,
    }
    changes = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    clients = "--clients", str(given.people)
    return [sys.executable, "-m", "tidegate", "run", str(APP), *clients, *changes]


def _follow(
    processes: dict[str, subprocess.Popen[bytes]],
    rounds: int,
    out: Path,
    phones: Phones,
    annotator: Annotator,
    console: Console,
) -> None:
    """Bars for phones, labels and rounds, until all fleets have ended."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        sent = progress.add_task("windows sent by phones", total=phones.total)
        labels = progress.add_task(
            "labels asked for", total=rounds * LABELS * len(phones.people) * len(FLEETS)
        )
        bars = {
            fleet.name: progress.add_task(f"rounds, labels {fleet.told}", total=rounds)
            for fleet in FLEETS
        }
        while True:
            ended = [process.poll() is not None for process in processes.values()]
            progress.update(sent, completed=phones.acknowledged)
            progress.update(labels, completed=sum(len(annotator.bill(one)) for one in processes))
            for name, bar in bars.items():
                progress.update(bar, completed=_rounds(out / name))
            for name, process in processes.items():
                if process.poll():
                    log = out / f"{name}.log"
                    last = log.read_text().strip().splitlines()[-1:]
                    raise FleetFailedError(f"the fleet {name} failed: {' '.join(last)}; see {log}")
            if all(ended):
                return
            time.sleep(LOOK_SECONDS)


def _rounds(folder: Path) -> int:
    """Rounds that a run has settled."""
    rows = folder / "rounds.jsonl"
    return rows.read_bytes().count(b"\n") if rows.exists() else 0


if __name__ == "__main__":
    sys.exit(main())
