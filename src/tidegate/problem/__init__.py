"""What is given before a run starts: a fleet, its memory, its budget and its delays."""

from tidegate.problem.earlier_samples import NOTHING, EarlierSamples
from tidegate.problem.learning_constants import LearningConstants
from tidegate.problem.problem import MOST_ROUNDS, Problem

__all__ = ["MOST_ROUNDS", "NOTHING", "EarlierSamples", "LearningConstants", "Problem"]
