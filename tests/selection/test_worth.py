"""Rankings against counting by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tidegate.errors import ConfigurationError
from tidegate.selection import (
    RANKINGS,
    Selection,
    balanced,
    entropy,
    find_ranking,
    least_confidence,
    margin,
)

probabilities = st.integers(2, 6).flatmap(
    lambda classes: arrays(np.float64, (5, classes), elements=st.floats(0.01, 1.0))
).map(lambda rows: rows / rows.sum(axis=1, keepdims=True))  # fmt: skip


@given(probabilities)
def test_rankings_are_what_their_definitions_say(rows: np.ndarray) -> None:
    for row, by_margin, by_entropy, by_confidence in zip(
        rows, margin(rows), entropy(rows), least_confidence(rows), strict=True
    ):
        first, second, *_ = sorted(row, reverse=True)
        assert math.isclose(by_margin, second - first, abs_tol=1e-12)
        assert math.isclose(by_entropy, -sum(p * math.log(p) for p in row), abs_tol=1e-12)
        assert math.isclose(by_confidence, 1 - first, abs_tol=1e-12)


@pytest.mark.parametrize("name", sorted(RANKINGS.keys() - {"random"}))
def test_a_sure_model_finds_a_candidate_worth_less(name: str) -> None:
    sure, unsure = find_ranking(name)([[1.0, 0.0, 0.0], [0.4, 0.35, 0.25]])
    assert sure < unsure


def test_a_ranking_that_is_not_known_is_told_with_what_is() -> None:
    with pytest.raises(ConfigurationError, match=r"unknown ranking 'margn'; did you mean margin\?"):
        find_ranking("margn")
    with pytest.raises(ConfigurationError, match="'x'; choose from margin, entropy, least_conf"):
        find_ranking("x")


@pytest.mark.parametrize("shape", [(3,), (3, 1), (2, 3, 4)])
def test_what_is_not_one_row_a_candidate_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ConfigurationError, match="one row for each candidate"):
        margin(np.ones(shape))


@given(st.lists(st.tuples(st.floats(-5, 5), st.integers(0, 3)), min_size=1, max_size=30))
def test_balance_takes_turns(pairs: list[tuple[float, int]]) -> None:
    worths, classes = zip(*pairs, strict=True)
    order = np.argsort(-balanced(worths, classes), kind="stable")
    for place in range(len(order)):
        counts = [sum(classes[one] == kind for one in order[: place + 1]) for kind in set(classes)]
        full = [list(classes).count(kind) for kind in set(classes)]
        most = max(counts)
        # Whoever has less than the most, by two or more, has no candidate left.
        assert all(n >= most - 1 or n == whole for n, whole in zip(counts, full, strict=True))
    for kind in set(classes):
        mine = [worths[one] for one in order if classes[one] == kind]
        assert mine == sorted(mine, reverse=True)


def test_balance_needs_a_class_for_each() -> None:
    with pytest.raises(ConfigurationError, match="do not match"):
        balanced([1.0, 2.0], [0])


@given(
    st.lists(st.floats(allow_nan=True), max_size=20), st.integers(0, 25), st.floats(0, 1), st.text()
)
def test_a_choice_has_no_candidate_twice_and_depends_on_its_place_alone(
    worths: list[float], count: int, share: float, name: str
) -> None:
    selection = Selection(random_share=share)
    chosen = selection.choose(worths, count, (name, 3))
    assert len(set(chosen)) == len(chosen) == min(count, len(worths))
    assert chosen == selection.choose(worths, count, (name, 3))
    if share == 0:
        values = [-math.inf if math.isnan(one) else one for one in worths]
        best = sorted(values, reverse=True)[: len(chosen)]
        assert [values[one] for one in chosen] == best


def test_equal_candidates_are_drawn_evenly() -> None:
    counts = np.zeros(10)
    for now in range(5000):
        counts[Selection().choose([0.0] * 10, 1, ("client", now))] += 1
    spread = ((counts - 500) ** 2 / 500).sum()  # chi-squared with 9 degrees of freedom
    assert spread < 27.9  # 0.1 % of draws are above


def test_another_seed_draws_otherwise_and_each_seed_always_the_same() -> None:
    drawn = [Selection(seed=seed).choose([0.0] * 1000, 500, ("client", 1)) for seed in (0, 1, 0)]
    assert drawn[0] == drawn[2]
    both = len(set(drawn[0]) & set(drawn[1]))  # hypergeometric: 250, with a deviation of 7.9
    assert abs(both - 250) < 4 * 7.9


def test_the_random_share_is_the_share_of_random_choices() -> None:
    best = 0
    for now in range(4000):
        (first,) = Selection(random_share=0.3).choose(range(100), 1, ("client", now))
        best += first == 99
    share = 1 - best / 4000
    assert abs(share - 0.3 * 0.99) < 4 * math.sqrt(0.3 * 0.7 / 4000)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"candidates": 20.5}, "candidates must be a whole number"),
        ({"backlog": "20"}, "backlog must be a whole number"),
        ({"candidates": 0}, "candidates must be a whole number of at least 1 .*got 0"),
        ({"backlog": -1}, "backlog must be a whole number of at least 0 .*got -1"),
        ({"seed": -1}, "seed must be a whole number of at least 0, got -1"),
        ({"random_share": 1.5}, "random_share must be a number from 0 to 1, got 1.5"),
    ],
)
def test_impossible_selections_are_refused(values: dict[str, float], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        Selection(**values)  # type: ignore[arg-type]


@pytest.mark.parametrize("row", [[3.0, -2.0, 7.0], [0.2, 0.2, 0.2], [1.2, -0.2, 0.0]])
def test_logits_are_refused(row: list[float]) -> None:
    for rank in (margin, entropy, least_confidence):
        with pytest.raises(ConfigurationError, match="if these are logits, apply softmax first"):
            rank([[0.5, 0.25, 0.25], row])
    assert np.isnan(margin([[np.nan, np.nan]])).all()  # of a model that has diverged


@pytest.mark.parametrize("step", [1 / 256, 1 / 1000])
@pytest.mark.parametrize("classes", [2, 10, 100, 1000])
def test_rounded_probabilities_are_ranked(classes: int, step: float) -> None:
    logits = np.random.default_rng(classes).normal(scale=3.0, size=(200, classes))
    exact = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    rounded = np.round(exact / step) * step
    assert np.abs(margin(rounded) - margin(exact)).max() <= step + 1e-12
