"""What more money or memory buys, and where it stops."""

import math
from functools import partial

import numpy as np
import pytest

from tidegate.policies.presets import make_policy
from tidegate.prices import UniformPrice
from tidegate.problem import Problem
from tidegate.simulation.curves import FACTORS, Curves, Point, by_budget, by_memory, trace
from tidegate.simulation.rounds import simulate
from tidegate.simulation.summary import summarise

PROBLEM = Problem(buffer_capacities=[1, 8, 12], budget=10.0, mean_price=5.5, num_rounds=60)
LAW = UniformPrice(1, 10)


def test_points_are_the_problem_with_more_or_less_and_nothing_else_changed() -> None:
    for amount, problem in by_budget(PROBLEM):
        assert problem.budget == amount
        np.testing.assert_array_equal(problem.capacities, PROBLEM.capacities)
    assert by_budget(PROBLEM)[len(FACTORS) // 2][0] == PROBLEM.budget
    slots = by_memory(PROBLEM)
    assert [amount for amount, _ in slots] == sorted({amount for amount, _ in slots})
    assert all(problem.total_capacity == amount for amount, problem in slots)
    assert min(min(problem.capacities) for _, problem in slots) == 1
    tiny = Problem(buffer_capacities=[1], budget=1.0, mean_price=1.0, num_rounds=10)
    assert [amount for amount, _ in by_memory(tiny)] == [1, 2, 3, 4]  # none twice


@pytest.mark.no_cover
@pytest.mark.long
def test_every_point_is_the_simulation_at_that_point() -> None:
    makers = {name: partial(make_policy, name) for name in ("constant_admission", "tide")}
    problems = by_budget(PROBLEM)[3:6]
    curves = trace(problems, LAW, makers, [0, 1])
    for (amount, problem), point in zip(problems, curves.points, strict=True):
        for name, make in makers.items():
            runs = [simulate(make(problem), problem, LAW, seed) for seed in (0, 1)]
            assert point.policies[name] == summarise(name, runs)
        assert point.amount == amount
        assert point.limit is not None


def curves_of(values: list[float], template: Curves) -> Curves:
    """Curves with these effective samples at 1, 2, 4, ..."""
    from dataclasses import replace

    from tidegate.simulation.summary import Estimate

    one = template.points[0].policies["tide"]
    return Curves(
        [
            Point(2.0**n, {"tide": replace(one, effective_per_round=Estimate(v, math.nan))}, None)
            for n, v in enumerate(values)
        ]
    )


@pytest.mark.parametrize(
    ("values", "end"),
    [
        ([1, 2, 4, 8], None),
        ([1, 2, 4, 4.1, 4.2], 4.0),
        ([1, 2, 2, 4, 4], 8.0),  # it began to help again
        ([3, 3, 3], 1.0),
        ([3, 2, 1], 1.0),
    ],
)
def test_a_policy_stops_helping_where_more_brings_next_to_nothing(
    values: list[float], end: float | None
) -> None:
    template = trace(by_budget(PROBLEM)[:1], LAW, {"tide": partial(make_policy, "tide")}, [0])
    assert curves_of(values, template).stops_helping("tide") == end
