"""``tidegate watch``: a running federation, live."""

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
from tidegate.errors import ConfigurationError
from tidegate.report.alarms import alarms
from tidegate.report.live import live_view, summary
from tidegate.report.run_state import run_state
from tidegate.runs.lock import read_watched
from tidegate.runs.reader import RunView
from tidegate.runs.server_log import last_lines

NAP = 0.1
"""Seconds after which Ctrl-C is noticed, at most."""
LOG_LINES = 5


def watch(
    folder: Annotated[Path, typer.Argument(help="The folder that the server saves the run to.")],
    *,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Look once, and stop.")] = False,
    log_lines: Annotated[
        int, typer.Option("--log", min=0, help="Lines of the server's log to show.")
    ] = LOG_LINES,
    as_json: AsJson = False,
) -> None:
    """Show a run while it goes on: money, memory, learning, who is away, and what to do.

    FOLDER is what `AdmissionControl(folder=...)` saves to, on this machine or on a disk that it
    shares with the server. Watching changes nothing there, needs no Flower, and goes on when the
    server stops and starts again. It ends with the run, or with Ctrl-C.

    Green: all is well. Yellow: look at it. Red: do something; what to do stands below. A server
    that has died is told from slow clients at once, by the lock that it holds while it lives, if it
    ran on this machine. Each name in capitals is explained in the guide "When something is red".

    A run in one terminal, and this in another:

        tidegate run my-fleet --set folder=run

        tidegate watch run

    Its numbers now, for a script:

        tidegate watch run --json
    """
    if as_json:
        typer.echo(json.dumps(_facts(read_watched(folder), log_lines), indent=2))
        return
    out = screen()
    if once or not sys.stdout.isatty():
        log = last_lines(folder, log_lines)
        out.print(live_view(read_watched(folder), wide=out.width >= WIDE, log=log))
        return
    with _asked_to_stop() as asked, Live(console=out, auto_refresh=False) as live:
        while not asked:
            view = _look(folder, live, log_lines)
            if view is not None and view.is_over:
                return
            next_look = time.monotonic() + every
            while not asked and (left := next_look - time.monotonic()) > 0:
                time.sleep(min(left, NAP))


@contextmanager
def _asked_to_stop() -> Iterator[list[int]]:
    """Notes the first Ctrl-C, which could get lost if it were raised while something is drawn."""
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
    """What is shown, as plain values."""
    now = time.time()
    told = summary(view, now)
    found = [asdict(alarm) for alarm in alarms(view, told, run_state(view, now))]
    return told | {"alarms": found, "log": last_lines(view.folder, log_lines)}


def _look(folder: Path, live: Live, log_lines: int) -> RunView | None:
    """Show what is there now; nothing is there before the first start."""
    try:
        view = read_watched(folder)
    except ConfigurationError:
        live.update(Text(f"waiting for a run in {folder}"), refresh=True)
        return None
    wide, log = live.console.width >= WIDE, last_lines(folder, log_lines)
    live.update(live_view(view, wide=wide, log=log), refresh=True)
    return view
