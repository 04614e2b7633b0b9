"""Read arrays that begin with the same bytes as the model's own, without parsing them.

NumPy writes a description before an array's numbers, and reads it again with Python's own parser:
for the ten arrays of a small network, this is a third of what a round of Flower costs a server.
Nearly every array of a reply begins with the very bytes of the model's own. Its description is then
known, and neither our check nor the wrapped strategy has to parse it.
"""

from dataclasses import dataclass
from typing import Any, Literal

import flwr.app
import numpy as np
from numpy.typing import NDArray

NUMPY = "numpy.ndarray"
"""What Flower calls arrays that ``np.save`` wrote."""
NUMBERS = "biuf"
"""Kinds of arrays that can be averaged: booleans, integers and real numbers."""
SEEN = "_tidegate_seen"


@dataclass(frozen=True)
class Layout:
    """How the numbers of one of the model's arrays lie in its bytes."""

    head: bytes
    """All bytes before them."""
    length: int
    """Length of all bytes."""
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    order: Literal["C", "F"]

    @classmethod
    def of(cls, array: flwr.app.Array) -> "Layout | None":
        """Return the layout of an array that NumPy wrote, if its numbers can be averaged."""
        try:
            values = array.numpy()
        except Exception:  # a model of another make, which is read array by array
            return None
        plain = array.stype == NUMPY and values.dtype.kind in NUMBERS and values.nbytes > 0
        if not plain or str(values.dtype) != array.dtype:
            return None
        size = len(array.data) - values.nbytes
        order: Literal["C", "F"] = "C" if values.flags.c_contiguous else "F"
        return cls(array.data[:size], len(array.data), values.dtype, values.shape, order)

    def values(self, array: flwr.app.Array) -> NDArray[Any] | None:
        """Return an array's numbers without copying them, if it begins as this one does."""
        data = array.data
        fits = array.stype == NUMPY and len(data) == self.length and data.startswith(self.head)
        if not fits:
            return None
        values = np.frombuffer(data, self.dtype, offset=len(self.head))
        return values.reshape(self.shape, order=self.order)


class Array(flwr.app.Array):
    """Flower's array, which remembers where its numbers lie.

    It has the name of Flower's own class, because Flower marks what it sends by that name.
    """

    def numpy(self) -> NDArray[Any]:
        """Return the array as a NumPy array; a copy, as with Flower's own."""
        data, values = self.__dict__[SEEN]
        if data is self.data and self.stype == NUMPY:
            copied: NDArray[Any] = values.copy(order="K")
            return copied
        return super().numpy()

    def __eq__(self, other: object) -> bool:
        """Return whether two arrays are the same, this one or Flower's own."""
        if not isinstance(other, flwr.app.Array):
            return NotImplemented
        mine, its = ((one.dtype, one.shape, one.stype, one.data) for one in (self, other))
        return mine == its

    __hash__ = None  # type: ignore[assignment]


def remember(array: flwr.app.Array, values: NDArray[Any]) -> None:
    """Let an array remember where its numbers lie, for the next reader."""
    array.__dict__[SEEN] = array.data, values
    array.__class__ = Array
