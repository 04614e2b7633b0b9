"""``tidegate watch``: watch a running federation live."""

import json
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer
from rich.live import Live
from rich.text import Text

from tidegate.cli.running import WIDE, AsJson, screen
from tidegate.cli.watch_shards import meeting_of, show_on, show_once
from tidegate.errors import ConfigurationError
from tidegate.report.alarms import alarms
from tidegate.report.live import live_view, summary
from tidegate.report.run_state import run_state
from tidegate.runs.lock import read_watched
from tidegate.runs.reader import RunView
from tidegate.runs.server_log import last_lines
from tidegate.server.shards import Meeting

NAP = 0.1
"""Most seconds until Ctrl-C is noticed."""
LOG_LINES = 5


def watch(
    folder: Annotated[
        Path,
        typer.Argument(
            help="The folder that the server saves the run to; with --shards, the run's name."
        ),
    ],
    *,
    shards: Annotated[
        str | None,
        typer.Option(
            help="All servers of a run that meet in PostgreSQL: the section of the connection "
            "service file, or env for the PG* variables."
        ),
    ] = None,
    prometheus: Annotated[
        int | None,
        typer.Option(min=0, max=65_535, help="With --shards: a port to serve /metrics on."),
    ] = None,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two updates.")] = 1.0,
    once: Annotated[
        bool,
        typer.Option("--once", help="Show the run once, and exit with 1 if anything is red."),
    ] = False,
    log_lines: Annotated[
        int, typer.Option("--log", min=0, help="Lines of the server's log to show.")
    ] = LOG_LINES,
    as_json: AsJson = False,
) -> None:
    """Show a run while it goes on: money, memory, accuracy, who is away, what to do.

    FOLDER is what `AdmissionControl(folder=...)` saves to, on this machine or on a disk that it
    shares with the server. Watching changes nothing there, needs no Flower, and continues when the
    server stops and starts again. It ends with the run, or with Ctrl-C.

    Green: all is well. Yellow: look at it. Red: act; the lines below say how. If the server ran on
    this machine, the command tells a dead server from slow clients at once, by the lock that a
    server holds while it lives. The guide "When something is red" explains each name in capitals.
    With `--once` the command exits with 1 if anything is red, also with `--json`; else with 0.

    A run in one terminal, and this in another:

        tidegate run my-fleet --set folder=run

        tidegate watch run

    Its numbers now, for a script:

        tidegate watch run --json

    All servers that share a budget, read from the database that they meet in:

        tidegate watch fleet --shards tidegate
    """
    if shards is not None:
        _watch_shards(meeting_of(shards), str(folder), every, prometheus, once, as_json)
        return
    if prometheus is not None:
        raise ConfigurationError(
            "--prometheus needs --shards; for a single server, pass AdmissionControl the sink "
            "Prometheus()"
        )
    out = screen()
    if as_json or once or not sys.stdout.isatty():
        seen = read_watched(folder)
        facts = _facts(seen, log_lines)
        if as_json:
            typer.echo(json.dumps(facts, indent=2))
        else:
            out.print(live_view(seen, wide=out.width >= WIDE, log=facts["log"]))
        if once and any(alarm["level"] == "red" for alarm in facts["alarms"]):
            raise typer.Exit(1)
        return
    with _asked_to_stop() as asked, Live(console=out, auto_refresh=False) as live:
        while not asked:
            view = _look(folder, live, log_lines)
            if view is not None and view.is_over:
                return
            _nap(asked, every)


def _watch_shards(
    meeting: Meeting, run: str, every: float, port: int | None, once: bool, as_json: bool
) -> None:
    """Watch several servers; with Prometheus it does not stop by itself."""
    out = screen()
    if as_json or once or (port is None and not sys.stdout.isatty()):
        show_once(meeting, run, out, as_json=as_json)
        return
    with _asked_to_stop() as asked:
        show_on(meeting, run, out, port=port, nap=lambda: _nap(asked, every))


def _nap(asked: list[int], seconds: float) -> bool:
    """Wait until the next look; return whether there is one."""
    next_look = time.monotonic() + seconds
    while not asked and (left := next_look - time.monotonic()) > 0:
        time.sleep(min(left, NAP))
    return not asked


@contextmanager
def _asked_to_stop() -> Iterator[list[int]]:
    """Note the first Ctrl-C, which could get lost if it were raised while drawing."""
    asked: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)


def _facts(view: RunView, log_lines: int) -> dict[str, Any]:
    """Return what is shown as plain values."""
    now = time.time()
    told = summary(view, now)
    found = [asdict(alarm) for alarm in alarms(view, told, run_state(view, now))]
    return told | {"alarms": found, "log": last_lines(view.folder, log_lines)}


def _look(folder: Path, live: Live, log_lines: int) -> RunView | None:
    """Show the run now; a folder may have none before the first start."""
    try:
        view = read_watched(folder)
    except ConfigurationError:
        live.update(Text(f"waiting for a run in {folder}"), refresh=True)
        return None
    wide, log = live.console.width >= WIDE, last_lines(folder, log_lines)
    live.update(live_view(view, wide=wide, log=log), refresh=True)
    return view
