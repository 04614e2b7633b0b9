"""The guarantees of ACDPP against brute force, and against runs that are counted."""

import itertools
from functools import partial

import numpy as np
import pytest
from check_size import at_size
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate
from tidegate._internal.arrays import FloatArray
from tidegate.admission.interval import AdmissionInterval
from tidegate.admission.minimise import minimise
from tidegate.admission.objective import Objective
from tidegate.problem import LearningConstants, Problem
from tidegate.theory.bounds import SampleSizes, bound_terms, costless_oracle_sizes, regret
from tidegate.theory.guarantees import (
    IntervalEnds,
    acdpp_guarantees,
    comparison_penalty,
    drift_constants,
    reuse_excess,
)
from tidegate.theory.parameters import plan_constant_admission
from tidegate.theory.penalty import surrogate_penalty

guarantees = partial(acdpp_guarantees, lowest_price=1.0, highest_price=10.0)
"""At the paper's prices."""


def window(values: FloatArray, horizon: int) -> FloatArray:
    """The sum of each value and the K - 1 before it."""
    return np.array([values[max(t + 1 - horizon, 0) : t + 1].sum() for t in range(len(values))])


def test_drift_constants_equal_a_scan_of_prices_and_totals() -> None:
    ends = IntervalEnds.closing(10.0, contraction=0.9, num_rounds=30)
    for budget in (1.0, 55.0, 5000.0):
        constants = drift_constants(ends, 1.0, 10.0, budget)
        for t in range(30):
            spent = np.outer(np.linspace(1, 10, 19), np.linspace(ends.lower[t], ends.upper[t], 21))
            assert np.max((spent - budget) ** 2) / 2 == pytest.approx(constants[t])


def test_the_printed_comparison_penalty_is_no_bound() -> None:
    """Lemma 1 says p^CK(3) <= p̄^CK(3): "the penalty is decreasing in both"; N is not so."""
    learning = LearningConstants(domain_diameter=1000, gradient_noise=10, pseudo_dimension=1)
    ends = IntervalEnds.closing(10.0, contraction=0.99, num_rounds=3)
    first, second = ends.upper[0], ends.lower[1]  # 1,000 and 0.2 samples, both allowed
    stored, distinct = np.array([second + 10.0]), np.array([first + second + 10.0])  # K = 2
    (penalty,) = surrogate_penalty(stored, distinct, learning)
    assert penalty == pytest.approx(3121, abs=0.5)
    printed = comparison_penalty(ends, 2, learning, as_printed=True)[2]
    assert printed == pytest.approx(446, abs=0.5)
    assert penalty <= comparison_penalty(ends, 2, learning)[2]


@settings(max_examples=at_size(60, 400))
@given(
    shares=st.lists(st.floats(0, 1), min_size=1, max_size=25),
    horizon=st.integers(1, 8),
    contraction=st.floats(0.01, 0.999),
    diameter=st.sampled_from([0.01, 1.0, 1000.0]),
    pdim=st.sampled_from([0.5, 100.0, 1e4]),
)
def test_the_repaired_comparison_penalty_bounds_every_path(
    shares: list[float], horizon: int, contraction: float, diameter: float, pdim: float
) -> None:
    learning = LearningConstants(domain_diameter=diameter, pseudo_dimension=pdim)
    ends = IntervalEnds.closing(10.0, contraction, len(shares))
    path = ends.lower + np.array(shares) * (ends.upper - ends.lower)
    stored = window(path, horizon) - path + 10.0  # the round itself admits the target
    distinct = np.maximum(np.cumsum(path) - path + 10.0, stored)
    penalty = surrogate_penalty(stored, distinct, learning)
    # Where nothing has expired, the root of what rounding leaves of 1/n - 1/N may differ.
    assert np.all(
        penalty <= comparison_penalty(ends, horizon, learning) * (1 + 1e-6) + 1e-6 * diameter
    )


def test_the_repaired_comparison_costs_no_more_than_lemma_3_allows() -> None:
    """Σ p̄ less that of the limit (n = KΛ̄, N = Λ̄t) is at most a multiple of 1/(1-ρ), at any T."""
    learning, rounds = LearningConstants(), 100_000
    distinct = 10.0 * np.arange(1, rounds + 1, dtype=np.float64)
    limit = surrogate_penalty(np.minimum(distinct, 100.0), distinct, learning)
    for contraction in (0.5, 0.9, 0.99):
        ends = IntervalEnds.closing(10.0, contraction, rounds)
        excess = np.cumsum(comparison_penalty(ends, 10, learning) - limit)
        assert np.max(excess) * (1 - contraction) < 10
        assert excess[-1] < 1.1 * excess[9_999]


