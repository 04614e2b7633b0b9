"""A simulation's state in a file, so that a run can go on in another process."""

from pathlib import Path
from typing import Any

from tidegate._internal.saving import restore, save
from tidegate.policies import JointPolicy
from tidegate.problem import Problem
from tidegate.simulation.rounds import SimulationState, begin


def save_state(state: SimulationState[Any], path: Path) -> None:
    """Write a state; the file is the old one or the new one, whatever happens."""
    save(state, path)


def load_state(policy: JointPolicy[Any], problem: Problem, path: Path) -> SimulationState[Any]:
    """The state that ``save_state`` wrote for this policy and problem; pass it as ``resume``."""
    return restore(begin(policy, problem), path)
