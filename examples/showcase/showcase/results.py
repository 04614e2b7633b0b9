"""What came of it: books that agree, limits that were kept, and accuracy by labels paid."""

import io
import json
import math
from collections.abc import Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from rich.table import Table

from showcase.annotator import Annotator
from showcase.readings import spool_path
from tidegate.cli import main as tidegate
from tidegate.client.streams import Spool
from tidegate.report.figures import COLOURS, STYLES
from tidegate.runs.reader import RunView, read_run

MOST_USES = 10
MOST_DAYS = 30
ACCURACY = "server/accuracy"


@dataclass(frozen=True)
class Fleet:
    """A way to choose among windows, and the run that does so."""

    name: str
    """Of its run, and of its folder."""
    told: str
    """In tables and pictures."""
    ranking: str
    random_share: float


FLEETS = (
    Fleet("random", "at random", "random", 0.0),
    Fleet("half-margin", "half by margin, half at random", "margin", 0.5),
    Fleet("margin", "by margin alone", "margin", 0.0),
)


@dataclass(frozen=True)
class Outcome:
    """What one fleet paid, learned and kept."""

    fleet: Fleet
    view: RunView
    billed_labels: int
    billed: float
    audit: dict[str, Any]
    received: int
    missing: int

    @property
    def labels(self) -> list[float]:
        """Labels paid by the end of each round, from the server's books."""
        paid, price = 0.0, self.view.rounds[0].price
        found = []
        for row in self.view.rounds:
            paid += row.spent
            found.append(paid / price)
        return found

    @property
    def accuracy(self) -> list[float]:
        """On windows that nobody trains on, after each round, in percent."""
        judged = self.view.metrics[ACCURACY]
        return [100 * judged[row.round_number] for row in self.view.rounds]

    @property
    def spent(self) -> float:
        """By the server's books."""
        return math.fsum(row.spent for row in self.view.rounds)

    @property
    def most_uses(self) -> int:
        """Of any window, by the devices' own records."""
        return max(int(one["most_uses_of_a_sample"]) for one in self.audit["buffers"])

    @property
    def longest_days(self) -> float:
        """That any window had been held when it was used."""
        return max(float(one["longest_held_when_used_days"]) for one in self.audit["buffers"])

    def wrong(self) -> list[str]:
        """What does not agree; nothing if all is well."""
        clients = math.fsum(one.total_spent for one in self.view.clients)
        allowed = self.view.budget * len(self.view.rounds)
        right = [one["right"] for one in self.audit["buffers"]]
        checks = {
            f"the annotator billed {self.billed}, the server booked {self.spent}": (
                math.isclose(self.billed, self.spent)
            ),
            f"the server booked {self.spent}, its clients {clients}": (
                math.isclose(self.spent, clients)
            ),
            f"{self.spent} was spent of {allowed}": self.spent <= allowed + 1e-9,
            f"{right.count(False)} devices fail their audit": (
                all(right) and len(right) == len(self.view.clients) and not self.audit["failed"]
            ),
            f"a window was used {self.most_uses} times": self.most_uses <= MOST_USES,
            f"a window was held for {self.longest_days} days": self.longest_days <= MOST_DAYS,
            f"{self.missing} windows were lost on the way": not self.missing,
        }
        return [f"{self.fleet.name}: {told}" for told, holds in checks.items() if not holds]


def outcome(fleet: Fleet, out: Path, annotator: Annotator, people: Sequence[int]) -> Outcome:
    """Read what a fleet left, audit its devices and write their page.

    Args:
        fleet: that has run.
        out: the folder of the showcase.
        annotator: whose bill is compared with the books.
        people: that took part.
    """
    folder = out / fleet.name
    told = _tidegate(
        *("audit", str(folder / "buffers"), "--against", str(folder), "--json"),
        *("--page", str(out / f"audit-{fleet.name}.html")),
    )
    received = missing = 0
    for person in people:
        spool = Spool(spool_path(out / "spools", fleet.name, person))
        health = spool.health()
        spool.close()
        received += health.received
        missing += sum(health.missing.values()) + health.gaps + health.dropped
    bill = annotator.bill(fleet.name)
    return Outcome(
        fleet,
        read_run(folder),
        billed_labels=len(bill),
        billed=math.fsum(task.price for task in bill),
        audit=json.loads(told),
        received=received,
        missing=missing,
    )


def write_report(out: Path, fleet: str, beside: str) -> None:
    """The page of a run, with another run's metrics beside it."""
    page = str(out / "report.html")
    _tidegate("report", str(out / fleet), "--beside", str(out / beside), "--out", page)


def _tidegate(*arguments: str) -> str:
    """What a command prints; an audit that finds something wrong ends with 1, and is read."""
    printed = io.StringIO()
    with redirect_stdout(printed), suppress(SystemExit):
        tidegate(list(arguments))
    if not printed.getvalue():
        raise RuntimeError(f"tidegate {' '.join(arguments)} failed")
    return printed.getvalue()


def draw(outcomes: Sequence[Outcome], path: Path, note: str) -> None:
    """Accuracy by labels paid, one curve a fleet."""
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    for number, one in enumerate(outcomes):
        axes.plot(
            one.labels,
            one.accuracy,
            color=COLOURS[number],
            linestyle=STYLES[number],
            label=f"{one.fleet.told}: {one.accuracy[-1]:.1f} % at the end",
        )
    axes.set(
        title="Activities named correctly, by labels paid",
        xlabel=f"labels paid, at {outcomes[0].view.rounds[0].price:.2f} each\n{note}",
        ylabel="test accuracy, %",
        xlim=(0, None),
        ylim=(0, 100),
    )
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right", title="which windows are labelled")
    figure.savefig(path, dpi=130)


def table(outcomes: Sequence[Outcome]) -> Table:
    """One row a fleet."""
    found = Table(title="Equal labels, three ways to choose them", title_justify="left", box=None)
    found.add_column("labels go to windows chosen")
    for name in ("labels", "booked", "billed", "accuracy", "best", "most uses", "audit"):
        found.add_column(name, justify="right")
    for one in outcomes:
        right = sum(buffer["right"] for buffer in one.audit["buffers"])
        found.add_row(
            one.fleet.told,
            f"{one.billed_labels:,}",
            f"{one.spent:,.2f}",
            f"{one.billed:,.2f}",
            f"{one.accuracy[-1]:.1f} %",
            f"{max(one.accuracy):.1f} %",
            f"{one.most_uses} of {MOST_USES}",
            f"{right} of {len(one.audit['buffers'])} right",
        )
    return found
