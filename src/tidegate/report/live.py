"""The view of a run in a terminal."""

import itertools
import math
import re
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tidegate._internal.words import counted
from tidegate.admission.debt import certificate_holds
from tidegate.report.alarms import SERVER_STOPPED, Alarm, Level, alarms, worst
from tidegate.report.run_state import gains, run_state, server_in_a_word
from tidegate.report.tables import amount, without_rounding
from tidegate.runs.reader import RunView

BARS = "▁▂▃▄▅▆▇█"
NOT_FINITE = "×"
WIDE, NARROW = 40, 14
"""Characters of a curve, on a wide screen and on one of 80 columns."""
ROUNDING = 1e-9
COLOUR: Mapping[Level, str] = {"green": "green", "yellow": "bold yellow", "red": "bold red"}
LOG_LINE = re.compile(r"\d{4}-\d\d-\d\d (\d\d:\d\d:\d\d) UTC ([A-Z]+) (.*)")


def live_view(
    view: RunView, *, wide: bool = True, now: float | None = None, log: Sequence[str] = ()
) -> RenderableType:
    """Return what an operator on call asks first.

    Green means that all is well, yellow that the operator should look, red that they must act.
    Words say the same, for screens and readers without colours.

    Args:
        view: the run's folder.
        wide: whether the screen is wide.
        now: the time, in seconds since 1970; the present by default.
        log: the last lines of the server's log.
    """
    moment = time.time() if now is None else now
    figures, state = summary(view, moment), run_state(view, moment)
    wrong = alarms(view, figures, state)
    colour = worst(wrong)
    title = Text(view.title, COLOUR[colour])  # no markup
    parts: list[RenderableType] = [Text(state.words, COLOUR[colour]), _server_line(view, wrong)]
    for alarm in wrong:
        parts.append(Text.assemble((f"{alarm.name}: ", COLOUR[alarm.level]), alarm.what))
        parts.append(Padding(Text(f"what to do: {alarm.to_do}"), (0, 0, 0, 2)))
    if view.rounds:
        parts.append(_numbers(view, figures, wide=wide))
    else:
        open_orders = f"; {_exposure_words(figures)}" * bool(view.exposure)
        parts.append(Text(f"no round is settled yet{open_orders}"))
    parts += map(_log_line, log)
    return Panel(Group(*parts), title=title, title_align="left", border_style=colour, expand=False)


def _log_line(line: str) -> Text:
    """Return a line of the log with its time of day, in colour if it is a warning or an error."""
    found = LOG_LINE.fullmatch(line)
    if found is None:
        return Text(line, "dim", no_wrap=True, overflow="ellipsis")
    at, level, words = found.groups()
    if level == "INFO":
        return Text(f"{at} {words}", "dim", no_wrap=True, overflow="ellipsis")
    style = "yellow" if level == "WARNING" else "red"
    return Text.assemble((f"{at} ", "dim"), (f"{level} {words}", style))


def _server_line(view: RunView, wrong: Sequence[Alarm]) -> Text:
    """Return the line that says whether the server is alive."""
    word = server_in_a_word(view)
    process = "" if view.server is None else f", process {view.server.pid}"
    words = {
        "alive": f"the server is alive{process}: it holds the run's lock",
        "dead": f"the server is DEAD{process}: no process holds the run's lock",
        "ended": "the server has ended",
        "not known": "cannot tell from this machine whether the server is alive",
    }[word]
    style = "bold red" if word == "dead" else "" if word == "not known" else "green"
    for alarm in wrong:
        style = COLOUR[alarm.level] if alarm.name == SERVER_STOPPED else style
    return Text(words, style)


def _numbers(view: RunView, figures: Mapping[str, Any], *, wide: bool) -> Table:
    """Return money, memory and learning, with a curve of each."""
    lines = Table.grid(padding=(0, 2))
    lines.add_column(style="bold", no_wrap=True)
    lines.add_column(no_wrap=True)
    lines.add_column(overflow="fold")
    rounds = without_rounding(view.rounds)
    width = WIDE if wide else NARROW
    curve = partial(bars, width=width)
    lines.add_row(
        "spent",
        curve([row.spent for row in rounds]),
        f"{amount(figures['spent'])} of {amount(figures['allowed'])}, "
        f"{overspend_words(figures['overspend'])}",
    )
    if figures["exposure"]:
        lines.add_row("exposure", "", _exposure_words(figures))
    for name, values in view.metrics.items():
        lines.add_row(
            Text(name),  # clients choose it: no markup
            curve(list(values.values())),
            Text(
                _measured(name, values), style="" if math.isfinite(newest(values)) else "bold red"
            ),
        )
    lines.add_row("price", curve([row.price for row in rounds]), amount(rounds[-1].price))
    lines.add_row(
        "stored",
        curve(
            [row.training_size for row in rounds],
            span=(0, max(max(row.slots, row.training_size) for row in rounds)),
        ),
        f"{figures['stored']:,} of {figures['slots']:,} slots; "
        f"mean {amount(figures['mean_stored'])}, peak {figures['peak_stored']:,}",
    )
    lines.add_row(
        "effective",
        curve(gains([row.effective_samples for row in rounds])),
        f"{amount(figures['effective_samples'])} samples, "
        f"{figures['effective_per_round']:,.3g} a round",
    )
    if max(map(len, [rounds, *view.metrics.values()])) > width:
        lines.add_row("", "", Text(f"curves show the last {width} values at most", "dim"))
    lines.add_row(
        "clients",
        "",
        (
            f"{len(view.clients):,} known, {rounds[-1].answered} of {rounds[-1].orders} replied, "
            f"{rounds[-1].exhausted} bought fewer than ordered"
        )
        + (f", {len(view.retired):,} retired" if view.retired else ""),
    )
    if figures["under_way"]:
        words = (
            f"{counted(figures['under_way'], 'sample')} bought for "
            f"{amount(figures['under_way_spent'])} and not here yet, the oldest since "
            f"{counted(figures['oldest_under_way'], 'round')}"
        )
        lines.add_row("under way", "", words)
    return lines


