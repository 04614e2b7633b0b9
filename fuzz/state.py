"""A simulation's saved state."""

import functools
import io
import json
from typing import Any

from fuzz.archives import packed, patched, unpacked
from fuzz.choices import Choices, text_of
from fuzz.limits import empty_folder, may_refuse
from tidegate._internal import saving
from tidegate.policies import DEFAULT_OPTIONS
from tidegate.policies.presets import find_policy
from tidegate.prices import UniformPrice
from tidegate.problem import Problem
from tidegate.simulation.rounds import begin, simulate

POLICIES = ("acdpp", "tide", "hybrid")
PROBLEM = Problem(buffer_capacities=[8, 12], budget=20.0, mean_price=5.5, num_rounds=30)


@functools.cache
def real_state(policy: str) -> tuple[Any, bytes]:
    """A state before the first round, and the file of one after five."""
    made = find_policy(policy)(PROBLEM, DEFAULT_OPTIONS)
    run = simulate(made, PROBLEM, UniformPrice(1, 10), 0, until=5)
    file = io.BytesIO()
    saving.write(run.final, file)
    return begin(made, PROBLEM), file.getvalue()


def target(data: bytes) -> None:
    """Restore a state from any bytes, a patched file, or a file whose text was edited."""
    choices = Choices(data)
    template, content = real_state(choices.pick(POLICIES))
    how = choices.number(3)
    if how == 0:
        content = choices.rest()
    elif how == 1:
        content = patched(content, choices)
    else:
        parts = unpacked(content)
        parts["tree"] = text_of(choices.edited(json.loads(parts["tree"].tobytes()), most=5))
        content = packed(**parts)
    with empty_folder() as folder, may_refuse(ValueError, OSError):
        path = folder / "state"
        path.write_bytes(content)
        saving.write(saving.restore(template, path), io.BytesIO())


def seeds() -> list[bytes]:
    """States of some policies, whole, patched and edited."""
    whole = [bytes([n, 0]) + real_state(name)[1] for n, name in enumerate(POLICIES)]
    edits = [
        bytes([n, 2, 1, 3, 1, 3, 0, 3, place, 0, 3, 9]) for n in range(3) for place in range(4)
    ]
    return [*whole, *edits, *(bytes([n, 1, 3, 9, 9, 50, 1, 1, 200, 0]) for n in range(3))]
