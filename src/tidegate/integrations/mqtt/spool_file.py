"""A spool's file as everybody needs it who opens one: its state, and letting go."""

import sqlite3
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tidegate._internal.sqlite_file import connect, empty_log, opening, prepare, transaction
from tidegate.client.forgotten import Forgotten
from tidegate.client.limits import Clock
from tidegate.integrations.mqtt.arrivals import Arrivals
from tidegate.integrations.mqtt.messages import KIND, Message


class SpoolFile:
    """The file of a spool; several threads and processes may use it.

    Args:
        path: of the file; it and its folder are created where they are missing.
        clock: says the time.
    """

    def __init__(self, path: Path, clock: Clock = time.time) -> None:
        self.path = path
        self._changed = threading.Condition()
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._connection = connect(self.path, any_thread=True)
        with opening(self._connection, self.path, KIND):
            new = "INSERT INTO state VALUES (1, ?, '', 0, 0, 0, 0, 0, 0, 0, 0)"
            prepare(self._connection, self.path, KIND, (new, (uuid.uuid4().hex[:12],)))
            self._arrivals = Arrivals(self._execute, clock)
            self._forgotten = Forgotten(path.parent)
            self._subject: Callable[[Message], str | None] | None = None
            with transaction(self._connection):
                self._arrivals.begin()
            empty_log(self._connection)  # a process that died may have left deleted messages in it
            self.id = str(self._state("id"))
            """Made up with the file: positions of another one mean nothing here."""

    def close(self) -> None:
        """Close the file."""
        with self._changed:
            self._connection.close()

    def arrived_at(self, position: int) -> int:
        """When a message came, in milliseconds since 1970."""
        with self._changed:
            return self._arrivals.of(position)

    def keep_at_most(self, length: int) -> None:
        """Hold messages for no longer than so many milliseconds from now on; 0 for any time."""
        with self._changed:
            if self._arrivals.keep != length:
                with self._writing():
                    self._arrivals.set_keep(length)

    @property
    def has_limit(self) -> bool:
        """Whether messages may be held for a limited time only."""
        with self._changed:
            return bool(self._arrivals.keep)

    def let_go(self) -> tuple[int, int]:
        """Overwrite messages that were held too long, or are to be forgotten; how many of each."""
        with self._changed:
            return self._let_go()

    def name_subjects(self, subject: Callable[[Message], str | None] | None) -> None:
        """Note whom or what messages are about: those that are there, and those that come.

        Args:
            subject: of a message; empty for nobody, none if it cannot be said. None for an app
                that names no subjects.
        """
        with self._changed:
            self._subject = subject
            unnamed = [] if subject is None else self._arrivals.unnamed()
        if unnamed:
            with self._writing():
                for position in unnamed:
                    self._name(position)

    def _name(self, position: int) -> None:
        found = "SELECT topic, payload FROM messages WHERE position = ?"
        for topic, payload in self._execute(found, (position,)).fetchall():
            whose = self._whose(Message(topic, payload))
            if whose is not None:
                self._arrivals.name(position, whose)

    def _whose(self, message: Message) -> str | None:
        """The keyed hash of a message's subject; empty for nobody, none if nobody can say."""
        if self._subject is None:
            return None
        named = self._subject(message)
        return self._forgotten.hash_of(named) if named else named

    def unnamed(self) -> int:
        """Messages of which nobody said whose they are."""
        with self._changed:
            return len(self._arrivals.unnamed())

    def empty_log(self) -> bool:
        """Wait until nothing of what was deleted is left; false if somebody kept reading."""
        with self._changed:
            return empty_log(self._connection, wait=True)

    def held(self) -> int:
        """Messages that are in it."""
        with self._changed:
            return int(self._state("waiting"))

    def _let_go(self) -> tuple[int, int]:
        with transaction(self._connection):
            gone = self._arrivals.let_go(self._forgotten.hashes())
        empty_log(self._connection)
        return gone

    def _execute(self, statement: str, values: tuple[object, ...] = ()) -> sqlite3.Cursor:
        return self._connection.execute(statement, values)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """One thread and one transaction at a time; who waits is woken afterwards."""
        with self._changed:
            with transaction(self._connection):
                yield
            self._changed.notify_all()

    def _state(self, name: str) -> Any:
        ((value,),) = self._execute(f"SELECT {name} FROM state")  # noqa: S608 - a column's name
        return value
