"""A stream of files that arrive in a folder."""

import fnmatch
from pathlib import Path

from tidegate.client.streams.stream import TakenBefore
from tidegate.errors import ConfigurationError


class FolderStream:
    """Files that arrive in a folder, sorted by name, each as its bytes.

    Names must sort in the order of arrival (a time stamp, a counter with leading zeros): a file
    that sorts before one already taken is never seen. Write elsewhere and rename into the folder,
    so that no half-written file is taken; names that start with a dot are skipped.
    """

    def __init__(self, folder: Path | str, pattern: str = "*") -> None:
        self._folder = Path(folder).expanduser()
        if not self._folder.is_dir():
            raise ConfigurationError(
                f"{folder} is not a folder; create it before the stream is opened"
            )
        self._pattern = pattern
        self._last = ""
        self._waiting: list[str] = []

    @property
    def cursor(self) -> str:
        """The name of the last file taken."""
        return self._last

    def seek(self, cursor: str) -> None:
        """Continue after this file."""
        self._last = cursor
        self._waiting = []

    def skip_taken(self, taken: TakenBefore) -> None:
        """Continue after the last file taken; if it is gone, all files here are fresh.

        Files should leave a folder oldest first. A count of files could skip fresh ones, if those
        that were counted have left.
        """
        names = ["", *self._arrived()]
        known = next((place for place, name in enumerate(names) if taken.is_last(name)), None)
        if known is not None:
            self.seek(names[min(known + taken.after_last, len(names) - 1)])

    def take(self, count: int) -> list[bytes]:
        """Return the next files that have arrived; the folder is listed when none is waiting."""
        if len(self._waiting) < count:
            self._waiting = self._arrived()
        contents: list[bytes] = []
        while self._waiting and len(contents) < count:
            self._last = self._waiting.pop(0)
            contents.append((self._folder / self._last).read_bytes())
        return contents

    def _arrived(self) -> list[str]:
        """Return the names of files that were not taken, in order."""
        return sorted(
            path.name
            for path in self._folder.iterdir()
            if path.name > self._last
            and fnmatch.fnmatch(path.name, self._pattern)
            and not path.name.startswith(".")
            and path.is_file()
        )
