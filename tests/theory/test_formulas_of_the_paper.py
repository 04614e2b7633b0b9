"""Formulas of the paper, written here from its text alone, against the code that stands for them.

Names of equations are the labels in the paper's source; ``docs/paper.md`` lists all of them. Other
formulas are tested beside the code that they are about.
"""

import math

import numpy as np
import pytest
from check_size import at_size
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate._internal.arrays import EVERYONE
from tidegate.admission.debt import next_cost_debt
from tidegate.admission.interval import ClosingInterval
from tidegate.admission.objective import Objective
from tidegate.problem import LearningConstants
from tidegate.retention.k_step import KStepRetention
from tidegate.theory.bounds import (
    bound_terms,
    constant_admission_sizes,
    costless_oracle_sizes,
)
from tidegate.theory.guarantees import IntervalEnds, comparison_penalty, drift_constants
from tidegate.theory.penalty import generalisation_term, surrogate_penalty
from tidegate.theory.reuse import (
    ReuseTally,
    k_step_tally,
    reuse_deficit,
    squared_reuse_deficit,
)

ADMISSIONS = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=14
).filter(lambda rounds: any(map(any, rounds)))
"""λ_1(t) and λ_2(t) of two clients."""


class World:
    """Two clients and their samples (m, i), moved by the indicators of Section 3.1."""

    def __init__(self, horizon: int) -> None:
        self.horizon = horizon
        self.present: list[tuple[int, int]] = []
        """(m, i) with q_{m,i}^t = 1."""
        self.ages: dict[tuple[int, int], int] = {}
        """A_{m,i}^t of every sample that was ever admitted."""

    def admit(self, counts: tuple[int, ...]) -> None:
        """a_{m,i}(t) = 1 for λ_m(t) new samples of client m (eq:lambda-def)."""
        before = set(self.present)
        for client, count in enumerate(counts):
            begun = sum(owner == client for owner, _ in self.ages)
            self.present += [(client, begun + number) for number in range(count)]
        for sample in self.present:  # eq:age-evolution
            self.ages[sample] = self.ages[sample] + 1 if sample in before else 1

    def drop(self) -> list[tuple[int, int]]:
        """d_{m,i}(t) = 1{A_{m,i}^t = K} (eq:kstep-drop); returns what leaves."""
        leaving = [sample for sample in self.present if self.ages[sample] == self.horizon]
        self.present = [sample for sample in self.present if sample not in leaving]
        return leaving


@settings(max_examples=at_size(50, 300))
@given(admissions=ADMISSIONS, horizon=st.integers(1, 6))
def test_buffers_ages_and_drops(admissions: list[tuple[int, int]], horizon: int) -> None:
    """eq:lambda-def, eq:buffer-occupancy, eq:age-evolution, eq:kstep-drop, eq:nc-Nc."""
    world = World(horizon)
    buffers = KStepRetention(horizon).buffers(np.array([100, 100]), len(admissions))
    totals: list[int] = []
    for t, counts in enumerate(admissions):
        stored = buffers.step(EVERYONE, np.array(counts, dtype=np.int32))
        world.admit(counts)
        occupancy = [sum(owner == client for owner, _ in world.present) for client in (0, 1)]
        assert stored.occupancy.tolist() == occupancy
        assert stored.prior_uses == sum(world.ages[sample] - 1 for sample in world.present)
        totals.append(sum(counts))
        left = totals[t - horizon] if t >= horizon else 0
        before = sum(totals[max(t - horizon, 0) : t])
        assert sum(occupancy) == before - left + totals[t]  # n(t) = n(t-1) - Λ(t-K) + Λ(t)
        assert len(world.ages) == sum(totals)  # N(t) = N(t-1) + Λ(t)
        assert int(stored.expiring.sum()) == len(world.drop())


