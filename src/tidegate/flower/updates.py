"""The global model, and the check of a client's reply before the wrapped strategy sees it.

A strategy assumes that replies are alike and numbers are finite: a single reply that is not can
stop the run, or turn the model into NaN for good. Such a reply is left out; what its client paid is
booked all the same. An update that is well-formed but wrong is left to a robust strategy.

NumPy writes a description before an array's numbers, and reads it again with Python's own parser:
for the ten arrays of a small network, this is a third of what a round of Flower costs a server.
Nearly every array of a reply begins with the very bytes of the model's own. Its description is then
known, and neither the check nor the wrapped strategy has to parse it.
"""

import logging
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from numpy.typing import NDArray

from tidegate.errors import ConfigurationError, RunDiffersError, WireError
from tidegate.flower import flower_internals
from tidegate.flower.flower_internals import NUMPY

ROUNDING = 1e-6
"""The most that averaging may take from an integer."""
NUMBERS = "biuf"
"""Kinds of arrays that can be averaged: booleans, integers and real numbers."""
AVERAGE_REFUSED = (
    "round %d: the strategy returned an average that cannot be the next model (%s); the model "
    "stays as it was"
)

Form = frozenset[tuple[str, type, frozenset[tuple[str, str | int]]]]
"""Names and kinds of the records in a reply, with the names, types and list lengths in each."""


logger = logging.getLogger(__name__)


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
    def of(cls, array: Array) -> "Layout | None":
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

    def values(self, array: Array) -> NDArray[Any] | None:
        """Return an array's numbers without copying them, if it begins as this one does."""
        data = array.data
        fits = array.stype == NUMPY and len(data) == self.length and data.startswith(self.head)
        if not fits:
            return None
        values = np.frombuffer(data, self.dtype, offset=len(self.head))
        return values.reshape(self.shape, order=self.order)


class UpdateCheck:
    """Refuses arrays that cannot be averaged, or not with the model.

    Args:
        model: the model that is trained.
        before: the check of the previous model, whose layouts are mostly the same.
    """

    def __init__(self, model: ArrayRecord, before: "UpdateCheck | None" = None) -> None:
        known = {} if before is None else before.layouts
        self._model = model
        self.layouts: dict[str, Layout] = {
            name: layout
            for name, array in model.items()
            if (layout := _layout(array, known.get(name))) is not None
        }
        """Of the model's arrays."""

    def check(self, content: RecordDict) -> None:
        """Refuse an invalid update with a reason; its arrays are not parsed again."""
        for record in content.array_records.values():
            for name, array in list(record.items()):
                values = self._checked(name, array)
                if values is not None:
                    record[name] = flower_internals.Array(array, values)

    def check_average(self, average: ArrayRecord) -> None:
        """Refuse an average that cannot replace the model, with a reason."""
        if len(self._model) and average.keys() != self._model.keys():
            missing = sorted(self._model.keys() ^ average.keys())[:3]
            raise WireError(f"its arrays are not those of the model: they differ in {missing}")
        for name, array in average.items():
            self._checked(name, array)

    def _checked(self, name: str, array: Array) -> NDArray[Any] | None:
        """Refuse an array with a reason; return its numbers if they lie where the model's do."""
        layout = self.layouts.get(name)
        values = None if layout is None else layout.values(array)
        if values is None:
            check_array(name, array, self._model.get(name))
        elif values.dtype.kind == "f":
            _check_finite(name, values)
        return values


class GlobalModel:
    """The global model, in the strategy's types and in its own, if these differ.

    Args:
        initial: the model that the run started with, with the model's own types.
        average: the strategy's last average, if the run is resumed.
    """

    def __init__(self, initial: ArrayRecord, average: ArrayRecord | None = None) -> None:
        self._initial = initial
        self.average = initial if average is None else average
        """As the strategy returned it; the next average starts from here."""
        self.arrays = in_types_of(initial, self.average)
        """The same with integers where the model has integers, as clients receive it."""
        self._updates: tuple[ArrayRecord, UpdateCheck] | None = None

    @property
    def updates(self) -> UpdateCheck:
        """The check for updates of the model; made once for each model."""
        model, check = self._updates or (None, None)
        if check is None or model is not self.arrays:
            check = UpdateCheck(self.arrays, check)
            self._updates = self.arrays, check
        return check

    def replace(self, arrays: ArrayRecord) -> None:
        """Continue with these arrays, which something else than the strategy has set."""
        if arrays is not self.arrays:
            self.average = self.arrays = arrays

    def accept(self, average: ArrayRecord, round_number: int) -> ArrayRecord | None:
        """Make the average of a round the model if it is valid; otherwise log why not."""
        arrays = in_types_of(self._initial, average)
        try:
            self.updates.check_average(arrays)
        except WireError as refused:
            logger.warning(AVERAGE_REFUSED, round_number, refused)
            return None
        self.average, self.arrays = average, arrays
        return arrays


