"""What money, memory and a cap on uses change: the curves on the page of ``tidegate plan``."""

from dataclasses import replace
from functools import partial

from tidegate.cli.running import progress_bar
from tidegate.cli.setting import Setting
from tidegate.policies import NotApplicable
from tidegate.policies.presets import make_policy
from tidegate.problem import Problem
from tidegate.report.plan_page import PlanCurves
from tidegate.simulation.caps import looked_at, try_caps
from tidegate.simulation.curves import Maker, by_budget, by_memory, trace

CURVE_SEEDS = 3
TIDE = "tide"
"""The policy that plans with a cap on uses."""


def traced_curves(setting: Setting, policies: list[str], preset: str) -> PlanCurves:
    """Compute what money, memory and a cap on uses change, with a progress bar."""
    problem, seeds = setting.problem, setting.seeds(CURVE_SEEDS)
    budgets, sizes = by_budget(problem), by_memory(problem)
    makers = {
        name: partial(
            make_policy, name, options=setting.options, preset=preset, **setting.constants(name)
        )
        for name in policies
    }
    out = [
        name
        for name, make in makers.items()
        if not all(_applies(make, one) for _, one in (*budgets, *sizes))
    ]
    makers = {name: make for name, make in makers.items() if name not in out}
    instead = "" if makers else TIDE
    makers = makers or {TIDE: partial(make_policy, TIDE, options=setting.options)}
    caps = looked_at(problem, setting.price_law, setting.most_uses) if TIDE in makers else {}
    played = (len(budgets) + len(sizes)) * len(makers) + len(caps)
    total = played * len(seeds) * problem.num_rounds
    with progress_bar("tracing curves", total) as one_round:
        money, memory = (
            trace(
                problems,
                setting.price_law,
                makers,
                seeds,
                price_per_client=setting.price_per_client,
                each_round=one_round,
            )
            for problems in (budgets, sizes)
        )
        tried = try_caps(
            problem,
            setting.price_law,
            caps,
            lambda cap: make_policy(
                TIDE, problem, replace(setting.options, most_uses=cap), preset=preset
            ),
            seeds,
            price_per_client=setting.price_per_client,
            each_round=one_round,
        )
    return PlanCurves(money, memory, tried, out, instead)


def _applies(make: Maker, problem: Problem) -> bool:
    """Return whether a policy can be used: a cap on uses may be too low for its K."""
    try:
        make(problem)
    except NotApplicable:
        return False
    return True
