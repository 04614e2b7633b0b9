import math
from collections.abc import Iterator

import numpy as np
import pytest
from check_size import at_size

from tidegate.admission import minimise as solver
from tidegate.admission.interval import AdmissionInterval
from tidegate.admission.minimise import minimise
from tidegate.admission.objective import INFLECTION, Objective
from tidegate.problem import LearningConstants

STATES = at_size(2_000, 12_000)
LEARNING = LearningConstants()


def generated_states(count: int) -> Iterator[tuple[Objective, AdmissionInterval]]:
    """States of every kind: N below, around and far above Pdim; n = N; no debt; any width."""
    draw = np.random.default_rng(20261)

    def power(low: float, high: float) -> float:
        return float(10 ** draw.uniform(low, high))

    for number in range(count):
        pdim = power(0, 4)
        distinct = (
            pdim * draw.uniform(0, 1),
            pdim * draw.uniform(1, INFLECTION),
            pdim * power(0, 4),
            0.0,
            pdim * draw.uniform(0.5, 2),
        )[number % 5]
        carried = distinct if draw.random() < 0.25 else distinct * draw.random() ** 2
        if draw.random() < 0.1:
            carried = 0.0
        if draw.random() < 0.5:
            distinct, carried = float(round(distinct)), float(math.floor(carried))
        debt = 0.0 if draw.random() < 0.2 else power(-9, 6)
        learning = LearningConstants(
            domain_diameter=power(-2, 3),
            gradient_noise=power(-2, 2),
            loss_bound=power(-2, 3),
            learning_rate=power(-4, 0),
            pseudo_dimension=pdim,
        )
        lower = 0.0 if draw.random() < 0.3 else power(-3, 3)
        objective = Objective(debt, power(-1, 4), min(carried, distinct), distinct, learning)
        yield objective, AdmissionInterval(lower, lower + power(-3, 12))


def scan_points(objective: Objective, interval: AdmissionInterval) -> list[float]:
    lower, width = interval.lower, interval.upper - interval.lower
    pdim, distinct = objective.learning.pseudo_dimension, objective.distinct_samples
    points = np.concatenate(
        [
            np.linspace(lower, interval.upper, 150),
            lower + np.geomspace(1e-12 * width, width, 150),
            np.linspace(0.95 * pdim, 1.8 * pdim, 150) - distinct,
        ]
    )
    return np.clip(points, lower, interval.upper).tolist()  # type: ignore[no-any-return]


@pytest.mark.no_cover
@pytest.mark.long
def test_the_solver_never_loses_to_a_fine_scan() -> None:
    kinds = dict.fromkeys(("below", "between", "unreused", "without debt", "wide", "inside"), 0)
    for objective, interval in generated_states(STATES):
        minimum = minimise(objective, interval)
        scanned = min(map(objective.value, scan_points(objective, interval)))
        assert minimum.value <= scanned * (1 + 2e-12), (objective, interval)
        assert minimum.value == objective.value(minimum.admission)
        assert interval.lower <= minimum.admission <= interval.upper
        assert minimum.gap <= 2e-12 * minimum.value
        ratio = objective.distinct_samples / objective.learning.pseudo_dimension
        kinds["below"] += ratio < 1
        kinds["between"] += 1 <= ratio < INFLECTION
        kinds["unreused"] += objective.carried_samples == objective.distinct_samples
        kinds["without debt"] += objective.cost_slope == 0
        kinds["wide"] += interval.upper > 1e11
        kinds["inside"] += interval.lower < minimum.admission < interval.upper
    assert min(kinds.values()) > STATES / 40, kinds


def test_work_does_not_grow_with_the_width() -> None:
    most = {}
    for exponent in range(1, 13):
        work = [
            minimise(objective, AdmissionInterval(interval.lower, 10.0**exponent)).evaluations
            for objective, interval in generated_states(at_size(300, 1500))
            if interval.lower < 10
        ]
        most[exponent] = max(work)
    assert max(most.values()) < 1000, most
    assert max(most.values()) < 2 * most[3], most


