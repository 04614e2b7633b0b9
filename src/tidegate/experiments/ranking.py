"""How clients of an experiment rank candidates: by a name, or by a function in a file.

``margin``, ``entropy``, ``least_confidence`` and ``random`` are those of ``tidegate.selection``: by
``random`` chance alone chooses among the candidates. ``balanced`` is by margin, in turns between
predicted classes.
``loss`` knows the label before it is paid for, and is there as a warning. ``my_file.py:my_rule``
calls ``my_rule(probabilities, context)``, with one row a candidate and the node's context, and
gets one number a candidate; its path counts from the present folder.
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
"""Beside those of ``tidegate.selection``."""


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
    """What tables and folders call it.

    >>> ranking_name("rules/mine.py:newest"), ranking_name("margin")
    ('newest', 'margin')
    """
    return text.rpartition(":")[2]


def rank(
    name: str, probabilities: FloatArray, labels: NDArray[np.int64], context: Context
) -> Sequence[float]:
    """What candidates are worth.

    Args:
        name: of the ranking.
        probabilities: that the model gives each class, one row a candidate.
        labels: the true ones, of which only ``loss`` knows.
        context: of the node.
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
    """Kept, as a rule may count what it has seen."""
    file, _, name = text.rpartition(":")
    if not Path(file).is_file():
        raise ConfigurationError(f"{text!r}: there is no file {file!r} in {Path.cwd()}")
    found: Any = runpy.run_path(file).get(name)
    if not callable(found):
        raise ConfigurationError(f"{text!r}: {file} has no function {name!r}")
    rule: Callable[[FloatArray, Context], ArrayLike] = found
    return rule
