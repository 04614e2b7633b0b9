"""Write the folder of a run: books and rows, always of the same round.

The books change in one transaction, after everything that they refer to is on disk: once when a
round is decided, so that a server that dies afterwards sends the same orders again, and once when
it is settled.
"""

import contextlib
import dataclasses
import json
import os
import re
import reprlib
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO

from tidegate._internal.saving import replace_file
from tidegate._internal.sqlite_errors import is_busy
from tidegate.errors import ConfigurationError, DamagedFileError, RunDiffersError
from tidegate.runs.books import RunBooks
from tidegate.runs.folder import (
    BOOKS,
    LOCK,
    METRICS,
    PRICES,
    REMEDY,
    RETIRED,
    ROUNDS,
)
from tidegate.runs.reader import settled_rounds
from tidegate.server.controller import Controller
from tidegate.server.fleet import Terms
from tidegate.server.fleet_round import FleetRound

MODEL_NAME = re.compile(r"model-\d{6,20}\.npz", re.ASCII)


class RunWriter:
    """Books and rows of one run; the caller writes the model that they name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._app = ""
        self._file: RunBooks | None = None

    @contextmanager
    def held(self, app: str = "") -> Iterator[None]:
        """Lock the folder against other servers; the lock ends with the process.

        Args:
            app: the name of the app; other apps cannot resume the run.
        """
        self._app = app
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            raise ConfigurationError(
                f"folder={str(self._folder)!r} is a file; give a folder, which is created if it "
                "does not exist"
            ) from None
        except OSError as wrong:
            raise ConfigurationError(
                f"folder={str(self._folder)!r} cannot be created ({wrong.strerror}); choose one "
                "where the server may write"
            ) from wrong
        with contextlib.ExitStack() as opened:
            try:
                lock = sqlite3.connect(self._folder / LOCK, timeout=0, isolation_level=None)
                opened.enter_context(closing(lock)).execute("BEGIN EXCLUSIVE")
            except sqlite3.DatabaseError as wrong:
                if is_busy(wrong):
                    raise ConfigurationError(
                        f"another run is using {self._folder}; wait for it, or use another folder"
                    ) from None
                raise ConfigurationError(
                    f"folder={str(self._folder)!r} cannot be written to ({wrong}); free disk "
                    "space, allow the server to write there, or use another folder"
                ) from wrong
            opened.callback(self.close)
            yield

    def close(self) -> None:
        """Close the books; what was saved stays saved."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def load(self, terms: Terms) -> tuple[Controller, str] | None:
        """Load the books in the folder, if any, and the name of their model."""
        path, rows = self._folder / BOOKS, self._folder / ROUNDS
        saved = self._books.load(terms) if path.exists() else None
        if saved is None:
            if rows.exists() and rows.stat().st_size:
                raise DamagedFileError(path, f"is missing, but {rows} belongs to a run", REMEDY)
            return None
        if not MODEL_NAME.fullmatch(saved.model):
            reason = f"is damaged (it names a model {reprlib.repr(saved.model)})"
            raise DamagedFileError(path, reason, REMEDY)
        if saved.app and self._app not in ("", saved.app):
            raise RunDiffersError(
                f"{self._folder} holds a run of the app {reprlib.repr(saved.app)}, but this is "
                f"{self._app!r}; use another folder",
                name="app",
                saved=saved.app,
                given=self._app,
            )
        self._app = self._app or saved.app
        return Controller.resumed(saved.standing), saved.model

    @property
    def _books(self) -> RunBooks:
        if self._file is None:
            self._file = RunBooks(self._folder / BOOKS)
        return self._file

    def begin(self) -> None:
        """Save a new run before its first round."""
        (self._folder / ROUNDS).write_bytes(b"")
        for name in (METRICS, PRICES, RETIRED):
            (self._folder / name).unlink(missing_ok=True)

    def save_control(self, controller: Controller, model: str) -> None:
        """Save the books, and the name of the model that belongs to them."""
        self._books.save(controller.standing, model, self._app)

    def append(self, row: FleetRound) -> None:
        """Append a row, which is on disk when this returns."""
        with (self._folder / ROUNDS).open("a") as file:
            file.write(_line(row))
            file.flush()
            os.fsync(file.fileno())

    def rounds_before(self, round_number: int) -> list[FleetRound]:
        """Return the rows of settled rounds; drop the row of an unsettled one from the file."""
        path = self._folder / ROUNDS
        if not path.exists():
            raise DamagedFileError(path, "is missing", REMEDY)
        rounds = settled_rounds(path, round_number - 1)
        text = "".join(map(_line, rounds))

        def write(file: IO[bytes]) -> None:
            file.write(text.encode())

        replace_file(path, write)
        return rounds


def _line(row: FleetRound) -> str:
    """Return one line of ``rounds.jsonl``."""
    return json.dumps(dataclasses.asdict(row)) + "\n"