def _exposure_words(figures: Mapping[str, Any]) -> str:
    """Return what the open orders may have cost, at this moment."""
    return f"up to {amount(figures['exposure'])} more in orders without a reply"


def overspend_words(overspend: float) -> str:
    """Return how far a run is above or under its budget.

    >>> overspend_words(-116.5), overspend_words(12.0)
    ('116.5 under budget', '12 ahead of the budget')
    """
    if not overspend:
        return "on budget"
    if overspend < 0:
        return f"{amount(-overspend)} under budget"
    return f"{amount(overspend)} ahead of the budget"


def summary(view: RunView, now: float) -> dict[str, Any]:
    """Return the same as plain numbers."""
    rounds = without_rounding(view.rounds)
    figures: dict[str, Any] = {
        "run": view.run,
        "title": view.title,
        "policy": view.policy,
        "state": run_state(view, now).words,
        "server": server_in_a_word(view),
        "is_over": view.is_over,
        "rounds_played": len(rounds),
        "num_rounds": view.num_rounds,
        "budget": view.budget,
        "exposure": view.exposure,
        "clients": len(view.clients),
        "away": [client.name for client in view.away],
        "retired": [client.name for client in view.retired],
        "metrics": {
            name: value if math.isfinite(value := newest(values)) else None
            for name, values in view.metrics.items()
        },
    }
    if not rounds:
        return figures
    last, spent = rounds[-1], math.fsum(row.spent for row in rounds)
    stored = [row.training_size for row in rounds]
    in_vain = sum(1 for _ in itertools.takewhile(lambda used: not used, reversed(_averaged(view))))
    failed, error = _newest_failure(view, max(in_vain, 1))
    return figures | {
        "spent": spent,
        "allowed": spent - last.overspend,
        "spent_per_round": spent / len(rounds),
        "overspend": last.overspend,
        "cost_debt": last.cost_debt,
        "certificate_holds": certificate_holds(
            [row.overspend for row in view.rounds],
            [row.cost_debt for row in view.rounds],
            [row.spent for row in view.rounds],
        ),
        "price": last.price,
        "slots": last.slots,
        "stored": stored[-1],
        "mean_stored": sum(stored) / len(stored),
        "peak_stored": max(stored),
        "effective_samples": last.effective_samples,
        "effective_per_round": last.effective_samples / len(rounds),
        "rounds_without_models": in_vain,
        "failed": failed,
        "error": error,
        "buying_paused_for": last.pause,
        "answered": last.answered,
        "orders": last.orders,
        "exhausted": last.exhausted,
        "set_aside": int(last.health.get("set_aside", 0)),
        "under_way": last.under_way,
        "under_way_spent": last.under_way_spent,
        "oldest_under_way": last.oldest_under_way,
        "failing_suppliers": int(last.health.get("failing_suppliers", 0)),
        "full_spools": int(last.health.get("full_spools", 0)),
        "spool_dropped": int(last.health.get("spool_dropped", 0)),
        "empty_clients": last.empty_clients,
        "refunded": last.refunded,
    }


def bars(
    values: Sequence[float], width: int = WIDE, span: tuple[float, float] | None = None
) -> str:
    """Return the last values as bars, scaled to their range or to a given span.

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


def newest(values: Mapping[int, float]) -> float:
    """Return the newest value of a metric."""
    return values[max(values)]


def _measured(name: str, values: Mapping[int, float]) -> str:
    words = f"{newest(values):.4g} in round {max(values):,}"
    if "accuracy" not in name:
        return words  # whether less or more is better, only the app knows
    return f"{words}, highest {max(filter(math.isfinite, values.values()), default=math.nan):.4g}"


def _newest_failure(view: RunView, rounds: int) -> tuple[int, str]:
    """Return how many clients failed in the newest of the last rounds with failures, and how."""
    newest = [view.failures.get(row.round_number, (0, "")) for row in view.rounds[-rounds:]]
    return next((one for one in reversed(newest) if one[0]), (0, ""))


def _averaged(view: RunView) -> list[int]:
    """Return how many models each round averaged."""
    return [view.averaged.get(row.round_number, row.answered) for row in view.rounds]
