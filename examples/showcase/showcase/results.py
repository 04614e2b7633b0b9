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
from rich.box import SIMPLE_HEAD
from rich.table import Table

from showcase.annotator import Annotator
from showcase.fleets import PRICE, Fleet
from showcase.readings import spool_path
from tidegate.cli import main as tidegate
from tidegate.integrations.mqtt import Spool
from tidegate.report.figures import COLOURS
from tidegate.runs.reader import RunView, read_run

MOST_USES = 10
MOST_DAYS = 30
ACCURACY = "server/accuracy"
MARKS = ("o-", "s--", "D:")


@dataclass(frozen=True)
class Outcome:
    """What one fleet paid, learned and kept."""

    fleet: Fleet
    view: RunView
    """The run, from the server's folder."""
    labels_billed: int
    billed: float
    """By the annotator."""
    audit: dict[str, Any]
    """What ``tidegate audit --against`` found."""
    received: int
    """Windows that came over MQTT."""
    lost: int

    @property
    def spent(self) -> float:
        """By the server's books."""
        return math.fsum(row.spent for row in self.view.rounds)

    @property
    def accuracy(self) -> list[float]:
        """On windows that nobody trains on, in percent: before the first round and after each."""
        judged = self.view.metrics[ACCURACY]
        return [100 * judged[number] for number in sorted(judged)]

    @property
    def curve(self) -> dict[int, float]:
        """Accuracy by labels paid; where a round buys none, that of the last such round."""
        paid = [0.0, *(row.spent for row in self.view.rounds)]
        labels = [round(math.fsum(paid[: number + 1]) / PRICE) for number in range(len(paid))]
        return dict(zip(labels, self.accuracy, strict=True))

    @property
    def most_uses(self) -> int:
        """Of any window, by the devices' own records."""
        return max(int(one["most_uses_of_a_sample"]) for one in self.audit["buffers"])

    @property
    def devices_right(self) -> int:
        """Devices whose audit finds nothing wrong."""
        return sum(one["right"] for one in self.audit["buffers"])

    def problems(self) -> list[str]:
        """What does not agree; nothing if all is well."""
        clients = math.fsum(one.total_spent for one in self.view.clients)
        allowed = self.view.budget * len(self.view.rounds)
        longest = max(float(one["longest_held_when_used_days"]) for one in self.audit["buffers"])
        devices = len(self.view.clients)
        checks = {
            f"the annotator billed {self.billed}, the server booked {self.spent}": (
                math.isclose(self.billed, self.spent)
            ),
            f"the server booked {self.spent} in all, and {clients} by client": (
                math.isclose(self.spent, clients)
            ),
            f"{self.spent} was spent of {allowed}": self.spent <= allowed,
            f"{self.devices_right} of {devices} devices pass their audit": (
                self.devices_right == devices and not self.audit["failed"]
            ),
            f"a window trained in {self.most_uses} rounds": self.most_uses <= MOST_USES,
            f"a window was held for {longest} days": longest <= MOST_DAYS,
            f"{self.lost} windows were lost on their way": not self.lost,
        }
        return [f"{self.fleet.name}: {told}" for told, holds in checks.items() if not holds]


def problems(outcomes: Sequence[Outcome]) -> list[str]:
    """What is wrong with any fleet, or with comparing them."""
    found = [text for one in outcomes for text in one.problems()]
    labels = {one.fleet.name: one.labels_billed for one in outcomes}
    if len(set(labels.values())) > 1:
        found.append(f"fleets paid for different numbers of labels: {labels}")
    return found


def outcome(fleet: Fleet, out: Path, annotator: Annotator, people: Sequence[int]) -> Outcome:
    """Read what a fleet left, audit its devices and write their page.

    Args:
        fleet: that has run.
        out: the folder of the showcase.
        annotator: whose bill is compared with the books.
        people: that took part.
    """
    folder, page = out / fleet.name, out / f"audit-{fleet.name}.html"
    found = _tidegate(*("audit", folder / "buffers", "--against", folder, "--page", page, "--json"))
    bill = annotator.bill(fleet.name)
    received = lost = 0
    for person in people:
        spool = Spool(spool_path(out / "spools", fleet.name, person))
        health = spool.health()
        spool.close()
        received += health.received
        lost += sum(health.missing.values()) + health.gaps + health.dropped
    return Outcome(
        fleet,
        read_run(folder),
        labels_billed=len(bill),
        billed=math.fsum(task.price for task in bill),
        audit=json.loads(found),
        received=received,
        lost=lost,
    )


def write_report(out: Path, fleet: str, beside: str) -> None:
    """The page of a run, with another run's metrics beside it."""
    _tidegate("report", out / fleet, out / beside, "--out", out / "report.html")


def _tidegate(*arguments: str | Path) -> str:
    """What a command prints; an audit that finds something wrong ends with 1, and is read."""
    printed = io.StringIO()
    with redirect_stdout(printed), suppress(SystemExit):
        tidegate([str(one) for one in arguments])
    return printed.getvalue()


def draw(outcomes: Sequence[Outcome], path: Path, note: str) -> None:
    """Accuracy by labels paid, one curve a fleet."""
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    for one, colour, marks in zip(outcomes, COLOURS, MARKS, strict=False):
        told = f"{one.fleet.told}: {one.accuracy[-1]:.1f} % at the end"
        labels, accuracy = list(one.curve), list(one.curve.values())
        axes.plot(labels, accuracy, marks, color=colour, label=told, markersize=4)
    axes.set(
        title="Activities named correctly, by labels paid",
        xlabel=f"labels paid, at {PRICE} each ({note}, one run a curve)",
        ylabel="test accuracy, %",
        xlim=(0, None),
        ylim=(0, 100),
    )
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right", title="windows chosen for labelling")
    figure.savefig(path, dpi=130)


def table(outcomes: Sequence[Outcome]) -> Table:
    """One row a fleet."""
    found = Table(box=SIMPLE_HEAD, pad_edge=False)
    found.add_column("windows chosen", no_wrap=True)
    for name in ("labels", "booked", "billed", "accuracy", "best", "uses", "audit"):
        found.add_column(name, justify="right")
    for one in outcomes:
        found.add_row(
            one.fleet.told,
            f"{one.labels_billed:,}",
            f"{one.spent:,.2f}",
            f"{one.billed:,.2f}",
            f"{one.accuracy[-1]:.1f} %",
            f"{max(one.accuracy):.1f} %",
            str(one.most_uses),
            f"{one.devices_right}/{len(one.view.clients)}",
        )
    return found
