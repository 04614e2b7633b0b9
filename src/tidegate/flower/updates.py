"""What a client's reply must look like before the wrapped strategy sees it.

A strategy takes replies to be alike and numbers to be finite: one reply that is not can stop the
run, or make the model not-a-number for good. Such a reply is left out; what its client paid for is
booked all the same. An update that is well-formed and wrong is for a robust strategy to outvote.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from numpy.typing import NDArray

from tidegate.errors import ConfigurationError, RunDiffersError, WireError
from tidegate.flower.reading import NUMBERS, Layout, remember

ROUNDING = 1e-6
"""What averaging may take from a whole number."""

Form = frozenset[tuple[str, type, frozenset[tuple[str, int | None]]]]
"""Names and kinds of the records in a reply, and what each holds: names, and lengths of lists."""


class UpdateCheck:
    """Refuses arrays that cannot be averaged, or not with the model.

    Nearly every array begins with the very bytes that the model's own does: then its kind and shape
    are known without reading them, and its numbers lie where they came.

    Args:
        model: that is trained.
        before: the check of the model before it, whose layouts mostly are still the same.
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
        """Refuse an update with a reason; who reads it next finds its arrays read."""
        for record in content.values():
            for name, array in record.items() if isinstance(record, ArrayRecord) else ():
                values = self._checked(name, array)
                if values is not None:
                    remember(array, values)

    def check_average(self, average: ArrayRecord) -> None:
        """Refuse an average that cannot take the model's place, with a reason."""
        if len(self._model) and average.keys() != self._model.keys():
            missing = sorted(self._model.keys() ^ average.keys())[:3]
            raise WireError(f"its arrays are not the model's: they differ in {missing}")
        for name, array in average.items():
            self._checked(name, array)

    def _checked(self, name: str, array: Array) -> NDArray[Any] | None:
        """Refuse an array with a reason; its numbers, if they lie where the model's do."""
        layout = self.layouts.get(name)
        values = None if layout is None else layout.values(array)
        if values is None:
            check_array(name, array, self._model.get(name))
        elif values.dtype.kind == "f":
            _check_finite(name, values)
        return values


def check_array(name: str, array: Array, expected: Array | None) -> None:
    """Refuse an array that is unreadable, not finite, or unlike the model's of this name.

    Bytes (trees of a boosted model, say) may have any length.
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
            f"its array {name!r} is {values.dtype} of {values.shape}, the model's {kind} of {shape}"
        )


def usable_metrics(content: RecordDict, weight_key: str) -> bool:
    """Whether a reply's metrics are finite, and its weight is a number above 0."""
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
    """Replies that have the form of most, and whose do not.

    A form with one record of the model's arrays and one of metrics is taken before any other.
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
    """Whether a reply holds one record of the model's arrays and one of metrics.

    A model that begins empty takes any arrays.
    """
    arrays, metrics = list(content.array_records.values()), list(content.metric_records.values())
    return len(arrays) == len(metrics) == 1 and (set(arrays[0]) == set(model) or not model)


def of_usual_form(contents: Sequence[RecordDict]) -> list[RecordDict]:
    """Those that have the form of most."""
    forms = [_form(content) for content in contents]
    usual = max(Counter(forms).items(), key=lambda one: one[1], default=(frozenset(), 0))[0]
    return [content for content, form in zip(contents, forms, strict=True) if form == usual]


def check_model(model: ArrayRecord) -> None:
    """Refuse a model whose updates could not be averaged, before anything is spent on it."""
    for name, array in model.items():
        try:
            check_array(name, array, None)
        except WireError as wrong:
            raise ConfigurationError(
                f"the initial model cannot be trained under AdmissionControl: {wrong}; a model is "
                "made of finite numbers, in arrays that NumPy can read"
            ) from None


def check_same_model(saved: ArrayRecord, given: ArrayRecord) -> None:
    """Refuse to go on with a run whose model has other arrays than the one that is given.

    The saved one is a strategy's average: floats of any width stand for floats, a float64 also for
    whole numbers, and bytes may have any length. A model that is given empty takes any arrays.
    """
    for name in dict.fromkeys([*saved, *given]) if len(given) else ():
        kept, new = saved.get(name), given.get(name)
        if kept is not None and new is not None and _stands_for(kept, new):
            continue
        told = [
            "none" if one is None else f"{one.dtype} of {tuple(one.shape)}" for one in (kept, new)
        ]
        raise RunDiffersError(
            f"the folder's model has as its array {name!r} {told[0]}, and initial_arrays has "
            f"{told[1]}; resume with the model that the run began with, or start a new run in "
            "another folder",
            name=f"initial_arrays[{name!r}]",
            saved=told[0],
            given=told[1],
        )


def _stands_for(average: Array, array: Array) -> bool:
    """Whether an array can be the average of arrays like another one."""
    kept, new = np.dtype(average.dtype), np.dtype(array.dtype)
    if kept == new == np.uint8:
        return True
    averaged = kept.kind == new.kind == "f" or (kept == np.float64 and new.kind in NUMBERS)
    return (kept == new or averaged) and tuple(average.shape) == tuple(array.shape)


def in_types_of(model: ArrayRecord, average: ArrayRecord) -> ArrayRecord:
    """An average whose whole numbers are whole again, as the model's own are.

    Strategies average BatchNorm's counter, an int64, to a float64. Fractions are cut off and any
    part of a truth is true, as torch has it when it loads such an array, so that clients train as
    they would without Tidegate; except that 0.9999999 counts as 1, because weights add up to 1
    only up to rounding.

    Returns:
        The very same record where nothing is to be done.
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


def _held(record: Mapping[str, Any]) -> list[tuple[str, int | None]]:
    return [(name, len(one) if isinstance(one, list) else None) for name, one in record.items()]


def _check_finite(name: str, values: NDArray[Any]) -> None:
    flat = values.ravel(order="K")
    # Squares add up to a finite number only if all are finite, and that is the quicker look; where
    # they do not, each is looked at.
    if values.dtype.char in "fd" and math.isfinite(np.vdot(flat, flat)):
        return
    if not np.isfinite(flat).all():
        raise WireError(f"its array {name!r} holds numbers that are not finite")


def _layout(array: Array, known: Layout | None) -> Layout | None:
    """How an array's numbers lie: mostly as those of the array that had its name before."""
    return known if known is not None and known.values(array) is not None else Layout.of(array)


def _read(name: str, array: Array) -> NDArray[Any]:
    try:
        values = array.numpy()
    except Exception as wrong:  # whatever the bytes led to, nothing of it is executed
        raise WireError(f"its array {name!r} cannot be read: {wrong}") from wrong
    if not isinstance(values, np.ndarray) or values.dtype.kind not in NUMBERS:
        raise WireError(f"its array {name!r} is not an array of numbers")
    return values
