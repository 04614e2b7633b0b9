"""The page of a run: the answer first, then money, memory, metrics and clients."""

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tidegate.policies import ControlOptions, NotApplicable
from tidegate.report.alarms import ANSWERED, Alarm, Level, alarms, state_of, worst
from tidegate.report.incidents import RESTART, Incident, incidents, paused_rounds, restart_round
from tidegate.report.live import newest, summary
from tidegate.report.over_rounds import Curve, Draw, curves
from tidegate.report.page import Picture, drawing, render
from tidegate.report.replay import Replay
from tidegate.report.run_state import clock, run_state
from tidegate.report.tables import amount, without_rounding
from tidegate.runs.own_prices import amounts_paid
from tidegate.runs.reader import ClientView, RunView

MOST_ROWS = 500
"""The most rows of a table; a longer one says so."""
BASELINE = "constant_admission"
NOTEWORTHY = 0.01
"""The page explains a difference above this part of the allowed money."""
RECENT = 5
"""The last measurements, which show how much a metric still changes."""


@dataclass(frozen=True)
class Score:
    """The metric that a page leads with, and what it cost."""

    name: str
    value: float
    round_number: int
    paid: float
    """All that was spent up to that round."""
    recent: Sequence[float]
    """The last measurements."""


@dataclass(frozen=True)
class Baseline:
    """Constant admission at the run's own prices, with as much money: counted, not trained."""

    paid: Sequence[float]
    """Before the first round, and up to each."""
    effective: Sequence[float]

    money: float
    """What both have spent in the end."""
    counted: float
    """Its effective samples for this money."""
    measured: float
    """Those of the run for as much."""


@dataclass(frozen=True)
class RunPage:
    """All that the page of a run says, as numbers; ``run.html`` has the words."""

    view: RunView
    figures: Mapping[str, Any]
    """From ``live.summary``."""
    written: str
    level: Level
    alarms: Sequence[Alarm]
    trouble: Sequence[Incident]
    score: Score | None
    """None if no metric of the model was measured."""
    baseline: Baseline | None
    """None where constant admission cannot be used, and where a run stands beside this one."""
    beside: RunView | None

    @property
    def bought(self) -> int:
        """Samples that all clients have bought."""
        return sum(client.total_admitted for client in self.view.clients)

    @property
    def let_go(self) -> int:
        """Samples that clients bought and no longer hold."""
        stored = sum(client.stored for client in self.view.clients)
        return max(self.bought - stored - self.view.rounds[-1].under_way, 0)

    @property
    def needy(self) -> Sequence[ClientView]:
        """Clients that are away, fail or owe a reply."""
        return self.view.away

    @property
    def restarts_only(self) -> bool:
        """Whether nothing worse happened than restarts of the server."""
        return all(incident.mark == RESTART for incident in self.trouble)

    @property
    def prices_differ(self) -> bool:
        """Whether the price of a sample ever changed."""
        return len({row.price for row in self.view.rounds}) > 1

    @property
    def is_noteworthy(self) -> bool:
        """Whether the run's spending is far from what was allowed."""
        return bool(abs(self.figures["overspend"]) > NOTEWORTHY * self.figures["allowed"])

    @property
    def counts(self) -> Mapping[str, int]:
        """Rounds in which something kept money from being spent, by its name."""
        view = self.view
        failed = {number: count for number, (count, _) in view.failures.items() if count}
        # Full slots do not keep Tide from buying: fresh samples take the place of old ones.
        full = (row.training_size >= row.slots > 0 for row in view.rounds)
        return {
            "short": sum(row.exhausted > 0 for row in view.rounds),
            "failed": len(failed),
            "unanswered": sum(
                row.answered + failed.get(row.round_number, 0) < row.orders for row in view.rounds
            ),
            "full": 0 if view.policy == "tide" else sum(full),
        }

    @property
    def paused(self) -> Sequence[int]:
        """Rounds in which clients bought nothing because buying was paused."""
        return paused_rounds(self.view)

    @property
    def amounts(self) -> Mapping[str, tuple[float, float]]:
        """What the money paid for, if a price is a sum of several columns."""
        return amounts_paid(self.view)

    @property
    def pause_was_bought(self) -> bool:
        """Whether a pause followed purchases, and not only orders without a reply."""
        pairs = itertools.pairwise([None, *self.view.rounds])
        begun = (
            row for before, row in pairs if row and row.pause > (before.pause if before else 0)
        )
        return any(row.spent for row in begun)

    @property
    def choosing(self) -> Sequence[ClientView]:
        """Clients that choose by a ranking of their own."""
        return [client for client in self.view.clients if client.candidates]

    @property
    def pair(self) -> Sequence[Sequence[str]]:
        """The table of this run and the one beside it; empty without one."""
        if self.beside is None:
            return []
        rows = [["", *_labels(self.view, self.beside), "difference"]]
        for name in filter(self.beside.metrics.__contains__, self.view.metrics):
            mine, other = (newest(view.metrics[name]) for view in (self.view, self.beside))
            rows.append([name, *(f"{value:.4g}" for value in (mine, other, mine - other))])
        for name, words in (("spent", "spent"), ("admitted", "bought")):
            mine, other = (
                sum(getattr(row, name) for row in view.rounds) for view in (self.view, self.beside)
            )
            rows.append([words, *(amount(value) for value in (mine, other, mine - other))])
        return rows

    @property
    def leading(self) -> Sequence[Sequence[str]]:
        """The server's metrics in ``pair``."""
        return [row for row in self.pair[1:] if row[0].startswith("server/")]

    @property
    def clients(self) -> Sequence[ClientView]:
        """All clients, those that are away or owe a reply first, retired ones last."""
        return sorted(
            self.view.clients,
            key=lambda client: 2 if client.is_retired else int(state_of(client) == ANSWERED),
        )

    @property
    def client_rows(self) -> Sequence[Sequence[str]]:
        """What each client holds and has paid."""
        return [
            [
                *(client.name, state_of(client), f"{client.buffer_capacity:,}"),
                *(f"{client.stored:,}", f"{client.total_admitted:,}", amount(client.total_spent)),
                f"{client.last_round:,}",
            ]
            for client in self.clients[:MOST_ROWS]
        ]

    @property
    def round_rows(self) -> Sequence[Sequence[str]]:
        """What each of the last rounds did."""
        names = ("price", "admitted", "spent", "training_size", "answered", "overspend")
        return [
            [f"{row.round_number:,}", *(amount(getattr(row, name)) for name in names)]
            for row in self.view.rounds[-MOST_ROWS:]
        ]

    @property
    def settings(self) -> Mapping[str, object]:
        """What the run was started with."""
        view = self.view
        return {
            "run": view.run,
            "policy": view.policy,
            **view.options,
            "budget": view.budget,
            "rounds": view.num_rounds,
            "mean price, expected": view.mean_price,
            "fraction_train": view.fraction_train,
            "headroom": view.headroom,
            "a shard's budget": view.is_shard,
            "clients": len(view.clients),
        }

    @property
    def starts(self) -> Sequence[Sequence[str]]:
        """When the server started, with which round it continued, and its versions."""
        return [
            [clock(at), f"{restart_round(self.view, at):,}", json.dumps(versions)]
            for at, versions in self.view.starts
        ]


