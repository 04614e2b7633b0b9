"""Samples that are read from a device's file when they are asked for."""

import json
import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NoReturn, overload

import numpy as np

from tidegate.client.codec import SampleCodec
from tidegate.client.device_file import DeviceFile
from tidegate.errors import ConfigurationError, SampleGoneError

MOST_AT_ONCE = 32
BYTES_AT_ONCE = 8_000_000
"""What iterating reads at once: as many samples, or as many bytes, if that is less."""

Transform = Callable[[Any], Any]


class Samples(Sequence[Any]):
    """A list of samples that holds none of them in memory, and a data set for a ``DataLoader``.

    Which samples belong to it is fixed; each is read, and transformed, whenever it is asked for. A
    slice is one of these, too. Worker processes of a ``DataLoader`` open the file themselves.

    Args:
        reader: of the device's file.
        codec: that packed the samples.
        items: numbers of samples in the file, or packed samples.
        transform: called with each sample that is read, such as a random augmentation.
    """

    def __init__(
        self,
        reader: "Reader",
        codec: SampleCodec,
        items: Sequence[int | bytes],
        transform: Transform | None = None,
    ) -> None:
        self._reader = reader
        self._codec = codec
        self._items = items
        self._transform = transform
        self.stored: Samples | None = None
        """Of candidates: what the client stores, for a ranking by it."""

    def transformed(self, transform: Transform) -> "Samples":
        """Return the same samples, with a function that is called with each one that is read."""
        return self._like(self._items, transform)

    def close(self) -> None:
        """Refuse to read more: the round is over."""
        self._reader.close()
        if self.stored is not None:
            self.stored.close()

    def as_arrays(self) -> Any:
        """Stack all samples in memory.

        Returns:
            For samples that are tuples or dictionaries, a tuple or dictionary with an array for
            each of their fields; else one array.
        """
        return _stacked(list(self))

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> "Samples": ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return self._like(self._items[index], self._transform)
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Return a batch; torch's loaders ask for it in this way."""
        return self._read([self._items[index] for index in indices])[0]

    def __iter__(self) -> Iterator[Any]:
        begin, count = 0, 1
        while begin < len(self):
            samples, size = self._read(self._items[begin : begin + count])
            yield from samples
            begin += count
            fits = BYTES_AT_ONCE * count // max(size, 1)
            count = max(min(MOST_AT_ONCE, fits, 2 * count), 1)

    def _read(self, items: Sequence[int | bytes]) -> tuple[list[Any], int]:
        """Return samples, and how many bytes they were; each is another object."""
        size, samples = 0, list[Any]([None]) * len(items)
        places: dict[int, list[int]] = {}
        for place, item in enumerate(items):
            if isinstance(item, int):
                places.setdefault(item, []).append(place)
            else:
                samples[place] = self._codec.decode(item)
        for number, packed in self._reader.read(places):
            for place in places.pop(number):
                samples[place] = self._codec.decode(packed)
            size += len(packed)
        if places:
            self._reader.refuse(places)
        if self._transform is not None:
            samples = [self._transform(sample) for sample in samples]
        return samples, size

    def _like(self, items: Sequence[int | bytes], transform: Transform | None) -> "Samples":
        return Samples(self._reader, self._codec, items, transform)


class Reader:
    """Reads contents in whatever process and thread it is asked to.

    Args:
        file: the device's file, whose own connection reads where it was opened.
    """

    def __init__(self, file: DeviceFile) -> None:
        self._path = file.path
        self._in_memory = file if file.is_in_memory else None
        self._opened = {_place(): file}
        """By process and thread: connections cross neither."""
        self._own = list[DeviceFile]()
        """Those that are not the store's."""
        self._is_over = False

    def read(self, numbers: Collection[int]) -> Iterator[tuple[int, bytes]]:
        """Yield numbers of samples and their contents one by one, without those that are gone."""
        if self._is_over:
            raise ConfigurationError(
                "these samples belong to a round that is over; ask gate.samples(context) for those "
                "of the present round"
            )
        if numbers:
            yield from self._file().contents.read(numbers)

    def refuse(self, missing: Collection[int]) -> NoReturn:
        """Say why samples have no content."""
        file = self._file()
        query = (
            "SELECT number FROM samples WHERE mark != '' "
            "AND number IN (SELECT value FROM json_each(?))"
        )
        if file.rows((int,), query, json.dumps(list(missing))):
            raise file.damaged("the content of a sample is missing")
        raise SampleGoneError(
            "a sample was deleted after the round began, because its limit in days has passed, its "
            "subject was forgotten or a newer order was applied: let the round fail; the next one "
            "is without it"
        )

    def close(self) -> None:
        """Read no more."""
        self._is_over = True
        for file in self._own:
            file.close()
        self._own, self._opened = [], {}

    def _file(self) -> DeviceFile:
        if self._in_memory is not None:
            return self._in_memory
        place = _place()
        if place not in self._opened:
            self._opened[place] = DeviceFile(self._path, is_reader=True)
            self._own.append(self._opened[place])
        return self._opened[place]

    def __getstate__(self) -> dict[str, Any]:
        if self._in_memory is not None:
            raise ConfigurationError(
                "the samples are in the memory of this process, where workers that it starts "
                "cannot read them: keep buffers in files (tidegate-folder), or load without workers"
            )
        return vars(self) | {"_opened": {}, "_own": []}


def _place() -> tuple[int, int]:
    return os.getpid(), threading.get_ident()


def _stacked(samples: Sequence[Any]) -> Any:
    """Stack samples that are alike."""
    first = samples[0]
    if isinstance(first, tuple | list):
        return tuple(_stacked(column) for column in zip(*samples, strict=True))
    if isinstance(first, Mapping):
        return {name: _stacked([sample[name] for sample in samples]) for name in first}
    return np.stack([np.asarray(sample) for sample in samples])