@settings(max_examples=at_size(50, 300))
@given(admissions=ADMISSIONS, horizon=st.integers(1, 6))
def test_reuse_uniformity_and_its_closed_form(
    admissions: list[tuple[int, int]], horizon: int
) -> None:
    """eq:Vtilde-def-body, eq:Neff-def, eq:boundary-deficit-1 and -2, eq:kstep-vtilde-exact."""
    world, tally, t = World(horizon), ReuseTally(), len(admissions)
    for counts in admissions:
        world.admit(counts)
        tally = tally.after_round(
            admitted=sum(counts),
            training_size=len(world.present),
            prior_uses=sum(world.ages[sample] - 1 for sample in world.present),
        )
        world.drop()
    uses = np.array(list(world.ages.values()), dtype=float)
    uniformity = uses.mean() ** 2 / (uses.mean() ** 2 + uses.var())
    distinct, totals = len(uses), [sum(counts) for counts in admissions]
    recent = range(max(t - horizon + 2, 1), t + 1)
    first = sum((horizon - (t - j + 1)) * totals[j - 1] for j in recent)
    second = sum((horizon**2 - (t - j + 1) ** 2) * totals[j - 1] for j in recent)
    assert reuse_deficit(totals, horizon) == first
    assert squared_reuse_deficit(totals, horizon) == second
    exact = (horizon * distinct - first) ** 2 / (distinct * (horizon**2 * distinct - second))
    for value in (exact, tally.reuse_uniformity, k_step_tally(totals, horizon).reuse_uniformity):
        assert value == pytest.approx(uniformity)
    assert tally.effective_sample_size == pytest.approx(distinct * uniformity)
    weights = uses / uses.sum()  # eq:omega-def-opt
    assert np.sum(weights**2) == pytest.approx(1 / tally.effective_sample_size)  # eq:omega-l2


@given(
    debt=st.floats(0, 1e4),
    share=st.floats(0, 1),
    price=st.floats(1, 10),
    round_number=st.integers(1, 50),
)
def test_the_drift_of_a_round(debt: float, share: float, price: float, round_number: int) -> None:
    """eq:Z-update, eq:lyapunov-dpp, eq:lambda-min-max, eq:dpp-upper-1 with B of the round."""
    rho, target, budget = 0.9, 10.0, 55.0
    interval = ClosingInterval(target, rho).at(round_number)
    assert interval.lower == pytest.approx(target * (1 - rho**round_number))
    assert interval.upper == pytest.approx(target / (1 - rho**round_number))
    spent = price * (interval.lower + share * (interval.upper - interval.lower))
    after = next_cost_debt(debt, spent, budget)
    assert after == max(debt + spent - budget, 0.0)
    ends = IntervalEnds.closing(target, rho, 50)
    constant = drift_constants(ends, 1.0, 10.0, budget)[round_number - 1]
    drift = after**2 / 2 - debt**2 / 2
    assert drift <= debt * (spent - budget) + constant * (1 + 1e-9) + 1e-6


def printed_penalty(stored: float, distinct: float, learning: LearningConstants) -> float:
    """eq:penalty-dpp, where N >= Pdim."""
    gap, ratio = 1 / stored - 1 / distinct, distinct / learning.pseudo_dimension
    return (
        learning.domain_diameter * learning.gradient_noise * math.sqrt(gap)
        + learning.learning_rate * learning.gradient_noise**2 * gap
        + 10 * learning.loss_bound * math.sqrt(1 / ratio) * math.sqrt(1 + math.log(ratio))
    )


def test_drift_plus_penalty() -> None:
    """eq:dpp-upper-2: J_t = Z (cΛ - C) + V p; the objective leaves out Z C, which moves nothing."""
    learning = LearningConstants(domain_diameter=3.0, gradient_noise=2.0, pseudo_dimension=20.0)
    debt, price, weight, carried, distinct = 7.0, 4.0, 11.0, 30.0, 90.0
    objective = Objective(debt * price, weight, carried, distinct, learning)
    for total in (0.0, 1.0, 12.5, 400.0):
        penalty = printed_penalty(carried + total, distinct + total, learning)
        expected = debt * (price * total - 55.0) + weight * penalty
        assert objective.value(total) - debt * 55.0 == pytest.approx(expected)


def test_the_bound_of_constant_admission() -> None:
    """eq:ck-training-size, eq:ck-distinct-samples, eq:ck-bound-detail, eq:vck-exact with 4K + 1."""
    learning = LearningConstants(pseudo_dimension=25.0, gradient_noise=2.0)
    target, horizon, rounds = 10.0, 4, 60
    terms = bound_terms(constant_admission_sizes(target, horizon, rounds), learning).total
    for t in range(horizon, rounds + 1):
        uniformity = (horizon * t - horizon * (horizon - 1) / 2) ** 2 / (
            t * (horizon**2 * t - horizon * (horizon - 1) * (4 * horizon + 1) / 6)
        )
        gap = max(1 / (target * horizon) - 1 / (target * t * uniformity), 0.0)
        last = math.sqrt(25 / (target * t * uniformity)) * math.sqrt(1 + math.log(target * t / 25))
        expected = 2 * math.sqrt(gap) + 0.5 * 4 * gap + 10 * min(last, 1.0)
        assert terms[t - 1] == pytest.approx(expected)


