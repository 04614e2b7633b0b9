"""Save policy state, ledger and model of a run, always of the same round.

The model is written before the books that name it; the previous model is deleted after them.
"""

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from flwr.app import ArrayRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from tidegate._internal.arguments import shown
from tidegate._internal.saving import replace_file
from tidegate.errors import ConfigurationError, DamagedFileError, RunDiffersError
from tidegate.flower.flower_internals import app_of, says_stopped, why_it_ends
from tidegate.flower.local_grid import LocalGrid
from tidegate.flower.model_file import read_model, write_model
from tidegate.flower.wrapped_strategies import (
    check_resumable,
    give_back,
    state_of,
    warn_of_what_is_lost,
)
from tidegate.prices import PriceFeed
from tidegate.runs.folder import REMEDY
from tidegate.runs.own_prices import write_prices
from tidegate.runs.server_log import logged
from tidegate.runs.writer import RunWriter
from tidegate.server.controller import Controller
from tidegate.server.fleet import Terms
from tidegate.server.fleet_round import FleetRound
from tidegate.wire import Order


@dataclass(frozen=True)
class Resumed:
    """What a checkpoint restored."""

    controller: Controller
    arrays: ArrayRecord
    rounds: list[FleetRound]


class Checkpoint:
    """The folder of one run."""

    def __init__(self, folder: Path | str) -> None:
        if not isinstance(folder, Path | str) or folder == "":
            raise ConfigurationError(
                f"folder must be a path, such as 'run', got {shown(folder)}; leave it out for a "
                "run that is not saved"
            )
        self._given = Path(folder).expanduser()
        self.folder = self._given.absolute()
        self._books = RunWriter(self.folder)
        self._model = ""
        self._feed: PriceFeed | None = None
        self._grid: LocalGrid | None = None
        """Whose clients are in this process, if they are."""

    @contextmanager
    def held(self, grid: Grid) -> Iterator[None]:
        """Lock the folder against other servers and apps while this process uses it.

        Log records are also written there meanwhile.

        Flower runs a ServerApp in a process that the SuperLink starts, in the SuperLink's working
        directory. A relative folder would depend on where the SuperLink was started, so it is
        refused there.
        """
        app = app_of(grid.run)
        if app and not isinstance(grid, LocalGrid) and not self._given.is_absolute():
            raise ConfigurationError(
                f"folder {str(self._given)!r} is relative and would become {self.folder}, because "
                "Flower's SuperLink was started there; give an absolute path"
            )
        self._grid = grid if isinstance(grid, LocalGrid) else None
        with self._books.held(app), logged(self.folder, why_it_ends, says_stopped):
            yield

    def close(self) -> None:
        """Close the books, if ``held`` does not do it."""
        self._books.close()

    @property
    def buffers(self) -> Path:
        """The folder in which clients in this process keep their samples."""
        return self.folder / "buffers"

    def load(self, terms: Terms, strategy: Strategy, run: str | None = None) -> Resumed | None:
        """Load the run that the folder holds, if any, and give the strategy its state back.

        Args:
            terms: the terms of the run that is starting.
            strategy: the strategy it starts with.
            run: its name, if it was given one.
        """
        self._feed = terms.prices
        saved = self._books.load(terms)
        if saved is None:
            return None
        controller, name = saved
        if run not in (None, controller.run):
            raise RunDiffersError(
                f"the folder holds run {controller.run!r}, not {run!r}; use another folder",
                name="run",
                saved=controller.run,
                given=run,
            )
        if not (self.folder / name).exists():
            raise DamagedFileError(self.folder / name, "is missing", REMEDY)
        arrays, kept = read_model(self.folder / name)
        check_resumable(strategy, kept)
        rounds = self._books.rounds_before(controller.round_number)
        give_back(strategy, kept)
        self._model = name
        for model in self.folder.glob("model-*.npz"):
            if model.name != self._model:
                model.unlink()  # left behind by a server that died while saving
        return Resumed(controller, arrays, rounds)

    def begin(self, controller: Controller, arrays: ArrayRecord, strategy: Strategy) -> None:
        """Save a new run before its first round."""
        warn_of_what_is_lost(strategy)
        with self._saving():
            self._books.begin()
            self._save_model(0, arrays, strategy)
            self.save_control(controller)

    def save_orders(self, controller: Controller, orders: Mapping[str, Order]) -> None:
        """Save the orders of a round before they are sent."""
        with self._saving():
            write_prices(self.folder, controller.round_number, orders, self._feed)
            self.save_control(controller)

    def save_round(
        self, controller: Controller, arrays: ArrayRecord, strategy: Strategy, row: FleetRound
    ) -> None:
        """Save a settled round with the model that it produced."""
        older = self.folder / self._model
        with self._saving():
            self._save_model(row.round_number, arrays, strategy)
            self._books.append(row)
            self.save_control(controller)
            older.unlink(missing_ok=True)

    @contextmanager
    def _saving(self) -> Iterator[None]:
        """Say in a line what to do if the disk is full, or may not be written to any more."""
        try:
            yield
        except (OSError, sqlite3.OperationalError) as wrong:
            raise ConfigurationError(
                f"the run cannot be saved in {self.folder} ({wrong}); free disk space, allow the "
                "server to write there, and start the same run again: it continues with the round "
                "that it was in"
            ) from None

    def save_control(self, controller: Controller) -> None:
        """Save the books with the name of the model that belongs to them."""
        if self._grid is not None:
            self._grid.sync_buffers()
        self._books.save_control(controller, self._model)

    def _save_model(self, round_number: int, arrays: ArrayRecord, strategy: Strategy) -> None:
        self._model = f"model-{round_number:06}.npz"
        kept = state_of(strategy)

        def write(file: IO[bytes]) -> None:
            write_model(file, arrays, kept)

        replace_file(self.folder / self._model, write)
