"""Tidegate decides how many fresh samples each client of a federated run takes in.

>>> import tidegate
>>> mnist = tidegate.EXPERIMENTS["mnist"]
>>> problem = mnist.problem(num_rounds=200)
>>> policy = tidegate.make_policy("acdpp", problem)
>>> run = tidegate.simulate(policy, problem, mnist.price, seed=0)
>>> run.certificate_holds
True
"""

from typing import TYPE_CHECKING

from tidegate._internal.later import imported_later

if TYPE_CHECKING:
    from tidegate.policies import POLICIES, ControlOptions, JointPolicy
    from tidegate.policies.presets import EXPERIMENTS, PRESETS, Experiment, make_policy
    from tidegate.prices import (
        ConstantPrice,
        MarkovPrice,
        PriceLaw,
        RecordedPrices,
        UniformPrice,
        price_feed,
        price_law,
    )
    from tidegate.problem import LearningConstants, Problem
    from tidegate.simulation.offline import select_offline, try_horizons
    from tidegate.simulation.rounds import Run, SimulationState, begin, play_round, simulate
    from tidegate.simulation.summary import PolicySummary, paired_differences, summarise
    from tidegate.theory.parameters import Plan, plan_constant_admission, search_constant_admission
else:
    __getattr__ = imported_later(
        __name__,
        {
            "tidegate.policies": ["POLICIES", "ControlOptions", "JointPolicy"],
            "tidegate.policies.presets": ["EXPERIMENTS", "PRESETS", "Experiment", "make_policy"],
            "tidegate.prices": [
                "ConstantPrice",
                "MarkovPrice",
                "PriceLaw",
                "RecordedPrices",
                "UniformPrice",
                "price_feed",
                "price_law",
            ],
            "tidegate.problem": ["LearningConstants", "Problem"],
            "tidegate.simulation.offline": ["select_offline", "try_horizons"],
            "tidegate.simulation.rounds": [
                "Run",
                "SimulationState",
                "begin",
                "play_round",
                "simulate",
            ],
            "tidegate.simulation.summary": ["PolicySummary", "paired_differences", "summarise"],
            "tidegate.theory.parameters": [
                "Plan",
                "plan_constant_admission",
                "search_constant_admission",
            ],
        },
    )

__version__ = "0.3.0.dev0"

__all__ = [
    "EXPERIMENTS",
    "POLICIES",
    "PRESETS",
    "ConstantPrice",
    "ControlOptions",
    "Experiment",
    "JointPolicy",
    "LearningConstants",
    "MarkovPrice",
    "Plan",
    "PolicySummary",
    "PriceLaw",
    "Problem",
    "RecordedPrices",
    "Run",
    "SimulationState",
    "UniformPrice",
    "begin",
    "make_policy",
    "paired_differences",
    "plan_constant_admission",
    "play_round",
    "price_feed",
    "price_law",
    "search_constant_admission",
    "select_offline",
    "simulate",
    "summarise",
    "try_horizons",
]