@pytest.mark.parametrize("rho", [0.3, 0.9, 0.99])
def test_lower_ends_of_training_size_and_distinct_samples(rho: float) -> None:
    """eq:nc-lb, eq:Nc-lb, eq:app-nNlb, eq:app-nlb-recip-detail."""
    target, horizon, rounds = 10.0, 4, 200
    ends = IntervalEnds.closing(target, rho, rounds)
    for t in range(horizon + 1, rounds + 1):
        stored = horizon * target - (horizon - 1) * target * rho ** (t - horizon)
        distinct = target * t - target * sum(rho**tau for tau in range(1, t))
        assert (horizon - 1) * ends.lower[t - horizon - 1] + target == pytest.approx(stored)
        assert ends.lower[: t - 1].sum() + target == pytest.approx(distinct)
        above = 1 / stored - 1 / (target * horizon)
        exact = (horizon - 1) * rho ** (t - horizon)
        exact /= target * horizon * (horizon - (horizon - 1) * rho ** (t - horizon))
        assert above == pytest.approx(exact, abs=1e-15)
        majorant = (horizon - 1) / (target * horizon) * rho ** (t - horizon)
        assert above <= majorant * (1 + 1e-9) + 1e-15


def test_reuse_deficits_fade() -> None:
    """eq:app-vtilde-gap-1 and -2: 1 - Ṽ is O(1/t), 1/(NṼ) - 1/N is O(1/t²)."""
    gaps = []
    for t in (100, 1000, 10_000):
        tally = k_step_tally([10] * t, 10)
        inverse = 1 / tally.effective_sample_size - 1 / tally.distinct_samples
        gaps.append((t * (1 - tally.reuse_uniformity), t**2 * inverse))
    for scaled in np.transpose(gaps):
        assert scaled == pytest.approx(np.full(3, scaled[-1]), rel=0.1)


def test_the_gap_to_the_oracle() -> None:
    """eq:app-oracle-gap: 1/(Λ̄t) - 1/(B̄t) = (K-1)/(B̄t), where B̄ = KΛ̄."""
    distinct = constant_admission_sizes(10.0, 10, 500).distinct_samples
    oracle = costless_oracle_sizes(100, 500).distinct_samples
    gap = (10 - 1) / (100 * np.arange(1, 501))
    assert 1 / distinct - 1 / oracle == pytest.approx(gap)


def test_the_generalisation_term_is_not_lipschitz_at_zero() -> None:
    """Lemma 4's step: as a function of x = 1/N its slope grows without limit where x goes to 0."""
    distinct = np.logspace(3, 12, 10, dtype=np.float64)
    term = generalisation_term(distinct, distinct, LearningConstants())
    slopes = np.diff(term) / np.diff(1 / distinct)
    assert np.all(slopes[1:] > 2 * slopes[:-1])


@given(
    sizes=st.lists(st.floats(1, 75), min_size=2, max_size=10),
    distinct=st.floats(100, 1e6),
)
def test_a_steady_training_size_is_best_up_to_three_quarters_of_the_distinct_samples(
    sizes: list[float], distinct: float
) -> None:
    """Section 5.2: with the same mean, sizes that vary cost more; √(1/n - 1/N) needs n <= ¾N."""
    learning, varied = LearningConstants(domain_diameter=3.0), np.array(sizes)
    everything = np.full(len(sizes), distinct)
    steady = surrogate_penalty(np.full(len(sizes), varied.mean()), everything, learning).sum()
    assert steady <= surrogate_penalty(varied, everything, learning).sum() * (1 + 1e-9)
    beyond = surrogate_penalty(np.array([80.0, 90.0, 100.0]), np.full(3, 100.0), learning)
    assert beyond[1] > (beyond[0] + beyond[2]) / 2


def test_after_the_interval_has_closed_nothing_is_left_of_the_comparison() -> None:
    """eq:pC-upper-explicit tends to eq:pc-infty, printed and repaired."""
    learning = LearningConstants()
    ends = IntervalEnds.closing(10.0, 0.8, 5000)
    for as_printed in (True, False):
        penalty = comparison_penalty(ends, 10, learning, as_printed=as_printed)
        for t in (1000, 5000):
            limit = printed_penalty(100.0, 10.0 * t, learning)
            assert penalty[t - 1] == pytest.approx(limit, rel=3 / t)
