"""A run at a glance, for a terminal."""

import itertools
import math
import statistics
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tidegate.admission.debt import certificate_holds
from tidegate.report.purchases import told_of_purchases
from tidegate.report.tables import amount
from tidegate.runs.reader import ClientView, RunView

BARS = "▁▂▃▄▅▆▇█"
NOT_FINITE = "×"
WIDTH, NARROW = 40, 14
"""Characters of a curve, on a wide screen and on one of 80 columns."""
SHOWN = 12
"""Characters of a run's name."""
MOST_NAMES = 6
"""Clients that are named; the others are counted."""
ROUNDING = 1e-9
QUIET_ROUNDS = 5.0
"""After so many times as long as a round usually takes, a run is called quiet."""
FEWEST_SECONDS = 30.0


def live_view(view: RunView, *, wide: bool = True, now: float | None = None) -> RenderableType:
    """Everything that somebody on call asks first."""
    told = summary(view, time.time() if now is None else now)
    title = Text(f"run {view.run[:SHOWN]}: {view.policy}, {told['state']}")  # no markup
    if not view.rounds:
        return Panel(Text("no round is settled yet"), title=title, title_align="left")
    lines = Table.grid(padding=(0, 2))
    lines.add_column(style="bold", no_wrap=True)
    lines.add_column(no_wrap=True)
    lines.add_column(overflow="fold")
    rounds, good = view.rounds, told["certificate_holds"]
    curve = partial(bars, width=WIDTH if wide else NARROW)
    lines.add_row(
        "spent",
        curve([row.spent for row in rounds]),
        f"{amount(told['spent'])} of {amount(told['allowed'])}, "
        f"{amount(told['spent_per_round'])} a round",
    )
    lines.add_row(
        "cost debt",
        curve([row.cost_debt for row in rounds]),
        Text(
            f"{amount(told['cost_debt'])}; overspend {amount(told['overspend'])} is "
            f"{'within' if good else 'ABOVE'} it",
            style="" if good else "bold red",
        ),
    )
    if told["exposure"]:
        lines.add_row("exposure", "", f"{amount(told['exposure'])} ordered and not answered yet")
    lines.add_row("price", curve([row.price for row in rounds]), amount(rounds[-1].price))
    lines.add_row(
        "stored",
        curve(
            [row.training_size for row in rounds],
            span=(0, max(max(row.slots, row.training_size) for row in rounds)),
        ),
        f"{told['stored']:,} of {told['slots']:,} slots; mean {amount(told['mean_stored'])}, "
        f"peak {told['peak_stored']:,}",
    )
    lines.add_row(
        "effective",
        curve(gains([row.effective_samples for row in rounds])),
        f"{amount(told['effective_samples'])} samples, {told['effective_per_round']:,.3g} a round",
    )
    for name, values in view.metrics.items():
        lines.add_row(
            Text(name),  # clients choose it: no markup
            curve(list(values.values())),
            Text(_measured(values), style="" if math.isfinite(newest(values)) else "bold red"),
        )
    lines.add_row(
        "clients",
        "",
        f"{len(view.clients):,} known, {rounds[-1].answered} of {rounds[-1].orders} answered, "
        f"{rounds[-1].exhausted} could not take in all"
        + (f", {len(view.retired):,} retired" if view.retired else ""),
    )
    if told["set_aside"]:
        lines.add_row("set aside", "", Text(set_aside_words(told["set_aside"]), style="yellow"))
    for name, words, well in told_of_purchases(told):
        lines.add_row(name, "", Text(words, style="" if well else "yellow"))
    if told["rounds_without_models"] and not awaits_first(told):
        words = f"NOBODY'S MODEL WAS USED in the last {told['rounds_without_models']} rounds"
        lines.add_row("", "", Text(f"{words}: the server's log says why", style="bold red"))
    if told["buying_paused_for"] and not view.is_over:
        lines.add_row("paused", "", Text(pause_words(told["buying_paused_for"]), style="bold red"))
    if view.away:
        lines.add_row("away", "", Text(_named(view.away), style="yellow"))
    return Panel(Group(lines), title=title, title_align="left", expand=False)


def awaits_first(told: Mapping[str, Any]) -> bool:
    """Whether nobody can train yet, because all that was bought is under way."""
    return bool(told["under_way"]) and not told["stored"]