def check_array(name: str, array: Array, expected: Array | None) -> None:
    """Refuse an array that is unreadable, not finite, or unlike the model's of this name.

    Bytes (such as the trees of a boosted model) may have any length.
    """
    values = _read(name, array)
    if values.dtype.kind == "f":
        _check_finite(name, values)
    if expected is None:
        return
    kind, shape = np.dtype(expected.dtype), tuple(expected.shape)
    if kind == np.uint8 == values.dtype:
        return
    if values.shape != shape or not np.can_cast(values.dtype, kind, "same_kind"):
        raise WireError(
            f"its array {name!r} is {values.dtype} of {values.shape}, but the model's is {kind} "
            f"of {shape}"
        )


def check_metrics(content: RecordDict, weight_key: str, loss_key: str | None) -> None:
    """Refuse metrics that would spoil the average of the whole fleet, with a reason.

    Args:
        content: of a client's reply after training.
        weight_key: the metric that weighs a reply, which the server writes itself.
        loss_key: the metric by which the strategy weighs updates, which is never negative.
    """
    for record in content.metric_records.values():
        for name, metric in record.items():
            values = metric if isinstance(metric, list) else [metric]
            if name != weight_key and not all(map(math.isfinite, values)):
                raise WireError(f"its metric {name!r} is not finite")
            if name == loss_key and min(values, default=0) < 0:
                raise WireError(f"its metric {name!r} is below 0, but the strategy weighs by it")


def usable_metrics(content: RecordDict, weight_key: str) -> bool:
    """Return whether a reply's metrics are finite and its weight is a number above 0."""
    values = [
        value
        for record in content.metric_records.values()
        for metric in record.values()
        for value in (metric if isinstance(metric, list) else [metric])
    ]
    weights = [record.get(weight_key, 1) for record in content.metric_records.values()]
    return all(map(math.isfinite, values)) and all(
        not isinstance(weight, list) and weight > 0 for weight in weights
    )


def of_one_form(
    replies: Mapping[str, Message], model: ArrayRecord
) -> tuple[dict[str, Message], list[str]]:
    """Return the replies that have the same form as most, and the clients whose replies do not.

    A form with one record of the model's arrays and one of metrics comes before any other.
    """
    forms = {client: _form(reply.content) for client, reply in replies.items()}
    counts = Counter(forms.values())

    def rank(form: Form) -> tuple[bool, int]:
        arrays = [{name for name, _ in names} for _, kind, names in form if kind is ArrayRecord]
        metrics = [kind for _, kind, _ in form if kind is MetricRecord]
        return arrays in ([], [set(model)]) and len(metrics) == 1, counts[form]

    usual = max(counts, key=rank, default=frozenset())
    alike = {client: reply for client, reply in replies.items() if forms[client] == usual}
    return alike, [client for client in replies if client not in alike]


def has_form_of(content: RecordDict, model: ArrayRecord) -> bool:
    """Return whether a reply holds one record of the model's arrays and one of metrics.

    A model that starts empty accepts any arrays.
    """
    arrays, metrics = list(content.array_records.values()), list(content.metric_records.values())
    return len(arrays) == len(metrics) == 1 and (set(arrays[0]) == set(model) or not model)


def of_usual_form(contents: Sequence[RecordDict]) -> list[RecordDict]:
    """Return those that have the same form as most."""
    forms = [_form(content) for content in contents]
    usual = max(Counter(forms).items(), key=lambda counted: counted[1], default=(frozenset(), 0))[0]
    return [content for content, form in zip(contents, forms, strict=True) if form == usual]


