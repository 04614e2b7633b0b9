"""``tidegate watch --shards``: all servers that share one budget, live."""

import json
import time
from collections.abc import Callable
from contextlib import ExitStack

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from tidegate.errors import SupplierError
from tidegate.report.shards_live import shards_summary, shards_view
from tidegate.server.shards import Meeting

ENVIRONMENT = "env"
"""In place of a service's name: the PG* variables alone."""


def meeting_of(service: str) -> Meeting:
    """Where the shards meet, by the word of the command line."""
    from tidegate.server.shards.postgres import PostgresMeeting  # noqa: PLC0415 - an extra

    return PostgresMeeting(None if service == ENVIRONMENT else service)


def show_once(meeting: Meeting, run: str, out: Console, *, as_json: bool) -> None:
    """The shards now."""
    view = meeting.look(run)
    if as_json:
        typer.echo(json.dumps(shards_summary(view, time.time()), indent=2))
    else:
        out.print(shards_view(view, time.time()))


def show_on(
    meeting: Meeting, run: str, out: Console, *, port: int | None, nap: Callable[[], bool]
) -> None:
    """The shards again and again, on a screen if there is one, and for Prometheus if asked.

    Args:
        meeting: where they meet.
        run: its name.
        out: where to show them.
        port: for Prometheus; none serves nobody.
        nap: waits for the next look; whether there is one.
    """
    with ExitStack() as opened:
        if port is not None:
            from tidegate.runs.sinks.shards import ShardsExporter  # noqa: PLC0415 - an extra

            exporter = ShardsExporter(meeting, run, port)
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
