"""Forgotten subjects of a device: keyed hashes in a file beside the buffers, without names.

The key is created with the file and stays in it. Whoever has the file can test a guessed name, as
the device itself must be able to; a buffer alone is not enough.
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
from tidegate._internal.sqlite_file import OWNER_ONLY, databases
from tidegate.client.other_files import other_files
from tidegate.errors import ConfigurationError, DamagedFileError

NAME = "forgotten.json"
KEY_BYTES = 32
REMEDY = (
    "restore a copy of it: without it, samples of forgotten subjects would be admitted again. If "
    "there is none, stop the app, delete the folder's buffers, spools and forgotten.json, forget "
    "again everybody on your own list, and only then start the app"
)

NOBODY = "nobody"
"""Instead of a hash, for samples without a subject."""
NAMED = "SELECT 1 FROM samples WHERE subject NOT IN ('', 'nobody') LIMIT 1"
"""Whether a buffer holds the hash of any subject."""

Known = tuple[str, frozenset[str]]
"""The key, in hexadecimal digits, and hashes of all that are forgotten."""


class Forgotten:
    """The subjects that the buffers of a folder no longer admit.

    Args:
        folder: the folder of the buffers.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self._seen: tuple[tuple[int, int, int], Known] | None = None
        """What was last read, and from which file: a change replaces the file."""

    def hash_of(self, subject: str) -> str:
        """Return the hash of a subject; the first call creates the key."""
        known = self.read()
        if known is None:
            self.check()
            with self._alone():
                known = self.read() or self._write((secrets.token_hex(KEY_BYTES), frozenset()))
        return _hash(known, subject)

    def hashes(self) -> frozenset[str]:
        """Return the hashes of all forgotten subjects."""
        known = self.read()
        return frozenset() if known is None else known[1]

    def add(self, subject: str) -> str:
        """Forget a subject, on disk when this returns; return its hash."""
        mine = self.hash_of(subject)
        with self._alone():
            known = self.read()
            if known is not None and mine not in known[1]:
                self._write((known[0], known[1] | {mine}))
        return mine

    def adopt(self, other: "Forgotten") -> None:
        """Take over the key and the forgotten subjects of a folder whose samples come here."""
        if self.path == other.path:
            return
        theirs = other.read()
        if theirs is None:
            other.check()
            return
        if self.read() is None:
            self.check()
        with self._alone():
            known = self.read() or (theirs[0], frozenset())
            if known[0] != theirs[0]:
                raise ConfigurationError(
                    f"{self.path} has another key than {other.path}: the names of people behind "
                    "samples there cannot be told here; keep both runs' buffers in one folder"
                )
            if theirs[1] - known[1] or self.read() is None:
                self._write((known[0], known[1] | theirs[1]))

    def remove(self, subject: str) -> bool:
        """Admit later samples of a subject again; return whether it was forgotten."""
        if self.read() is None:
            self.check()
            return False
        with self._alone():
            known = self.read()
            if known is None or _hash(known, subject) not in known[1]:
                return False
            self._write((known[0], known[1] - {_hash(known, subject)}))
        return True

    def check(self) -> None:
        """Refuse to go on without a list whose key existing hashes were made with."""
        if self.read() is not None:
            return
        for path in databases(self.path.parent):
            uri = f"{path.absolute().as_uri()}?mode=ro"
            for statement in (NAMED, *(others.named for others in other_files())):
                with (
                    suppress(sqlite3.DatabaseError),  # other tables, or not ours
                    closing(sqlite3.connect(uri, uri=True)) as file,
                ):
                    if file.execute(statement).fetchall():
                        raise DamagedFileError(
                            self.path, f"is missing, but {path.name} needs its key", REMEDY
                        )

    def read(self) -> Known | None:
        """Return the file's content; it is parsed only when it changes."""
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
        """Give a file that root creates to the folder's owner: the client must read it."""
        if os.geteuid() == 0:
            about = self.path.parent.stat()
            os.fchown(file, about.st_uid, about.st_gid)


def _hash(known: Known, subject: str) -> str:
    return hmac.digest(bytes.fromhex(known[0]), subject.encode(), "sha256").hex()[:32]
