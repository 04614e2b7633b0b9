"""What a client's reply must look like before the wrapped strategy sees it.

A strategy takes replies to be alike and numbers to be finite: one reply that is not can stop the
run, or make the model not-a-number for good. Such a reply is left out; what its client paid for is
booked all the same. An update that is well-formed and wrong is for a robust strategy to outvote.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Message, RecordDict
from numpy.typing import NDArray

from tidegate.wire import WireError

Form = frozenset[tuple[str, type, frozenset[str]]]
"""Names and kinds of the records in a reply, and the names that each holds."""


def check_update(content: RecordDict, model: ArrayRecord) -> None:
    """Refuse arrays that cannot be averaged: unreadable, not finite, or not of the model's shape.

    Bytes (trees of a boosted model, say) may have any length.
    """
    for record in content.array_records.values():
        for name, array in record.items():
            values = _read(name, array)
            if values.dtype.kind in "fc" and not np.isfinite(values).all():
                raise WireError(f"its array {name!r} holds numbers that are not finite")
            expected = model[name].shape if name in model else values.shape
            if values.shape != tuple(expected) and values.dtype != np.uint8:
                raise WireError(
                    f"its array {name!r} has the shape {values.shape}, the model's has {expected}"
                )


def of_one_form(
    replies: Mapping[str, Message], model: ArrayRecord
) -> tuple[dict[str, Message], list[str]]:
    """Replies that have the form of most, and whose do not.

    Where two forms are as frequent, the one with the model's names is taken.
    """
    forms = {client: _form(reply.content) for client, reply in replies.items()}
    counts = Counter(forms.values())

    def rank(form: Form) -> tuple[int, bool]:
        named = any(kind is ArrayRecord and names == set(model) for _, kind, names in form)
        return counts[form], named

    usual = max(counts, key=rank, default=frozenset())
    alike = {client: reply for client, reply in replies.items() if forms[client] == usual}
    return alike, [client for client in replies if client not in alike]


def _form(content: RecordDict) -> Form:
    return frozenset((name, type(record), frozenset(record)) for name, record in content.items())


def _read(name: str, array: Array) -> NDArray[Any]:
    try:
        values = array.numpy()
    except Exception as wrong:  # whatever the bytes led to, nothing of it is executed
        raise WireError(f"its array {name!r} cannot be read: {wrong}") from wrong
    if not isinstance(values, np.ndarray) or values.dtype.hasobject:
        raise WireError(f"its array {name!r} is no array of numbers")
    return values