def summary(view: RunView, now: float) -> dict[str, Any]:
    """The same as plain numbers."""
    rounds = view.rounds
    told: dict[str, Any] = {
        "run": view.run,
        "policy": view.policy,
        "state": _state(view, now),
        "is_over": view.is_over,
        "rounds_played": len(rounds),
        "num_rounds": view.num_rounds,
        "budget": view.budget,
        "clients": len(view.clients),
        "away": [client.name for client in view.away],
        "retired": [client.name for client in view.retired],
        "metrics": {
            name: value if math.isfinite(value := newest(values)) else None
            for name, values in view.metrics.items()
        },
    }
    if not rounds:
        return told
    last, spent = rounds[-1], math.fsum(row.spent for row in rounds)
    stored = [row.training_size for row in rounds]
    return told | {
        "spent": spent,
        "allowed": spent - last.overspend,
        "spent_per_round": spent / len(rounds),
        "overspend": last.overspend,
        "cost_debt": last.cost_debt,
        "certificate_holds": certificate_holds(
            [row.overspend for row in rounds],
            [row.cost_debt for row in rounds],
            [row.spent for row in rounds],
        ),
        "exposure": last.exposure,
        "price": last.price,
        "slots": last.slots,
        "stored": stored[-1],
        "mean_stored": sum(stored) / len(stored),
        "peak_stored": max(stored),
        "effective_samples": last.effective_samples,
        "effective_per_round": last.effective_samples / len(rounds),
        "rounds_without_models": sum(
            1 for _ in itertools.takewhile(lambda used: not used, reversed(_averaged(view)))
        ),
        "buying_paused_for": last.pause,
        "answered": last.answered,
        "orders": last.orders,
        "exhausted": last.exhausted,
        "set_aside": last.set_aside,
        "under_way": last.under_way,
        "under_way_spent": last.under_way_spent,
        "oldest_under_way": last.oldest_under_way,
        "failing_suppliers": last.failing_suppliers,
        "full_spools": last.full_spools,
        "spool_dropped": last.spool_dropped,
        "empty_clients": last.empty_clients,
        "refunded": last.refunded,
    }


def pause_words(rounds: int) -> str:
    """For how long nothing is bought, and why.

    >>> pause_words(1)
    'nothing is bought in the next round'
    """
    if rounds == 1:
        return "nothing is bought in the next round"
    return f"nothing is bought in the next {rounds:,} rounds, unless a model can be used before"


def set_aside_words(count: int) -> str:
    """How many samples were set aside, and where to look.

    >>> set_aside_words(1)
    '1 sample could not be read, acquired or stored; the log names the client'
    """
    return (
        f"{count:,} sample{'s' * (count > 1)} could not be read, acquired or stored; the log names "
        f"the client{'s' * (count > 1)}"
    )


def bars(
    values: Sequence[float], width: int = WIDTH, span: tuple[float, float] | None = None
) -> str:
    """The last values as bars, from the lowest to the highest of them, or within a span.

    >>> bars([0, 1, float("nan"), 2, 3])
    '▁▃×▆█'
    """
    shown = values[-width:]
    finite = [one for one in shown if math.isfinite(one)]
    low, high = span or (min(finite, default=0.0), max(finite, default=0.0))
    same, steps = high - low <= ROUNDING * max(abs(low), abs(high)), len(BARS) - 1

    def bar(one: float) -> str:
        if not math.isfinite(one):
            return NOT_FINITE
        return BARS[
            len(BARS) // 2 if same else round((min(one, high) - low) / (high - low) * steps)
        ]

    return "".join(map(bar, shown))


def gains(totals: Sequence[float]) -> list[float]:
    """What each round added to a total."""
    return [after - before for before, after in zip([0.0, *totals], totals, strict=False)]


def newest(values: Mapping[int, float]) -> float:
    """Of the last round that a metric was measured in."""
    return values[max(values)]


def _measured(values: Mapping[int, float]) -> str:
    best = max(filter(math.isfinite, values.values()), default=math.nan)
    return f"{newest(values):.4g} in round {max(values):,}, highest {best:.4g}"


def _averaged(view: RunView) -> list[int]:
    """How many models went into each round's average."""
    return [view.averaged.get(row.round_number, row.answered) for row in view.rounds]


def _named(clients: Sequence[ClientView]) -> str:
    names = [f"{client.name} ({state_of(client)})" for client in clients[:MOST_NAMES]]
    more = len(clients) - len(names)
    return ", ".join(names) + (f" and {more:,} more" if more else "")


def state_of(client: ClientView) -> str:
    """Whether a client is there, in a word or two."""
    if client.is_retired:
        return "retired"
    if client.owes_answer:
        return "owes an answer"
    if client.away_for is None:
        return "has left"
    if client.away_for:
        return f"away for {client.away_for} round" + "s" * (client.away_for > 1)
    return "here"


def _state(view: RunView, now: float) -> str:
    """How far it is, and whether it still moves."""
    of = "" if view.num_rounds is None else f" of {view.num_rounds:,}"
    place = f"round {len(view.rounds):,}{of}"
    ends = [view.ended_at[number] for number in sorted(view.ended_at)]
    if view.is_over:
        return f"{place}, over" + (f" since {clock(ends[-1])}" if ends else "")
    if view.is_played:
        return f"{place}, its last model is being judged"
    if view.ending:
        return f"{place}, its server has stopped before the end"
    if view.is_gone:
        return f"{place}, its server is gone; started again in this folder it goes on"
    begun = view.begun_at.get(view.round_number)
    usual = statistics.median(gains(ends)[1:]) if len(ends) > 1 else 0.0
    started = [at for at, _ in view.starts[-1:]]
    last = max([*ends[-1:], *started, *([] if begun is None else [begun])], default=now)
    since = max(now - last, 0.0)
    waits_for = "the next price, or for nodes" if begun is None else "answers"
    told = f"{place}, waiting for {waits_for} for {since:,.0f} s"
    if since > max(QUIET_ROUNDS * usual, FEWEST_SECONDS):
        return f"{told}: QUIET, a round takes {usual:,.3g} s"
    return told


def clock(seconds: float) -> str:
    """A time, as people write it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