def check_model(model: ArrayRecord) -> None:
    """Refuse a model whose updates could not be averaged, before clients spend anything on it."""
    for name, array in model.items():
        try:
            check_array(name, array, None)
        except WireError as wrong:
            raise ConfigurationError(
                f"AdmissionControl cannot train the initial model: {wrong}; a model needs finite "
                "numbers, in arrays that NumPy can read"
            ) from None


def check_same_model(saved: ArrayRecord, initial: ArrayRecord) -> None:
    """Refuse to resume a run whose model has other arrays than the given one.

    The saved model is a strategy's average: floats of any width stand for floats, a float64 also
    for integers, and bytes may have any length. An empty model accepts any arrays.
    """
    for name in dict.fromkeys([*saved, *initial]) if len(initial) else ():
        kept, new = saved.get(name), initial.get(name)
        if kept is not None and new is not None and _stands_for(kept, new):
            continue
        shapes = [
            "none" if array is None else f"{array.dtype} of {tuple(array.shape)}"
            for array in (kept, new)
        ]
        raise RunDiffersError(
            f"array {name!r} differs: the folder's model has {shapes[0]}, initial_arrays has "
            f"{shapes[1]}; resume with the model that the run started with, or start a new run in "
            "another folder",
            name=f"initial_arrays[{name!r}]",
            saved=shapes[0],
            given=shapes[1],
        )


def _stands_for(average: Array, array: Array) -> bool:
    """Return whether an array can be the average of arrays like another one."""
    kept, new = np.dtype(average.dtype), np.dtype(array.dtype)
    if kept == new == np.uint8:
        return True
    averaged = kept.kind == new.kind == "f" or (kept == np.float64 and new.kind in NUMBERS)
    return (kept == new or averaged) and tuple(average.shape) == tuple(array.shape)


def in_types_of(model: ArrayRecord, average: ArrayRecord) -> ArrayRecord:
    """Return an average whose integers are integers again, as in the model.

    Strategies average BatchNorm's counter, an int64, to a float64. Fractions are cut off and any
    nonzero boolean becomes true, as torch does when it loads such an array, so that clients train
    as they would without Tidegate. Only 0.9999999 counts as 1, because weights add up to 1 only up
    to rounding.

    Returns:
        The same record if there is nothing to convert.
    """
    whole = {}
    for name, array in average.items():
        kind = np.dtype(model[name].dtype) if name in model else None
        if kind is None or kind.kind not in "biu" or np.dtype(array.dtype).kind != "f":
            continue
        values = array.numpy()
        if kind.kind == "b":
            whole[name] = Array(values != 0)
        elif np.isfinite(values).all():
            nearest = np.rint(values)
            close = np.abs(values - nearest) < ROUNDING
            whole[name] = Array(np.where(close, nearest, np.trunc(values)).astype(kind))
    if not whole:
        return average
    return ArrayRecord({name: whole.get(name, array) for name, array in average.items()})


def _form(content: RecordDict) -> Form:
    return frozenset(
        (name, type(record), frozenset(_held(record))) for name, record in content.items()
    )


def _held(record: Mapping[str, Any]) -> Iterator[tuple[str, str | int]]:
    """Yield what is in a record: each name, with the type of an array or the length of a list."""
    for name, value in record.items():
        if isinstance(value, Array):
            yield name, value.dtype
        else:
            yield name, len(value) if isinstance(value, list) else ""


def _check_finite(name: str, values: NDArray[Any]) -> None:
    flat = values.ravel(order="K")
    # A sum of squares is finite only if all numbers are, and is faster to check; if it is not
    # finite, check each number.
    if values.dtype.char in "fd" and math.isfinite(np.vdot(flat, flat)):
        return
    if not np.isfinite(flat).all():
        raise WireError(f"its array {name!r} has numbers that are not finite")


def _layout(array: Array, known: Layout | None) -> Layout | None:
    """Return the layout of an array, which is mostly that of the earlier array with its name."""
    return known if known is not None and known.values(array) is not None else Layout.of(array)


def _read(name: str, array: Array) -> NDArray[Any]:
    try:
        values = array.numpy()
    except Exception as wrong:  # whatever the bytes lead to, nothing in them is executed
        raise WireError(f"its array {name!r} cannot be read: {wrong}") from wrong
    if not isinstance(values, np.ndarray) or values.dtype.kind not in NUMBERS:
        raise WireError(f"its array {name!r} is not an array of numbers")
    return values
