"""Arrays that begin as the model's do: their numbers are read where they lie.

NumPy writes a description before an array's numbers, and reads it again with Python's own parser:
for the ten arrays of a small network that is a third of what a round of Flower's costs a server.
Nearly every array of a reply begins with the very bytes that the model's own does; then the
description is known, and neither our check nor the wrapped strategy has to parse it.
"""

from dataclasses import dataclass
from typing import Any, Literal

import flwr.app
import numpy as np
from numpy.typing import NDArray

NUMPY = "numpy.ndarray"
"""What Flower calls arrays that ``np.save`` wrote."""
NUMBERS = "biuf"
"""Kinds of arrays that can be averaged: truth values, whole and real numbers."""
SEEN = "_tidegate_seen"


@dataclass(frozen=True)
class Layout:
    """How the numbers of one of the model's arrays lie in its bytes."""

    head: bytes
    """All that stands before them."""
    length: int
    """Of the bytes in all."""
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    order: Literal["C", "F"]

    @classmethod
    def of(cls, array: flwr.app.Array) -> "Layout | None":
        """The layout of an array that NumPy wrote, if it holds numbers that can be averaged."""
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
        """An array's numbers without a copy of them, if it begins as this one does."""
        data = array.data
        fits = array.stype == NUMPY and len(data) == self.length and data.startswith(self.head)
        if not fits:
            return None
        values = np.frombuffer(data, self.dtype, offset=len(self.head))
        return values.reshape(self.shape, order=self.order)


class Array(flwr.app.Array):
    """Flower's array, which knows where its numbers lie.

    It has the name of Flower's own, because that is how Flower marks what it sends.
    """

    def numpy(self) -> NDArray[Any]:
        """The array as a NumPy array, a copy as Flower's own gives."""
        data, values = self.__dict__[SEEN]
        if data is self.data and self.stype == NUMPY:
            copied: NDArray[Any] = values.copy(order="K")
            return copied
        return super().numpy()

    def __eq__(self, other: object) -> bool:
        """Whether two arrays are the same, this one or Flower's own."""
        if not isinstance(other, flwr.app.Array):
            return NotImplemented
        mine, its = ((one.dtype, one.shape, one.stype, one.data) for one in (self, other))
        return mine == its

    __hash__ = None  # type: ignore[assignment]


def remember(array: flwr.app.Array, values: NDArray[Any]) -> None:
    """Let an array know where its numbers lie: whoever reads it next need not look again."""
    array.__dict__[SEEN] = array.data, values
    array.__class__ = Array
