import math

import numpy as np
import pytest

from exact_comparison import comparison_terms, infinite_horizon_penalty
from tidegate.admission.interval import ClosingInterval
from tidegate.problem import LearningConstants
from tidegate.theory.bounds import constant_admission_sizes, costless_oracle_sizes, regret
from tidegate.theory.guarantees import IntervalEnds, comparison_penalty
from tidegate.theory.penalty import surrogate_penalty

LEARNING = LearningConstants()
TARGET, HORIZON = 10.0, 4


def test_ends_are_those_of_the_rule() -> None:
    ends, interval = IntervalEnds.closing(TARGET, 0.9, 80), ClosingInterval(TARGET, 0.9)
    pairs = [interval.at(t) for t in range(1, 81)]
    assert ends.lower == pytest.approx([pair.lower for pair in pairs])
    assert ends.upper == pytest.approx([pair.upper for pair in pairs])


def test_infinite_horizon_penalty_is_the_printed_one_from_round_k() -> None:
    penalty = infinite_horizon_penalty(TARGET, HORIZON, 60, LEARNING)
    for t in range(10, 61):  # N = 10 t >= Pdim = 100
        gap = 1 / 40 - 1 / (10 * t)
        ratio = 10 * t / 100
        printed = math.sqrt(gap) + 0.5 * gap + 10 * math.sqrt((1 + math.log(ratio)) / ratio)
        assert penalty[t - 1] == pytest.approx(printed)


def test_finite_horizon_penalty_is_the_printed_one_once_it_is_real() -> None:
    ends = IntervalEnds.closing(TARGET, 0.9, 80)
    penalty = comparison_penalty(ends, HORIZON, LEARNING, as_printed=True)
    lower, upper = ends.lower, ends.upper
    for t in range(40, 81):
        stored = 3 * lower[t - 4 - 1] + 10
        fewest, most = lower[: t - 1].sum() + 10, upper[: t - 1].sum() + 10
        gap = 1 / stored - 1 / fewest
        assert fewest > 100
        printed = (
            math.sqrt(gap)
            + 0.5 * gap
            + 10 * min(1, math.sqrt(100 / fewest) * math.sqrt(1 + math.log(most / 100)))
        )
        assert penalty[t - 1] == pytest.approx(printed)


def test_a_closed_interval_leaves_only_the_first_rounds_between_the_two() -> None:
    closed = np.full(100, TARGET)
    ends = IntervalEnds(TARGET, closed, closed)
    finite = comparison_penalty(ends, HORIZON, LEARNING, as_printed=True)
    infinite = infinite_horizon_penalty(TARGET, HORIZON, 100, LEARNING)
    assert finite[8:] == pytest.approx(infinite[8:])


def test_the_chain_adds_up_to_the_regret() -> None:
    """Reg = Ω1 + Ω2 + Ω3 + (Σp - Σp̄^CK): with +Ω1, where the paper's display has -Ω1."""
    rounds = 200
    sizes = constant_admission_sizes(10.0, 4, rounds)
    ends = IntervalEnds.closing(TARGET, 0.9, rounds)
    terms = comparison_terms(sizes, ends, HORIZON, 40, LEARNING)
    surrogate = surrogate_penalty(sizes.training_size, sizes.distinct_samples, LEARNING)
    finite = comparison_penalty(ends, HORIZON, LEARNING, as_printed=True)
    bridge = np.cumsum(surrogate - finite)
    total = terms.reuse + terms.interval + terms.freshness + bridge
    assert total == pytest.approx(regret(sizes, 40, LEARNING))
    assert terms.reuse[-1] > 0


def test_freshness_grows_like_the_root_of_t_not_like_its_logarithm() -> None:
    """Ω3 = O(log T) is claimed; its last term is not Lipschitz at 0 and sums to √(T log T)."""
    rounds = 2**17
    sizes, closed = costless_oracle_sizes(100, rounds), np.full(rounds, TARGET)
    ends = IntervalEnds(TARGET, closed, closed)
    freshness = comparison_terms(sizes, ends, 10, 100, LEARNING).freshness
    at = 2 ** np.arange(10, 18) - 1
    slope = np.polyfit(np.log(at + 1), np.log(freshness[at]), 1)[0]
    assert 0.5 < slope < 0.65
    # Were it O(log T), doubling T would add a constant; the increments grow instead.
    steps = np.diff(freshness[at])
    assert np.all(np.diff(steps) > 0)
