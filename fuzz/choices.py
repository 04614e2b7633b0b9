"""Decisions drawn from fuzzed bytes, so that a mutation of bytes is a mutation of decisions."""

import copy
import json
import math
from collections.abc import Sequence
from typing import Any, TypeVar

Option = TypeVar("Option")

DEEP = "@deep@"
"""Stands for a list nested deeper than any parser may follow; the encoder could not write it."""

AWKWARD: tuple[Any, ...] = (
    *(None, True, False, [], {}, [[]], {"": None}, [1.0, 2.0], [0, 1], DEEP),
    *(0, 1, 2, 3, -1, 7, 2**31 - 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 2**64, 10**400),
    *(0.0, -0.0, 0.5, 1.0, 2.0, 1e-320, 1e15, 1e16, 1e308, -1.0, math.nan, math.inf, -math.inf),
    *("", "r", "site", "k_step", "oldest_first", "0", "-1", "1e9", "nan", "../x", "/", "."),
    *("\0", "\n", "\ud800", "\x1b[2J", "\u202e", "é" * 201, "a" * 200, "a" * 100_001),
)
"""Values that parsers stumble over."""


class Choices:
    """Reads bytes as decisions; where they end, every decision is the first option."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._place = 0

    def number(self, most: int) -> int:
        """From 0 to ``most``."""
        size = (most.bit_length() + 7) // 8
        taken = self._data[self._place : self._place + size]
        self._place += size
        return int.from_bytes(taken, "little") % (most + 1)

    def pick(self, options: Sequence[Option]) -> Option:
        """One of some."""
        return options[self.number(len(options) - 1)]

    def rest(self) -> bytes:
        """All that is left."""
        taken = self._data[self._place :]
        self._place = len(self._data)
        return taken

    def value(self) -> Any:
        """Anything that JSON can hold."""
        kind = self.number(7)
        if kind == 0:
            return self.number(2**64)
        if kind == 1:
            return self.number(2**16) / 16
        if kind == 2:
            length = self.number(40)
            taken = self._data[self._place : self._place + length]
            self._place += length
            return taken.decode("utf-8", "replace")
        return copy.deepcopy(self.pick(AWKWARD))

    def edited(self, tree: Any, most: int = 3) -> Any:
        """A copy of JSON content with some parts replaced, removed or added."""
        tree = copy.deepcopy(tree)
        for _ in range(self.number(most)):
            tree = self._edited_once(tree)
        return tree

    def _edited_once(self, tree: Any) -> Any:
        places: list[Any] = list(tree) if isinstance(tree, dict) else []
        places = list(range(len(tree))) if isinstance(tree, list) else places
        what = self.number(15)
        if not places or what == 0:
            return self.value()
        place = self.pick(places)
        if what == 1:
            del tree[place]
        elif what == 2 and isinstance(tree, dict):
            tree[str(self.value())[:50]] = self.value()
        else:
            tree[place] = self._edited_once(tree[place])
        return tree


def text_of(tree: Any) -> str:
    """JSON content as a text, with lists nested as deep as they were asked to be."""
    return json.dumps(tree).replace(json.dumps(DEEP), "[" * 50_000 + "]" * 50_000)
