import math
from typing import Any

import numpy as np
import pytest

from tidegate._internal.randomness import generator
from tidegate.policies.presets import EXPERIMENTS, make_policy
from tidegate.problem import LearningConstants, Problem

GIVEN: dict[str, Any] = {
    "buffer_capacities": [4, 6],
    "budget": 5.0,
    "mean_price": 2.0,
    "num_rounds": 10,
}


def test_what_follows_from_what_is_given() -> None:
    problem = Problem(**GIVEN)
    assert problem.num_clients == 2
    assert problem.total_capacity == 10
    assert problem.capacity_shares.tolist() == [0.4, 0.6]
    assert problem.affordable_admission == 2.5


def test_capacities_cannot_be_changed_from_outside() -> None:
    capacities = np.array([4, 6])
    problem = Problem(**{**GIVEN, "buffer_capacities": capacities})
    capacities[0] = 99
    assert problem.total_capacity == 10
    with pytest.raises(ValueError, match="read-only"):
        problem.capacities[0] = 1


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"buffer_capacities": []}, "at least one client"),
        ({"buffer_capacities": [[1, 2]]}, "at least one client"),
        ({"buffer_capacities": [1.5, 2.0]}, "whole numbers, got float64"),
        ({"buffer_capacities": [3, 0]}, "at least 1 sample, got 0; leave out"),
        ({"buffer_capacities": [3_000_000_000]}, "at most 100000000, got 3000000000; count larger"),
        ({"mean_price": [1.0, 2.0, 3.0]}, r"one number or one a client \(2\), got 3"),
        ({"budget": 0.0}, "budget must be positive and finite, .*, got 0.0"),
        ({"budget": 1e-320}, "from 1e-15 to 1e.15, got 1e-320; count money in another unit"),
        ({"mean_price": math.nan}, "mean_price must be positive and finite, .*, got nan"),
        (
            {"num_rounds": 0},
            "num_rounds must be a whole number of at least 1 and at most 10000000, got 0",
        ),
        ({"num_rounds": 5.5}, "num_rounds must be a whole number of at least 1 .*, got 5.5"),
        ({"num_rounds": "10"}, "num_rounds must be a whole number of at least 1 .*, got '10'"),
        ({"buffer_capacities": "10"}, r"one client's capacity, such as \[8, 12\], got '10'"),
        ({"buffer_capacities": 10}, r"one client's capacity, such as \[8, 12\], got 10"),
        ({"budget": "5"}, "budget must be positive and finite, .*, got '5'"),
        ({"mean_price": "2"}, "mean_price must be a number, got '2'"),
        ({"num_rounds": 10**400}, "at most 10000000, got 1000"),
    ],
)
def test_impossible_problems_are_refused(change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Problem(**{**GIVEN, **change})


def test_learning_constants_are_positive() -> None:
    with pytest.raises(ValueError, match=r"gradient_noise must be positive and finite, .*, got -1"):
        LearningConstants(gradient_noise=-1.0)


def test_seeds_are_not_negative() -> None:
    with pytest.raises(ValueError, match="seed must be a whole number of at least 0, got -1"):
        generator(-1)


def test_unknown_names_list_the_known_ones() -> None:
    problem = EXPERIMENTS["mnist"].problem()
    with pytest.raises(ValueError, match="unknown policy 'ebb'; choose from costless_oracle, "):
        make_policy("ebb", problem)
    with pytest.raises(ValueError, match="choose from as_printed, released_settings"):
        make_policy("acdpp", problem, preset="printed")


def test_hybrid_needs_somebody_to_be_stale() -> None:
    with pytest.raises(ValueError, match="at least 2 clients"):
        make_policy("hybrid", Problem(**{**GIVEN, "buffer_capacities": [9]}))
