import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis.strategies import floats

from tidegate.problem import LearningConstants
from tidegate.theory.penalty import generalisation_term, penalty_terms, reuse_gap, surrogate_penalty

LEARNING = LearningConstants(
    domain_diameter=2.0,
    gradient_noise=3.0,
    loss_bound=1.5,
    learning_rate=0.25,
    pseudo_dimension=50.0,
)


def test_three_terms_where_the_paper_is_well_defined() -> None:
    # n = 40, N = 200 > Pdim = 50: the printed formula, by hand.
    terms = penalty_terms(np.array([40.0]), np.array([200.0]), LEARNING)
    gap = 1 / 40 - 1 / 200
    assert terms.gradient_mismatch[0] == pytest.approx(2 * 3 * math.sqrt(gap))
    assert terms.gradient_variance[0] == pytest.approx(0.25 * 9 * gap)
    assert terms.generalisation[0] == pytest.approx(
        10 * 1.5 * math.sqrt(50 / 200) * math.sqrt(1 + math.log(200 / 50))
    )
    assert terms.total[0] == pytest.approx(
        terms.gradient_mismatch[0] + terms.gradient_variance[0] + terms.generalisation[0]
    )


def test_theorem_1_takes_the_effective_size_everywhere_but_in_the_logarithm() -> None:
    terms = penalty_terms(
        np.array([40.0]), np.array([200.0]), LEARNING, effective_samples=np.array([160.0])
    )
    gap = 1 / 40 - 1 / 160
    assert terms.gradient_variance[0] == pytest.approx(0.25 * 9 * gap)
    assert terms.generalisation[0] == pytest.approx(
        10 * 1.5 * math.sqrt(50 / 160) * math.sqrt(1 + math.log(200 / 50))
    )


@given(
    stored=floats(0.01, 1e6),
    dropped=floats(0, 1e6),
    step=floats(1e-3, 1e6),
    pseudo_dimension=floats(0.1, 1e5),
)
def test_admitting_more_never_costs_more(
    stored: float, dropped: float, step: float, pseudo_dimension: float
) -> None:
    learning = LearningConstants(pseudo_dimension=pseudo_dimension)
    sizes = np.array([stored, stored + step])
    before, after = surrogate_penalty(sizes, sizes + dropped, learning)
    assert math.isfinite(before)
    assert after <= before * (1 + 1e-12)


def test_the_penalty_is_not_decreasing_in_distinct_samples_alone() -> None:
    # The proofs say it is; the first two terms grow with N, and here they win.
    learning = LearningConstants(domain_diameter=1000.0)
    few, many = surrogate_penalty(np.array([50.0, 50.0]), np.array([60.0, 600.0]), learning)
    assert many > few


@given(distinct=floats(0, 1e9), share=floats(1e-6, 1), pseudo_dimension=floats(0.1, 1e5))
def test_generalisation_is_real_and_never_above_ten_times_the_loss_bound(
    distinct: float, share: float, pseudo_dimension: float
) -> None:
    learning = LearningConstants(pseudo_dimension=pseudo_dimension, loss_bound=2.0)
    term = generalisation_term(np.array([distinct]), np.array([distinct * share]), learning)[0]
    assert 0 < term <= 20.0
    if distinct <= pseudo_dimension:
        assert term == 20.0


def test_generalisation_is_continuous_at_the_pseudo_dimension() -> None:
    distinct = np.array([50 - 1e-9, 50.0, 50 + 1e-9])
    terms = generalisation_term(distinct, 0.7 * distinct, LEARNING)
    assert np.ptp(terms) < 1e-6


def test_the_printed_term_fails_where_the_extension_holds() -> None:
    def printed(distinct: float) -> float:
        return 15 * math.sqrt(50 / distinct) * math.sqrt(1 + math.log(distinct / 50))

    with pytest.raises(ValueError, match="math domain"):
        printed(50 / math.e - 1)
    assert printed(25) < printed(50)  # rising, where more samples should help


def test_concave_up_to_1_73_pdim_and_convex_beyond() -> None:
    inflection = math.exp((math.sqrt(7) - 1) / 3)
    assert inflection == pytest.approx(1.7308, abs=1e-4)
    for ratios, sign in (
        (np.linspace(1.0, inflection, 400), -1),
        (np.geomspace(inflection, 1e4, 4000), 1),
    ):
        values = generalisation_term(50 * ratios, 50 * ratios, LEARNING)
        slopes = np.diff(values) / np.diff(ratios)
        assert np.all(sign * np.diff(slopes) > -1e-9)


def test_reuse_gap_is_never_negative_and_one_for_an_empty_round() -> None:
    gap = reuse_gap(np.array([10.0, 10.0, 0.0, 0.0]), np.array([8.0, 20.0, 0.0, 5.0]))
    assert gap.tolist() == [0.0, pytest.approx(0.05), 1.0, 1.0]


@pytest.mark.parametrize(("stored", "distinct"), [(-1.0, 2.0), (3.0, 2.0)])
def test_impossible_sizes_are_refused(stored: float, distinct: float) -> None:
    with pytest.raises(ValueError, match="0 <= n <= N"):
        penalty_terms(np.array([stored]), np.array([distinct]), LEARNING)
