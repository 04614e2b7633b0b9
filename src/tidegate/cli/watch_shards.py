"""``tidegate watch --shards``: watch all servers that share one budget live."""

import json
import time
from collections.abc import Callable
from contextlib import ExitStack

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from tidegate._internal.guests import guest
from tidegate.errors import SupplierError
from tidegate.report.shards_live import shards_summary, shards_view
from tidegate.server.shards import Meeting

ENVIRONMENT = "env"
"""Instead of a service's name: only the PG* variables."""


def meeting_of(service: str) -> Meeting:
    """Return the meeting place that a word of the command line names."""
    meeting: Meeting = guest("tidegate.meetings", "postgres")(
        None if service == ENVIRONMENT else service
    )
    return meeting


def show_once(meeting: Meeting, run: str, out: Console, *, as_json: bool) -> None:
    """Show the shards now."""
    view = meeting.look(run)
    if as_json:
        typer.echo(json.dumps(shards_summary(view, time.time()), indent=2))
    else:
        out.print(shards_view(view, time.time()))


def show_on(
    meeting: Meeting, run: str, out: Console, *, port: int | None, nap: Callable[[], bool]
) -> None:
    """Show the shards repeatedly, on a screen if there is one, and for Prometheus if asked.

    Args:
        meeting: where they meet.
        run: its name.
        out: where to show them.
        port: for Prometheus; None to serve no metrics.
        nap: waits for the next look; returns whether there is one.
    """
    with ExitStack() as opened:
        if port is not None:
            exporter = guest("tidegate.exporters", "prometheus")(meeting, run, port)
            opened.callback(exporter.close)
            out.print(f"metrics at http://127.0.0.1:{exporter.port}/metrics", highlight=False)
        live = opened.enter_context(Live(console=out, auto_refresh=False))
        looking = out.is_terminal
        while True:
            if looking:
                try:
                    live.update(shards_view(meeting.look(run), time.time()), refresh=True)
                except SupplierError as failure:
                    live.update(Text(str(failure)), refresh=True)
            if not nap():
                return
