"""Federated data sets: a hub name or a local folder, split among clients by flwr-datasets."""

import contextlib
import functools
import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from datasets import ClassLabel, Dataset, Image, load_from_disk
from flwr_datasets import FederatedDataset
from flwr_datasets.partitioner import (
    IidPartitioner,
    NaturalIdPartitioner,
    Partitioner,
    PathologicalPartitioner,
)

from tidegate._internal.randomness import ALTERED, generator
from tidegate._internal.suggestion import suggestion
from tidegate.errors import ConfigurationError

PARTITIONS = "iid, classes:N (N neighbouring classes a client), shuffled-classes:N, by:COLUMN"

MOST_REMEMBERED = 4000
"""Samples of a client that stay in memory: enough for a run of some hundred rounds."""

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class FederatedData:
    """A data set with a train and a test part."""

    source: str
    """A folder that the command ``data`` or ``save_to_disk`` wrote, or a name on the hub."""
    input_column: str = "image"
    label_column: str = "label"
    test_split: str = "test"

    @functools.cached_property
    def num_classes(self) -> int:
        """The number of labels."""
        feature = self.test.features[self.label_column]
        if isinstance(feature, ClassLabel):
            return int(feature.num_classes)
        return 1 + int(max(self.test[self.label_column]))

    @functools.cached_property
    def _has_images(self) -> bool:
        return isinstance(self.test.features[self.input_column], Image)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one input, channels first."""
        return tuple(self.sample(self.test[0])[0].shape)

    @property
    def test(self) -> Dataset:
        """The part that is never trained on."""
        if _is_local(self.source):
            return _local(self.source)[self.test_split]
        try:
            return _hub(self.source, "iid", 1, 0).load_split(self.test_split)
        except OSError as unknown:
            raise ConfigurationError(
                f"{self.source} is not a folder here, and the hub does not have it ({unknown}); "
                "create data/NAME with `python -m experiments data NAME --from FOLDER`"
            ) from unknown

    def partition(
        self,
        how: str,
        number: int,
        count: int,
        seed: int,
        *,
        wrong_labels: float = 0.0,
        long_tail: float = 1.0,
    ) -> "Partition | AlteredPartition":
        """Return one client's part of the training data.

        Args:
            how: one of ``PARTITIONS``.
            number: the client, from 0.
            count: the number of clients.
            seed: the seed of a random split; the stream decides the order within a part.
            wrong_labels: the share of samples with another label than their own.
            long_tail: how many times rarer the last class is than the first.
        """
        part = _partition(self, how, number, count, seed)
        if not wrong_labels and long_tail == 1:
            return part
        draw = generator(seed, ALTERED, number)
        return AlteredPartition(part, wrong_labels, long_tail, draw)

    def num_parts(self, how: str, count: int, seed: int) -> int:
        """Return the number of parts: ``count``, or with ``by:COLUMN`` the number of its values."""
        chosen = _partitioner(self.source, how, count, seed, self.label_column)
        return int(chosen.num_partitions)

    def check_columns(self) -> None:
        """Refuse columns that the data do not have."""
        known = list(self.test.features)
        for key, name in (("input", self.input_column), ("label", self.label_column)):
            if name not in known:
                raise ConfigurationError(
                    f"{self.source} has no column {name!r}; it has {', '.join(known)}: "
                    f"set {key}_column"
                )

    def sample(self, row: dict[str, Any]) -> tuple[Array, int]:
        """Return an input, channels first, and its label."""
        value = np.asarray(row[self.input_column])
        if self._has_images:
            value = value[None] if value.ndim == 2 else np.moveaxis(value, -1, 0)
            return np.ascontiguousarray(value), int(row[self.label_column])
        return value.astype(np.float32), int(row[self.label_column])

    def test_arrays(self, most: int = 0) -> tuple[Array, Array]:
        """Return inputs and labels of the test part, or of at most ``most`` evenly spaced rows.

        Test parts may be sorted by label; evenly spaced rows keep the proportions of the labels.
        """
        return _test_arrays(self, most)


@dataclass(frozen=True)
class Partition:
    """The rows of one client, as samples that a stream reads by index."""

    data: FederatedData
    rows: Dataset

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> tuple[Array, int]:
        return self._read(index)

    @functools.cached_property
    def _read(self) -> Callable[[int], tuple[Array, int]]:
        """A cached reader of samples: the next policy of a seed reads the same ones."""

        @functools.lru_cache(maxsize=MOST_REMEMBERED)
        def read(index: int) -> tuple[Array, int]:
            return self.data.sample(cast("dict[str, Any]", self.rows[index]))

        return read

    def arrays(self) -> tuple[Array, Array]:
        """Return inputs and labels of all samples."""
        if not self.data._has_images:  # noqa: SLF001 - a column of numbers is read at once
            columns = self.rows.with_format("numpy")[:]
            inputs = np.asarray(columns[self.data.input_column], dtype=np.float32)
            return inputs, np.asarray(columns[self.data.label_column])
        samples = [self.data.sample(row) for row in self.rows]
        inputs = np.stack([value for value, _ in samples])
        return inputs, np.array([label for _, label in samples])


class AlteredPartition:
    """A client's part of the data in which some labels are wrong and later classes are rare."""

    def __init__(
        self, part: Partition, wrong_labels: float, long_tail: float, draw: np.random.Generator
    ) -> None:
        """Draw the remaining samples and their labels.

        Args:
            part: the part as stored.
            wrong_labels: the share of labels that change to another class, all equally likely.
            long_tail: how many times rarer the last class becomes than the first.
            draw: the random generator.
        """
        classes = part.data.num_classes
        labels = np.asarray(part.rows[part.data.label_column])
        others = (labels + draw.integers(1, classes, len(labels))) % classes
        wrong = draw.random(len(labels)) < wrong_labels
        stays = draw.random(len(labels)) < long_tail ** (-labels / (classes - 1))
        self._part = part
        self._labels = np.where(wrong, others, labels)
        self._places = np.flatnonzero(stays)

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: int) -> tuple[Array, int]:
        place = int(self._places[index])
        return self._part[place][0], int(self._labels[place])

    def arrays(self) -> tuple[Array, Array]:
        """Return inputs and labels of all samples."""
        inputs, _ = self._part.arrays()
        return inputs[self._places], self._labels[self._places]