@settings(max_examples=at_size(60, 400))
@given(
    shares=st.lists(st.floats(0, 1), min_size=1, max_size=25),
    horizon=st.integers(1, 8),
    contraction=st.floats(0.01, 0.99),
    pdim=st.sampled_from([0.5, 5.0, 100.0]),
)
def test_reuse_adds_no_more_than_its_bound(
    shares: list[float], horizon: int, contraction: float, pdim: float
) -> None:
    learning = LearningConstants(pseudo_dimension=pdim)
    ends = IntervalEnds.closing(10.0, contraction, len(shares))
    path = ends.lower + np.array(shares) * (ends.upper - ends.lower)
    rounds = np.arange(len(path))
    uses = np.clip(rounds[:, None] - rounds[None, :] + 1, 0, horizon)  # of a sample, by its round
    effective = (uses @ path) ** 2 / (uses**2 @ path)
    distinct = np.cumsum(path)
    stored = np.minimum(window(path, horizon), distinct)
    bound = bound_terms(SampleSizes(stored, distinct, effective), learning).total
    excess = bound - surrogate_penalty(stored, distinct, learning)
    assert np.all(excess <= reuse_excess(ends, horizon, learning) + 1e-6)


@pytest.mark.parametrize("weight", [0.1, 10.0, 1000.0])
def test_every_guarantee_holds_in_expectation_over_all_price_paths(weight: float) -> None:
    """All 2⁷ paths of prices 1 and 3, with totals in real numbers as in the proofs."""
    learning = LearningConstants(domain_diameter=20.0, pseudo_dimension=5.0)
    problem = Problem(
        buffer_capacities=[6], budget=6.0, mean_price=2.0, num_rounds=7, learning=learning
    )
    plan = plan_constant_admission(problem)
    horizon, target, rounds = plan.retention_horizon, plan.target_admission, problem.num_rounds
    assert (horizon, target) == (2, 3.0)
    ends = IntervalEnds.closing(target, contraction=0.6, num_rounds=rounds)
    figures = []
    for prices in itertools.product([1.0, 3.0], repeat=rounds):
        debt, admitted = 0.0, np.zeros(0)
        for t, price in enumerate(prices):
            objective = Objective(
                cost_slope=debt * price,
                penalty_weight=weight,
                carried_samples=float(admitted[max(t + 1 - horizon, 0) :].sum()),
                distinct_samples=float(admitted.sum()),
                learning=learning,
            )
            interval = AdmissionInterval(float(ends.lower[t]), float(ends.upper[t]))
            total = minimise(objective, interval).admission
            admitted = np.append(admitted, total)
            debt = max(debt + price * total - problem.budget, 0.0)
        distinct = np.cumsum(admitted)
        stored = np.minimum(window(admitted, horizon), distinct)
        ages = np.arange(rounds)
        uses = np.clip(ages[:, None] - ages[None, :] + 1, 0, horizon)
        effective = (uses @ admitted) ** 2 / (uses**2 @ admitted)
        sizes = SampleSizes(stored, distinct, effective)
        figures.append(
            (
                surrogate_penalty(stored, distinct, learning).sum(),
                regret(sizes, problem.total_capacity, learning)[-1],
                np.dot(prices, admitted) - problem.budget * rounds,
                debt,
                debt**2 / 2,
                (stored - problem.total_capacity).sum(),
            )
        )
    penalty, regretted, violation, last_debt, energy, overfull = np.mean(figures, axis=0)
    bounds = acdpp_guarantees(
        problem, lowest_price=1.0, highest_price=3.0, penalty_weight=weight, contraction=0.6
    )
    assert energy + weight * penalty <= weight * bounds.surrogate_penalty  # Lemma 1, repaired
    assert regretted <= bounds.regret
    assert violation <= last_debt <= bounds.cost_violation
    assert overfull <= bounds.buffer_violation