def write_run_page(view: RunView, path: Path, now: float, beside: RunView | None = None) -> None:
    """Write the page of a run, finished or not.

    Args:
        view: the run; at least one round is settled.
        path: the file of the page.
        now: seconds since 1970.
        beside: another run, to compare with.
    """
    page = run_page(view, now, beside)
    with drawing() as picture:
        draw = partial(curves, picture=picture, trouble=page.trouble)
        pictures = {
            "answer": _answer(page, draw),
            "money": _money(page.view, draw),
            "memory": _memory(page.view, draw),
            "metrics": _metrics(page, draw),
            "theory": [_theory(page.view, draw)],
        }
    render(path, "run.html", page=page, pictures=pictures, most=MOST_ROWS)


def run_page(view: RunView, now: float, beside: RunView | None = None) -> RunPage:
    """Return the numbers of a run's page."""
    figures = summary(view, now)
    shown, trouble = alarms(view, figures, run_state(view, now)), incidents(view)
    well = all(incident.mark == RESTART for incident in trouble)
    level: Level = worst(shown) if shown or well else "yellow"
    view = replace(view, rounds=without_rounding(view.rounds))
    return RunPage(
        view=view,
        figures=figures,
        written=clock(now),
        level=level,
        alarms=shown,
        trouble=trouble,
        score=_score(view),
        baseline=_baseline(view, figures["spent_per_round"]) if beside is None else None,
        beside=beside,
    )


def _paid(view: RunView) -> dict[int, float]:
    """Return what was spent up to each round, and 0 before the first."""
    totals = itertools.accumulate((row.spent for row in view.rounds), initial=0.0)
    return dict(zip([0, *(row.round_number for row in view.rounds)], totals, strict=True))


def _score(view: RunView) -> Score | None:
    """Return the highest accuracy, the server's own first; else the newest other metric."""
    names = [name for name in view.metrics if not name.startswith("train/")]
    names.sort(key=lambda name: ("accuracy" not in name, not name.startswith("server/")))
    paid = _paid(view)
    for name in names:
        values = {at: value for at, value in view.metrics[name].items() if at in paid}
        finite = [at for at, value in values.items() if math.isfinite(value)]
        if finite:
            best = max(finite, key=values.__getitem__) if "accuracy" in name else max(finite)
            recent = [values[at] for at in sorted(finite)[-RECENT:]]
            return Score(name, values[best], best, paid[best], recent)
    return None


