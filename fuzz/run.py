"""Run targets under atheris, one after another, and say what came of it.

Examples:
  scripts/fuzz                               every target for a minute
  scripts/fuzz --seconds 600 records buffer  two of them for ten minutes each
  scripts/fuzz --replay FILE records         one input again, with its traceback

atheris comes with `pip install -e '.[fuzz]'`; replaying needs none. What was found worth keeping
stays in the folder and is the start of the next run; delete the folder to begin from the seeds.
"""

import argparse
import hashlib
import importlib.util
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import fuzz

ROOT = Path(__file__).parent.parent
MEMORY_MB = 2048
"""A target that needs more has been talked into it by its input."""
SECONDS_PER_INPUT = 10
LONGEST_INPUT = 20_000
PROGRESS = re.compile(r"#(\d+)\s.*?cov: (\d+) ft: (\d+)")
INPUTS = re.compile(r"stat::number_of_executed_units:\s*(\d+)")


@dataclass(frozen=True)
class Outcome:
    """What fuzzing one target gave."""

    target: str
    inputs: int
    edges: int
    features: int
    crashes: tuple[Path, ...]
    failed: bool
    """The process ended badly, with or without an input that it could name."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz, or replay one input; 1 if anything crashed."""
    told = _parser().parse_args(arguments)
    unknown = [name for name in told.targets if name not in fuzz.NAMES]
    if unknown:
        print(f"scripts/fuzz: no target {unknown[0]!r}; choose from {', '.join(fuzz.NAMES)}")
        return 2
    if told.replay is not None:
        for name in told.targets:
            fuzz.load(name).run(told.replay.read_bytes())
        print(f"{told.replay}: nothing happened")
        return 0
    if importlib.util.find_spec("atheris") is None:
        print("scripts/fuzz needs atheris: pip install -e '.[fuzz]'")
        return 2
    outcomes = [_fuzz(name, told.seconds, told.folder) for name in told.targets or fuzz.NAMES]
    _show(outcomes)
    return int(any(one.failed for one in outcomes))


def _parser() -> argparse.ArgumentParser:
    about = "\n".join(f"  {name:12}{about}" for name, about in fuzz.NAMES.items())
    parser = argparse.ArgumentParser(
        prog="scripts/fuzz",
        description=f"{__doc__}\nTargets, and what each may raise:\n{about}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("targets", nargs="*", metavar="target", help="all of them by default")
    parser.add_argument("--seconds", type=int, default=60, help="for each target; default 60")
    parser.add_argument(
        "--folder", type=Path, default=ROOT / ".fuzz", help="of inputs kept; default .fuzz"
    )
    parser.add_argument("--replay", type=Path, metavar="FILE", help="give one input to a target")
    return parser


def _fuzz(name: str, seconds: int, folder: Path) -> Outcome:
    """One target in its own process, with a limit on memory and on the time of one input."""
    corpus, crashes = folder.absolute() / name / "corpus", folder.absolute() / name / "crashes"
    for one in (corpus, crashes):
        one.mkdir(parents=True, exist_ok=True)
    for seed in fuzz.load(name).seeds():
        (corpus / hashlib.sha256(seed).hexdigest()).write_bytes(seed)
    command = [
        *(sys.executable, "-m", "fuzz.under_atheris", name, str(corpus)),
        f"-max_total_time={seconds}",
        f"-rss_limit_mb={MEMORY_MB}",
        f"-timeout={SECONDS_PER_INPUT}",
        f"-max_len={LONGEST_INPUT}",
        "-len_control=0",
        f"-artifact_prefix={crashes}/",
        "-print_final_stats=1",
    ]
    print(f"{name}: {seconds} seconds", flush=True)
    start = time.time()
    done = subprocess.run(  # noqa: S603 - our own module
        command, cwd=ROOT, capture_output=True, text=True, errors="replace", check=False
    )
    told = done.stderr + done.stdout
    steps = [tuple(map(int, found.groups())) for found in PROGRESS.finditer(told)]
    tried, edges, features = steps[-1] if steps else (0, 0, 0)
    tried = max([tried, *map(int, INPUTS.findall(told))])
    found = tuple(sorted(one for one in crashes.iterdir() if one.stat().st_mtime >= start))
    if done.returncode:
        print(told[-4000:])
    outcome = Outcome(name, tried, edges, features, found, failed=done.returncode != 0)
    print(_row(outcome), flush=True)
    return outcome


def _row(one: Outcome) -> str:
    crashes = len(one.crashes) or int(one.failed)
    return f"{one.target:12}{one.inputs:>12,}{one.edges:>8,}{one.features:>10,}{crashes:>9}"


def _show(outcomes: Sequence[Outcome]) -> None:
    print(f"\n{'target':12}{'inputs':>12}{'edges':>8}{'features':>10}{'crashes':>9}")
    for one in outcomes:
        print(_row(one))
    for one in outcomes:
        for path in one.crashes:
            print(f"\n{one.target} crashed on {path}\nscripts/fuzz --replay {path} {one.target}")


if __name__ == "__main__":
    sys.exit(main())