@pytest.mark.parametrize(("gamma", "phi"), [(0.5, 0.5), (0.3, 0.3), (0.2, 0.8)])
def test_guarantees_are_never_below_simulated_runs(gamma: float, phi: float) -> None:
    mnist = tidegate.EXPERIMENTS["mnist"]
    problem = mnist.problem(num_rounds=at_size(100, 1000))
    rounds, seeds = problem.num_rounds, at_size(3, 10)
    policy = tidegate.make_policy(
        "acdpp", problem, penalty_exponent=gamma, contraction_exponent=phi
    )
    runs = [tidegate.simulate(policy, problem, mnist.price, seed) for seed in range(seeds)]
    bounds = guarantees(problem, penalty_weight=rounds**gamma, contraction=1 - rounds**-phi)
    learning = problem.learning
    penalties = [
        surrogate_penalty(run.sizes.training_size, run.sizes.distinct_samples, learning).sum()
        for run in runs
    ]
    assert np.mean(penalties) <= bounds.surrogate_penalty
    assert np.mean([regret(run.sizes, 100, learning)[-1] for run in runs]) <= bounds.regret
    assert np.mean([run.columns["cost_debt"][-1] for run in runs]) <= bounds.cost_violation
    excess = np.mean([run.excess for run in runs], axis=0)
    assert np.maximum(excess, 0).sum() <= bounds.buffer_violation


def test_the_printed_drift_constant_says_nothing_and_the_one_by_round_little() -> None:
    """V = √T, ρ = 1 - 1/√T, T = 1,000. The whole budget is 55,000."""
    problem = tidegate.EXPERIMENTS["mnist"].problem()
    weight, rho = 1000**0.5, 1 - 1000**-0.5
    printed = guarantees(problem, penalty_weight=weight, contraction=rho, as_printed=True)
    repaired = guarantees(problem, penalty_weight=weight, contraction=rho)
    # (10 · 10 · √1000 - 55)² / 2 in each of 1,000 rounds, over V.
    first = (100 * 1000**0.5 - 55) ** 2 / 2
    assert printed.regret == pytest.approx(first * 1000 / 1000**0.5, rel=1e-3)
    assert printed.regret == pytest.approx(1.5e8, rel=0.02)
    assert printed.cost_violation == pytest.approx(98_262, abs=1)
    assert repaired.cost_violation == pytest.approx(4_234, abs=1)
    assert repaired.regret == pytest.approx(282_256, abs=1)


@pytest.mark.parametrize(("gamma", "phi"), [(0.5, 0.5), (0.3, 0.3), (0.7, 0.3), (0.2, 0.8)])
def test_the_repaired_guarantees_have_the_order_that_is_proved(gamma: float, phi: float) -> None:
    """The constants of the proof in docs/theory.md, from T = 10² to 10⁶; for regret its order."""
    ratios = []
    for rounds in (100, 10_000, 1_000_000):
        problem = Problem(buffer_capacities=[100], budget=55.0, mean_price=5.5, num_rounds=rounds)
        bounds = guarantees(problem, penalty_weight=rounds**gamma, contraction=1 - rounds**-phi)
        dearest, highest_penalty = 10.0 * 10.0, 1 / 10**0.5 + 0.5 / 10 + 10
        proved = (
            dearest**2 * (4.2 * rounds ** (2 * phi) + 2.6 * rounds)
            + 55.0**2 * rounds
            + 2 * highest_penalty * rounds ** (1 + gamma)
        )
        assert bounds.cost_violation**2 <= proved
        order = rounds ** (1 - gamma) + rounds ** (2 * phi - gamma) + rounds**phi
        ratios.append(bounds.regret / (order + (rounds * np.log(rounds)) ** 0.5))
    assert max(ratios) < 1.5 * ratios[0]


def test_the_oracle_of_the_regret_keeps_nothing() -> None:
    """With K = 1 and its own rate a run has no reuse: only drift and the interval are left."""
    learning, rounds = LearningConstants(), 50
    flat = np.full(rounds, 100.0)
    ends = IntervalEnds(100.0, flat, flat)
    oracle = bound_terms(costless_oracle_sizes(100, rounds), learning).total
    assert comparison_penalty(ends, 1, learning) == pytest.approx(oracle)
    assert reuse_excess(ends, 1, learning) == pytest.approx(np.zeros(rounds))


def test_cohorts_have_no_guarantee() -> None:
    problem = Problem(
        buffer_capacities=[10, 10],
        budget=55.0,
        mean_price=5.5,
        num_rounds=10,
        cohorts=tidegate.cohorts.Cohorts(fraction_train=0.5),
    )
    with pytest.raises(ValueError, match="all clients take part"):
        guarantees(problem, penalty_weight=1.0, contraction=0.5)
