"""Who is forgotten on a device: keyed hashes in a file beside the buffers, and no names.

The key is made up with the file and stays in it. Who has the file can check a guess of a name, as
the device itself must be able to; who has only a buffer cannot.
"""

import fcntl
import hmac
import json
import os
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import IO

from tidegate._internal.saving import reading, replace_file
from tidegate._internal.sqlite_file import OWNER_ONLY
from tidegate.errors import DamagedFileError

NAME = "forgotten.json"
KEY_BYTES = 32
REMEDY = "put a copy of it back: without it subjects that were forgotten are taken in again"

NOBODY = "nobody"
"""In place of a hash, for what is about nobody."""
NAMED = (
    "SELECT 1 FROM origins WHERE subject NOT IN ('', ?) LIMIT 1",
    "SELECT 1 FROM arrivals WHERE subject NOT IN ('', ?) LIMIT 1",
)
"""Whether a buffer, or a spool, holds the hash of any subject."""

Known = tuple[str, frozenset[str]]
"""The key, in hexadecimal digits, and hashes of all that are forgotten."""


class Forgotten:
    """The subjects that the buffers of a folder no longer take in.

    Args:
        folder: that the buffers lie in.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self._seen: tuple[tuple[int, int, int], Known] | None = None
        """What was read last, and of which file: a changed one is another file."""

    def hash_of(self, subject: str) -> str:
        """How a subject is known here; the first one that is asked for makes the key."""
        known = self._read()
        if known is None:
            self._check_new()
            with self._alone():
                known = self._read() or self._write((secrets.token_hex(KEY_BYTES), frozenset()))
        return _hash(known, subject)

    def hashes(self) -> frozenset[str]:
        """All that are forgotten."""
        known = self._read()
        return frozenset() if known is None else known[1]

    def add(self, subject: str) -> str:
        """Forget a subject; on disk when this returns. Its hash."""
        mine = self.hash_of(subject)
        with self._alone():
            known = self._read()
            if known is not None and mine not in known[1]:
                self._write((known[0], known[1] | {mine}))
        return mine

    def _check_new(self) -> None:
        """Refuse to make another key where hashes were made with one that is lost."""
        for path in sorted(self.path.parent.glob("*.sqlite")):
            uri = f"{path.absolute().as_uri()}?mode=ro"
            for statement in NAMED:
                with (
                    suppress(sqlite3.DatabaseError),  # other tables, or not ours
                    closing(sqlite3.connect(uri, uri=True)) as file,
                ):
                    if file.execute(statement, (NOBODY,)).fetchall():
                        raise DamagedFileError(
                            self.path, f"is missing, and {path.name} needs the key in it", REMEDY
                        )

    def _read(self) -> Known | None:
        """What the file says; it is asked for with every sample, and parsed when it is another."""
        try:
            with self.path.open("rb") as file:
                about = os.fstat(file.fileno())
                mark = about.st_ino, about.st_mtime_ns, about.st_size
                if self._seen is not None and self._seen[0] == mark:
                    return self._seen[1]
                text = file.read()
        except FileNotFoundError:
            return None
        with reading(self.path, REMEDY):
            told = json.loads(text.decode())
            known = bytes.fromhex(told["key"]).hex(), frozenset(map(str, told["forgotten"]))
        self._seen = mark, known
        return known

    def _write(self, known: Known) -> Known:
        text = json.dumps({"key": known[0], "forgotten": sorted(known[1])}, indent=2)

        def write(file: IO[bytes]) -> None:
            os.fchmod(file.fileno(), OWNER_ONLY)
            self._give_to_owner(file.fileno())
            file.write(text.encode())

        replace_file(self.path, write)
        return known

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One process at a time."""
        lock = os.open(self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, OWNER_ONLY)
        try:
            self._give_to_owner(lock)
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _give_to_owner(self, file: int) -> None:
        """A file that root makes belongs to whose folder it is: the client must read it."""
        if os.geteuid() == 0:
            about = self.path.parent.stat()
            os.fchown(file, about.st_uid, about.st_gid)


def _hash(known: Known, subject: str) -> str:
    return hmac.digest(bytes.fromhex(known[0]), subject.encode(), "sha256").hex()[:32]
