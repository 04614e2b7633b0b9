"""How clients of an experiment rank candidates: by a name, or by a function in a file.

``margin``, ``entropy``, ``least_confidence`` and ``random`` are those of ``tidegate.selection``.
``balanced`` ranks by margin and takes turns between predicted classes. ``loss`` uses the label
before the client pays for it, which is impossible in practice; it serves as a warning.
``my_file.py:my_rule`` calls ``my_rule(probabilities, context)``, with one row a candidate and the
node's context, which returns one number a candidate; the path is relative to the current folder.
"""

import functools
import runpy
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context
from numpy.typing import ArrayLike, NDArray

from tidegate._internal.arrays import FloatArray
from tidegate._internal.suggestion import suggestion
from tidegate.errors import ConfigurationError
from tidegate.selection import RANKINGS, balanced, margin

Ranking = Callable[[FloatArray, NDArray[np.int64]], ArrayLike]

OWN: Mapping[str, Ranking] = {
    "balanced": lambda likely, labels: balanced(margin(likely), likely.argmax(axis=1)),
    "loss": lambda likely, labels: 1 - likely[np.arange(len(likely)), labels],
}
"""The rankings beyond those of ``tidegate.selection``."""


def check_ranking(text: str) -> str:
    """Refuse an unknown ranking; an empty text means no ranking."""
    if text and ":" not in text and text not in {*RANKINGS, *OWN}:
        names = sorted((*RANKINGS, *OWN))
        hint = suggestion(text, names, otherwise=f"choose from {', '.join(names)}")
        raise ConfigurationError(f"unknown ranking {text!r}; {hint} A file's is FILE.py:FUNCTION")
    if ":" in text:
        _from_file(text)
    return text


def ranking_name(text: str) -> str:
    """Return the name of a ranking in tables and folders.

    >>> ranking_name("rules/mine.py:newest"), ranking_name("margin")
    ('newest', 'margin')
    """
    return text.rpartition(":")[2]


def rank(
    name: str, probabilities: FloatArray, labels: NDArray[np.int64], context: Context
) -> Sequence[float]:
    """Return the worth of candidates.

    Args:
        name: the name of the ranking.
        probabilities: the model's class probabilities, one row a candidate.
        labels: the true labels; only ``loss`` uses them.
        context: the node's context.
    """
    worths: ArrayLike
    if ":" in name:
        worths = _from_file(name)(probabilities, context)
    elif name in OWN:
        worths = OWN[name](probabilities, labels)
    else:
        worths = RANKINGS[name](probabilities)
    return [float(one) for one in np.asarray(worths)]


@functools.lru_cache(maxsize=8)
def _from_file(text: str) -> Callable[[FloatArray, Context], ArrayLike]:
    """Return a function of a file, cached because it may keep state."""
    file, _, name = text.rpartition(":")
    if not Path(file).is_file():
        raise ConfigurationError(f"{text!r}: there is no file {file!r} in {Path.cwd()}")
    found: Any = runpy.run_path(file).get(name)
    if not callable(found):
        raise ConfigurationError(f"{text!r}: {file} has no function {name!r}")
    rule: Callable[[FloatArray, Context], ArrayLike] = found
    return rule
