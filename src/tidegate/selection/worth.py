"""What a candidate is worth to a model: the less sure the model is of its class, the more.

Every function takes one row of class probabilities a candidate and gives one number a candidate;
only their order counts.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidegate._internal.suggestion import suggestion
from tidegate.errors import ConfigurationError

Worths = NDArray[np.float64]
ROUNDING = 0.01
"""Probabilities of half precision add up to 1 within less than this."""
HALF_A_STEP = 1 / 512
"""The most that each probability of a model with 8-bit outputs is off."""


def margin(probabilities: ArrayLike) -> Worths:
    """How near the second likeliest class comes to the likeliest.

    >>> margin([[0.5, 0.5, 0.0], [0.9, 0.1, 0.0]])
    array([ 0. , -0.8])
    """
    rows = _rows(probabilities)
    second, first = np.partition(rows, -2, axis=1)[:, -2:].T
    return np.asarray(second - first)


def entropy(probabilities: ArrayLike) -> Worths:
    """How many classes the model cannot decide between, in nats.

    >>> entropy([[0.5, 0.5], [1.0, 0.0]]).round(3)
    array([0.693, 0.   ])
    """
    rows = _rows(probabilities)
    logarithms = np.log(rows, out=np.zeros_like(rows), where=rows > 0)
    return np.asarray(-(rows * logarithms).sum(axis=1) + 0.0)  # not -0.0


def least_confidence(probabilities: ArrayLike) -> Worths:
    """How unlikely even the likeliest class is.

    >>> least_confidence([[0.5, 0.3, 0.2], [0.9, 0.1, 0.0]]).round(3)
    array([0.5, 0.1])
    """
    return np.asarray(1 - _rows(probabilities).max(axis=1))


def balanced(worths: ArrayLike, classes: ArrayLike) -> Worths:
    """Take turns between classes: the best of each first, then the second best of each.

    For streams in which some classes are rare. What counts is the class that the model predicts:
    nobody knows the true one before the label is paid for.

    Args:
        worths: of the candidates, by any of the functions here.
        classes: that the model predicts, one a candidate.

    Returns:
        numbers in whose order the classes alternate.

    >>> balanced([0.9, 0.8, 0.7, 0.1], [0, 0, 0, 1]).argsort()[::-1].tolist()
    [0, 3, 1, 2]
    """
    values, labels = np.asarray(worths, dtype=np.float64), np.asarray(classes)
    if values.ndim != 1 or values.shape != labels.shape:
        raise ConfigurationError(
            f"worths of shape {values.shape} and classes of shape {labels.shape} do not match; "
            "give one number and one predicted class for each candidate"
        )
    best_first = np.argsort(-values, kind="stable")
    turn = np.empty(len(values), dtype=np.int64)
    taken: dict[Any, int] = {}
    for place in best_first:
        label = labels[place].item()
        turn[place] = taken.get(label, 0)
        taken[label] = turn[place] + 1
    order = np.lexsort((-values, turn))
    ranks = np.empty(len(values))
    ranks[order] = -np.arange(len(values))
    return ranks


def at_random(probabilities: ArrayLike) -> Worths:
    """The same for all, so that chance alone chooses among them.

    >>> at_random([[0.5, 0.5], [1.0, 0.0]])
    array([0., 0.])
    """
    return np.zeros(len(_shaped(probabilities)))


RANKINGS: Mapping[str, Callable[[ArrayLike], Worths]] = {
    "margin": margin,
    "entropy": entropy,
    "least_confidence": least_confidence,
    "random": at_random,
}
"""By the names that commands and configurations use."""


def find_ranking(name: str) -> Callable[[ArrayLike], Worths]:
    """The ranking of this name.

    >>> find_ranking("margn")
    Traceback (most recent call last):
    ...
    tidegate.errors.ConfigurationError: unknown ranking 'margn'; did you mean margin?
    """
    if name not in RANKINGS:
        hint = suggestion(name, RANKINGS, otherwise=f"choose from {', '.join(RANKINGS)}")
        raise ConfigurationError(f"unknown ranking {name!r}; {hint}")
    return RANKINGS[name]


def _shaped(probabilities: ArrayLike) -> NDArray[np.float64]:
    rows = np.asarray(probabilities, dtype=np.float64)
    classes = 2
    if rows.ndim != classes or rows.shape[1] < classes:
        raise ConfigurationError(
            "class probabilities must have one row for each candidate and a column for each of "
            f"at least 2 classes, got shape {rows.shape}"
        )
    return rows


def _rows(probabilities: ArrayLike) -> NDArray[np.float64]:
    rows = _shaped(probabilities)
    sums = rows.sum(axis=1)
    finite = np.isfinite(sums)  # a model that has diverged has no probabilities
    off = finite & ((rows < -ROUNDING) | (rows > 1 + ROUNDING)).any(axis=1)
    off |= finite & (np.abs(sums - 1) > ROUNDING + rows.shape[1] * HALF_A_STEP)
    if off.any():
        row = rows[off][0]
        raise ConfigurationError(
            "class probabilities must be between 0 and 1 and add up to 1 in every row, got a row "
            f"with values from {row.min():.4g} to {row.max():.4g} that add up to {row.sum():.4g}; "
            "if these are logits, apply softmax first"
        )
    return rows