@functools.lru_cache(maxsize=64)
def _partition(data: FederatedData, how: str, number: int, count: int, seed: int) -> Partition:
    """Return a partition, cached for the other policies of a seed: choosing rows is slow."""
    if _is_local(data.source):
        found = data.num_parts(how, count, seed)
        if found < count:
            raise ConfigurationError(
                f"{data.source} has {found} parts {how!r}, but there are {count} clients; give as "
                "many capacities as there are parts"
            )
        chosen = _partitioner(data.source, how, count, seed, data.label_column)
        with contextlib.redirect_stderr(io.StringIO()):  # hide a needless progress bar
            return Partition(data, chosen.load_partition(number))
    hub = _hub(data.source, how, count, seed, data.label_column)
    return Partition(data, hub.load_partition(number))


@functools.lru_cache(maxsize=2)
def _test_arrays(data: FederatedData, most: int) -> tuple[Array, Array]:
    """Return the test part, cached for the next run of the same process."""
    rows = data.test
    if most and most < len(rows):
        rows = rows.select(np.linspace(0, len(rows) - 1, most).astype(int).tolist())
    return Partition(data, rows).arrays()


def _is_local(source: str) -> bool:
    """Return whether the source is a folder; refuse a misspelt path instead of asking the hub."""
    path = Path(source).expanduser()
    if not path.is_dir() and path.parent != Path() and path.parent.is_dir():
        beside = sorted(str(one) for one in path.parent.iterdir() if one.is_dir())
        hint = suggestion(source, beside, otherwise=f"there are {', '.join(beside) or 'none'}")
        raise ConfigurationError(
            f"{source} is not a folder; {hint} Create data/NAME with `python -m experiments data "
            "NAME --from FOLDER`"
        )
    return path.is_dir()


@functools.cache
def _local(source: str) -> Any:
    try:
        return load_from_disk(str(Path(source).expanduser()))
    except FileNotFoundError:
        raise ConfigurationError(
            f"{source} is a folder without a data set; create data/NAME with `python -m "
            "experiments data NAME --from FOLDER`"
        ) from None


@functools.lru_cache(maxsize=8)
def _partitioner(source: str, how: str, count: int, seed: int, label: str) -> Partitioner:
    """Return the partitioner of a folder, shuffled as the hub's are: rows may be sorted."""
    chosen = _named(how, count, seed, label)
    rows = _local(source)["train"]
    column = how.removeprefix("by:")
    if isinstance(chosen, NaturalIdPartitioner) and column not in rows.features:
        raise ConfigurationError(
            f"{source} has no column {column!r}; it has {', '.join(rows.features)}"
        )
    chosen.dataset = rows.shuffle(seed=seed) if isinstance(chosen, IidPartitioner) else rows
    return chosen


@functools.lru_cache(maxsize=8)
def _hub(source: str, how: str, count: int, seed: int, label: str = "label") -> FederatedDataset:
    return FederatedDataset(
        dataset=source, partitioners={"train": _named(how, count, seed, label)}, seed=seed
    )


def _named(how: str, count: int, seed: int, label: str) -> Partitioner:
    """Return the partitioner that a text names."""
    kind, _, detail = how.partition(":")
    if kind == "iid" and not detail:
        return IidPartitioner(num_partitions=count)
    if kind in ("classes", "shuffled-classes") and detail.isdecimal() and int(detail) > 0:
        return PathologicalPartitioner(
            num_partitions=count,
            partition_by=label,
            num_classes_per_partition=int(detail),
            class_assignment_mode="deterministic" if kind == "classes" else "random",
            seed=seed,
        )
    if kind == "by" and detail:  # the column is checked when it is used
        return NaturalIdPartitioner(partition_by=detail)
    raise ConfigurationError(f"unknown partition {how!r}; write {PARTITIONS}")
