"""What somebody else may write: a stream and a sink in a package of their own."""

from collections.abc import Mapping

from tidegate.runs.sinks import Moment, Source


class ToyStream:
    """Hands out whole numbers from 0 on."""

    def __init__(self) -> None:
        self._next = 0

    @property
    def cursor(self) -> str:
        """The next number."""
        return str(self._next)

    def seek(self, cursor: str) -> None:
        """Go on with a number."""
        self._next = int(cursor)

    def take(self, count: int) -> list[int]:
        """Hand out the next numbers."""
        first = self._next
        self._next += count
        return list(range(first, self._next))


class ToySink:
    """Writes a line for each round into a file that is named after the sink."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def decided(self, round_number: int, price: float) -> None:
        """Do nothing."""

    def settled(self, moment: Moment) -> None:
        """Note what the round has cost."""
        self._lines.append(f"round {moment.done.round_number}: {moment.done.spent:g}")

    def measured(self, round_number: int, source: Source, metrics: Mapping[str, float]) -> None:
        """Do nothing."""

    def close(self, *, failed: bool) -> None:
        """Write what was noted."""
        with open("toy.log", "w", encoding="utf-8") as log:  # noqa: PTH123
            log.write("\n".join(self._lines))
