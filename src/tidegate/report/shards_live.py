"""The view of a run with several servers in a terminal."""

import math
from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tidegate.report.tables import amount
from tidegate.server.shards import MeetingView, ShardView

SECONDS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))
COLUMNS = ("shard", "round", "heard", "fleet", "granted", "spent", "worth", "promised", "effective")


def shards_view(view: MeetingView, now: float) -> RenderableType:
    """Return a table of all shards, and their sums.

    Args:
        view: the shards in the database.
        now: the time, in seconds since 1970.
    """
    table = Table(box=None, padding=(0, 2), header_style="bold")
    for name in COLUMNS:
        table.add_column(name, justify="left" if name == "shard" else "right", no_wrap=True)
    for one in view.shards:
        table.add_row(
            Text(one.shard),
            str(one.round_number),
            _ago(one, now),
            f"{one.fleet:,}",
            amount(one.granted),
            amount(one.spent),
            "-" if one.shadow_price is None else f"{one.shadow_price:.3g}",
            f"to {one.promised_until}",
            amount(one.effective_samples),
        )
    allowed = view.budget * view.round_number
    told = (
        f"{amount(view.spent)} spent and {amount(view.granted)} granted of {amount(allowed)}, "
        f"{amount(view.effective_samples)} effective samples"
    )
    if view.granted > allowed:
        told += "; MORE WAS GRANTED THAN THE BUDGET"
    title = Text(f"run {view.run}: {len(view.shards)} shards, round {view.round_number} is divided")
    return Panel(Group(Text(told), table), title=title, title_align="left")


def shards_summary(view: MeetingView, now: float) -> dict[str, Any]:
    """Return the same as plain numbers."""
    return {
        "run": view.run,
        "budget": view.budget,
        "round_divided": view.round_number,
        "allowed": view.budget * view.round_number,
        "granted": view.granted,
        "spent": view.spent,
        "effective_samples": view.effective_samples,
        "shards": {
            one.shard: {
                **{name: value for name, value in asdict(one).items() if name != "shard"},
                "seconds_since_heard": None if one.heard is None else now - one.heard,
            }
            for one in view.shards
        },
    }


def _ago(one: ShardView, now: float) -> str:
    """Return how long ago a shard reported, in one unit."""
    if one.heard is None:
        return "never"
    seconds = max(now - one.heard, 0.0)
    size, name = next((unit for unit in SECONDS if seconds >= unit[0]), SECONDS[-1])
    return f"{math.floor(seconds / size)} {name} ago"