def golden_section(objective: Objective, begin: float, end: float) -> float:
    """The textbook search for the minimum of a unimodal function."""
    ratio = (math.sqrt(5) - 1) / 2
    while end - begin > 1e-9:
        left, right = end - ratio * (end - begin), begin + ratio * (end - begin)
        if objective.value(left) < objective.value(right):
            end = right
        else:
            begin = left
    return objective.value(begin)


def test_a_golden_section_search_is_fooled_and_this_one_is_not() -> None:
    """Two local minima while N < 1.73 Pdim: buy nothing, or buy much; little is worst of all."""
    learning = LearningConstants(pseudo_dimension=100.0, gradient_noise=1e-3)
    fooled = 0
    for slope in np.linspace(0.5, 0.96, 47):
        objective = Objective(float(slope), 100.0, 100.0, 100.0, learning)
        found = golden_section(objective, 0.0, 400.0)
        minimum = minimise(objective, AdmissionInterval(0.0, 400.0))
        fooled += found > minimum.value * (1 + 1e-6)
        assert minimum.value <= found * (1 + 1e-12)
    assert fooled > 10


def test_ties_go_to_more_admission() -> None:
    # Rounds 1..K: n = N, no debt, N below Pdim: every admission costs the same.
    objective = Objective(0.0, 30.0, 0.0, 0.0, LEARNING)
    assert minimise(objective, AdmissionInterval(3.0, 90.0)).admission == 90.0


def test_the_first_round_admits_the_upper_end() -> None:
    objective = Objective(0.0, 30.0, 0.0, 0.0, LEARNING)
    assert minimise(objective, AdmissionInterval(0.3, 316.0)).admission == 316.0


def test_a_single_point_is_its_own_minimum() -> None:
    objective = Objective(5.0, 30.0, 90.0, 900.0, LEARNING)
    minimum = minimise(objective, AdmissionInterval(10.0, 10.0))
    assert (minimum.admission, minimum.gap) == (10.0, 0.0)


def test_the_gap_is_honest_when_the_search_is_cut_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solver, "MOST_CELLS", 2)
    learning = LearningConstants(pseudo_dimension=100.0)
    for slope in np.linspace(0.5, 4.0, 50):
        objective = Objective(float(slope), 100.0, 60.0, 110.0, learning)
        interval = AdmissionInterval(0.0, 60.0)
        minimum = minimise(objective, interval)
        lowest = min(map(objective.value, np.linspace(0, 60, 2000).tolist()))
        assert minimum.value - minimum.gap <= lowest


def test_the_gap_is_honest_when_bisection_is_cut_short(monkeypatch: pytest.MonkeyPatch) -> None:
    objective = Objective(0.005, 30.0, 90.0, 5_000.0, LEARNING)
    interval = AdmissionInterval(0.0, 1e6)
    lowest = minimise(objective, interval).value
    gaps = []
    for halvings in (1, 3, 6, 12):
        monkeypatch.setattr(solver, "MOST_HALVINGS", halvings)
        minimum = minimise(objective, interval)
        assert minimum.value > lowest
        assert minimum.value - minimum.gap <= lowest
        gaps.append(minimum.gap)
    assert gaps == sorted(gaps, reverse=True)


def test_evaluations_are_counted() -> None:
    calls = 0

    class Counting(Objective):
        def value(self, admission: float) -> float:
            nonlocal calls
            calls += 1
            return super().value(admission)

        def slope(self, admission: float) -> float:
            nonlocal calls
            calls += 1
            return super().slope(admission)

    minimum = minimise(Counting(0.005, 30.0, 90.0, 5_000.0, LEARNING), AdmissionInterval(0.0, 1e6))
    assert minimum.evaluations == calls


@pytest.mark.parametrize("ends", [(-1.0, 2.0), (3.0, 2.0), (0.0, math.inf), (math.nan, 1.0)])
def test_impossible_intervals_are_refused(ends: tuple[float, float]) -> None:
    objective = Objective(0.0, 1.0, 0.0, 0.0, LEARNING)
    with pytest.raises(ValueError, match="lower <= upper"):
        minimise(objective, AdmissionInterval(*ends))