def _baseline(view: RunView, budget: float) -> Baseline | None:
    """Return what constant admission would have had for the same money."""
    if view.policy == BASELINE or not budget:
        return None
    replay = Replay(view)
    try:
        runs = replay.runs(BASELINE, replay.problem(budget), ControlOptions(**view.options))
    except NotApplicable:
        return None
    paid = [0.0, *np.mean([np.cumsum(run.columns["spent"]) for run in runs], axis=0)]
    counted = [0.0, *np.mean([run.columns["effective_samples"] for run in runs], axis=0)]
    mine = list(_paid(view).values())
    measured = [0.0, *(row.effective_samples for row in view.rounds)]
    money = min(paid[-1], mine[-1])
    return Baseline(
        paid=paid,
        effective=counted,
        money=money,
        counted=float(np.interp(money, paid, counted)),
        measured=float(np.interp(money, mine, measured)),
    )


def _answer(page: RunPage, draw: Draw) -> list[Picture]:
    """Draw accuracy and effective samples by money."""
    view, pictures = page.view, list[Picture]()
    if page.score is not None:
        name = page.score.name
        both = {view.title if page.beside is None else _labels(view, page.beside)[0]: view}
        if page.beside is not None and name in page.beside.metrics:
            both[_labels(view, page.beside)[1]] = page.beside
        lines = {label: _by_money(shown, name) for label, shown in both.items()}
        if len(lines) == 1:
            lines = {name: next(iter(lines.values()))}
        pictures.append(draw(f"{name}, by money", lines, across="money spent", trouble=()))
    paid = list(_paid(view).values())
    effective = [0.0, *(row.effective_samples for row in view.rounds)]
    counts = {view.policy: Curve(paid, effective)}
    if page.baseline is not None:
        counts["constant admission, counted"] = Curve(page.baseline.paid, page.baseline.effective)
    pictures.append(draw("effective samples, by money", counts, across="money spent", trouble=()))
    return pictures


def _by_money(view: RunView, name: str) -> Curve:
    """Return the values of a metric by what was spent when it was measured."""
    paid = _paid(view)
    values = {at: value for at, value in view.metrics[name].items() if at in paid}
    return Curve([paid[at] for at in values], list(values.values()))


def _money(view: RunView, draw: Draw) -> list[Picture]:
    numbers = [row.round_number for row in view.rounds]
    paid = list(_paid(view).values())[1:]
    allowed = [total - row.overspend for total, row in zip(paid, view.rounds, strict=True)]
    lines = {"spent": Curve(numbers, paid), "budget": Curve(numbers, allowed)}
    price = Curve(numbers, [row.price for row in view.rounds])
    bought = Curve(numbers, [row.admitted for row in view.rounds])
    return [
        draw("spent so far", lines),
        *([draw("price of a sample", {"price": price})] if len(set(price.values)) > 1 else []),
        draw("samples bought", {"bought": bought}),
    ]


def _memory(view: RunView, draw: Draw) -> list[Picture]:
    numbers = [row.round_number for row in view.rounds]
    stored = Curve(numbers, [row.training_size for row in view.rounds])
    slots = Curve(numbers, [row.slots for row in view.rounds])
    effective = Curve(numbers, [row.effective_samples for row in view.rounds])
    distinct = Curve(numbers, [row.distinct_samples for row in view.rounds])
    waiting = Curve(numbers, [row.under_way for row in view.rounds])
    late = draw("samples bought that have not come yet", {"under way": waiting})
    return [
        draw("samples stored", {"stored": stored, "slots": slots}),
        draw("samples gained so far", {"effective": effective, "distinct": distinct}),
        *([late] if any(waiting.values) else []),
    ]


def _metrics(page: RunPage, draw: Draw) -> list[Picture]:
    pictures = []
    for name, values in page.view.metrics.items():
        lines = {name: Curve(list(values), list(values.values()))}
        other = {} if page.beside is None else page.beside.metrics.get(name, {})
        if page.beside is not None and other:
            mine, theirs = _labels(page.view, page.beside)
            lines = {mine: lines[name], theirs: Curve(list(other), list(other.values()))}
        pictures.append(draw(name, lines))
    return pictures


def _theory(view: RunView, draw: Draw) -> Picture:
    numbers = [row.round_number for row in view.rounds]
    lines = {
        "overspend": Curve(numbers, [row.overspend for row in view.rounds]),
        "cost debt": Curve(numbers, [row.cost_debt for row in view.rounds]),
    }
    return draw("overspend, and the cost debt that certifies it", lines)


def _labels(view: RunView, beside: RunView) -> tuple[str, str]:
    """Return the names of two runs: their folders, or their own names if these are alike."""
    folders = view.folder.absolute().name, beside.folder.absolute().name
    return folders if len(set(folders)) > 1 else (view.title, beside.title)
