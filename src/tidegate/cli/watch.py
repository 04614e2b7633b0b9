"""``tidegate watch``: a running federation, live."""

import json
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from rich.console import RenderableType
from rich.live import Live
from rich.text import Text

from tidegate.cli.running import WIDE, AsJson, screen
from tidegate.report.live import live_view, summary
from tidegate.runs.folder import holds_run
from tidegate.runs.reader import RunView, read_run

NAP = 0.1
"""Seconds after which Ctrl-C is noticed, at most."""


def watch(
    folder: Annotated[Path, typer.Argument(help="The folder that the server saves the run to.")],
    *,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Look once, and stop.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show a run while it goes on: money, memory, learning, and who is away.

    FOLDER is what `AdmissionControl(folder=...)` saves to, on this machine or on a disk that it
    shares with the server. Watching changes nothing there, needs no Flower, and goes on when the
    server stops and starts again. It ends with the run, or with Ctrl-C.

    A run in one terminal, and this in another:

        tidegate run my-fleet --set folder=run

        tidegate watch run

    Its numbers now, for a script:

        tidegate watch run --json
    """
    if as_json:
        typer.echo(json.dumps(summary(read_run(folder), time.time()), indent=2))
        return
    out = screen()
    if once or not sys.stdout.isatty():
        out.print(live_view(read_run(folder), wide=out.width >= WIDE))
        return
    with _asked_to_stop() as asked, Live(console=out, auto_refresh=False) as live:
        while not asked:
            view = _look(folder, live)
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


def _look(folder: Path, live: Live) -> RunView | None:
    """Show what is there now; nothing is there before the first start."""
    view, shown = None, None
    if holds_run(folder):
        view = read_run(folder)
        shown = live_view(view, wide=live.console.width >= WIDE)
    waiting: RenderableType = Text(f"waiting for a run in {folder}")
    live.update(shown or waiting, refresh=True)
    return view
