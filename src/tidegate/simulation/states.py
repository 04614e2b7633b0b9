"""Save a simulation's state, so that a run can continue in another process."""

from pathlib import Path
from typing import Any

from tidegate._internal.saving import restore, save
from tidegate.policies import JointPolicy
from tidegate.problem import Problem
from tidegate.simulation.rounds import SimulationState, begin


def save_state(state: SimulationState[Any], path: Path) -> None:
    """Write a state; a crash leaves either the old file or the new one."""
    save(state, path)


def load_state(policy: JointPolicy[Any], problem: Problem, path: Path) -> SimulationState[Any]:
    """Load a state that ``save_state`` wrote for this policy and problem, for ``resume``."""
    return restore(begin(policy, problem), path)
