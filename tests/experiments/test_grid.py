"""The grid of ACDPP's settings: some of its rows again, and its table."""

from types import ModuleType

import numpy as np
import pytest
from check_size import at_size
from experiment_scripts import FOLDER, load

import tidegate
from tidegate.admission.interval import ClosingInterval

pytestmark = pytest.mark.no_cover  # long loops, covered elsewhere

GRID = FOLDER / "grid"


@pytest.fixture
def grid(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load(GRID / "grid.py", monkeypatch)


def test_as_printed_the_rule_is_bang_bang(grid: ModuleType) -> None:
    """In rounds with an open interval it always takes one of the ends."""
    mnist = tidegate.EXPERIMENTS["mnist"]
    problem = mnist.problem(at_size(300, 1000))
    policy = tidegate.make_policy("acdpp", problem)
    interval = getattr(policy.admission, "interval", None)
    assert isinstance(interval, ClosingInterval)
    choices = [
        grid.choices(tidegate.simulate(policy, problem, mnist.price, seed), interval)
        for seed in range(at_size(3, 10))
    ]
    open_rounds, interior = np.sum(choices, axis=0)
    assert open_rounds > 150 * len(choices)
    assert interior == 0
