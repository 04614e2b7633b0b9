"""Run the showcase: a broker, thirty phones, an annotator and three fleets, on this machine.

python examples/showcase/run.py --out showcase-run
"""

import argparse
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from showcase import ShowcaseError
from showcase.annotator import Annotator
from showcase.broker import Broker, find_mosquitto
from showcase.data import load
from showcase.fleets import CANDIDATES, FLEETS, LABELS, Running, Stage, running
from showcase.phones import Phones
from showcase.readings import subscribe
from showcase.results import draw, outcome, problems, table, write_report

PEOPLE = 30
ROUNDS = 20
LOOK_SECONDS = 0.2
STOPPED = 130
"""The exit code after Ctrl-C, or another request to end."""
WRITTEN = {
    "accuracy.png": "accuracy by labels paid",
    "report.html": "half by margin, beside at random: money, memory, learning, every client",
    "audit-half-margin.html": "what its devices kept; the other fleets have such pages, too",
    "bill.csv": "the annotator's bill, one row a label",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run everything; 0 if books agree and limits were kept."""
    console = Console()
    try:
        wrong = _run(_parser().parse_args(arguments), console)
    except ShowcaseError as reason:
        console.print(f"showcase: {reason}", style="red", highlight=False, soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        console.print("showcase: stopped; broker, phones, annotator and fleets have ended")
        return STOPPED
    for one in wrong:
        console.print(f"WRONG: {one}", style="red", highlight=False, soft_wrap=True)
    return int(bool(wrong))


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
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ShowcaseError(f"{given.out} already exists; give a new folder with --out")
    with ExitStack() as parts:
        with _undisturbed():
            broker = parts.enter_context(Broker(out / "broker"))
            annotator = parts.enter_context(Annotator(windows, given.seed))
            people = range(1, given.people + 1)
            places = broker.port, annotator.port
            stage = Stage(out, given.data, people, given.rounds, given.seed, *places)
            console.print(
                f"Mosquitto listens on port {broker.port}, the annotator on {annotator.port}.\n"
                f"{len(people)} phones; {len(FLEETS)} fleets of {len(people)} clients.",
                highlight=False,
            )
            subscribe(broker.port, out / "spools", [fleet.name for fleet in FLEETS], people)
            count = CANDIDATES * given.rounds
            phones = parts.enter_context(Phones(broker.port, windows, people, count, given.seed))
            fleets = parts.enter_context(running(stage))
        _follow(stage, fleets, phones, annotator, console)
    annotator.write_bill(out / "bill.csv")
    with console.status("auditing devices, writing pages"):
        outcomes = [outcome(fleet, out, annotator, people) for fleet in FLEETS]
        write_report(out, "half-margin", "random")
        draw(outcomes, out / "accuracy.png", f"{len(people)} people, seed {given.seed}")
    console.print(table(outcomes), highlight=False)
    wrong = problems(outcomes)
    if not wrong:
        console.print(
            "Bill and books agree. "
            f"{sum(one.received for one in outcomes):,} windows came over MQTT, none was lost.\n"
            "Every device kept its limits: 10 uses, 30 days. "
            f"It took {time.monotonic() - begun:.0f} s.\n",
            highlight=False,
        )
    for name, text in WRITTEN.items():
        console.print(f"{given.out / name}: {text}", highlight=False, soft_wrap=True)
    return wrong


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Hear Ctrl-C and requests to end at the end of this block, when all that must end is known.

    A program that is being started when an exception interrupts it would be left behind.
    """
    heard = list[int]()
    requests = signal.SIGINT, signal.SIGTERM
    before = {one: signal.signal(one, lambda number, _: heard.append(number)) for one in requests}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
        if heard:  # also if something failed, because Ctrl-C ends what is being started, too
            raise KeyboardInterrupt


def _follow(
    stage: Stage, fleets: Running, phones: Phones, annotator: Annotator, console: Console
) -> None:
    """Bars for phones, labels and rounds, until all fleets have ended."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        sent = progress.add_task("windows sent by phones", total=phones.total)
        most = LABELS * len(stage.people) * stage.rounds * len(FLEETS)
        labels = progress.add_task("labels asked for", total=most)
        rounds = {
            fleet: progress.add_task(f"rounds, windows {fleet.told}", total=stage.rounds)
            for fleet in FLEETS
        }
        goes_on = True
        while goes_on:
            goes_on = fleets.goes_on()
            progress.update(sent, completed=phones.acknowledged)
            asked = sum(len(annotator.bill(fleet.name)) for fleet in FLEETS)
            # Rounding can leave a label or two of the budget unspent.
            progress.update(labels, completed=asked, total=most if goes_on else asked)
            for fleet, bar in rounds.items():
                progress.update(bar, completed=fleets.rounds(fleet))
            if goes_on:
                time.sleep(LOOK_SECONDS)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends as Ctrl-C does
    sys.exit(main())
