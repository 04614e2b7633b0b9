"""Runs that begin with earlier samples, counted sample by sample, and every formula beside them."""

import itertools
from typing import Any

import numpy as np
import pytest
from check_size import at_size
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.errors import ConfigurationError
from tidegate.policies import JointPolicy
from tidegate.policies.presets import make_policy
from tidegate.prices import UniformPrice
from tidegate.problem import EarlierSamples, LearningConstants, Problem
from tidegate.simulation.rounds import Run, begin, play_round, simulate
from tidegate.theory.bounds import constant_admission_sizes, costless_oracle_sizes, regret
from tidegate.theory.guarantees import acdpp_guarantees
from tidegate.theory.penalty import surrogate_penalty
from tidegate.theory.reuse import k_step_tally

CAPACITIES = (4, 5, 6)
PRICES = UniformPrice(1, 10)
EARLIER = EarlierSamples(stored=[[1, 2, 0, 1], [0, 5], [2, 0, 0, 0, 4]], left=[0, 3, 0, 7])


def problem(rounds: int = 40, earlier: EarlierSamples = EARLIER, **changes: Any) -> Problem:
    settings: dict[str, Any] = {
        "buffer_capacities": CAPACITIES,
        "budget": 16.5,
        "mean_price": 5.5,
        "num_rounds": rounds,
        "learning": LearningConstants(pseudo_dimension=5.0),
    }
    return Problem(earlier=earlier, **{**settings, **changes})


def uses_of(earlier: EarlierSamples) -> tuple[list[list[int]], list[int]]:
    """Each client's stored samples by their uses, oldest first, and those of all that have left."""
    stored = [
        [uses for uses in reversed(range(len(row))) for _ in range(row[uses])]
        for row in earlier.by_client.tolist()
    ]
    left = [uses for uses, count in enumerate(earlier.left_by_uses.tolist()) for _ in range(count)]
    return stored, left


def play_beside_samples_moved_by_hand(
    policy: JointPolicy[Any], setting: Problem, horizon: int
) -> None:
    """Compare n, N and N_eff of each round with each client's samples; K is 0 for none."""
    stored, left = uses_of(setting.earlier)
    if horizon:
        left += [use for client in stored for use in client if use >= horizon]
        stored = [[use for use in client if use < horizon] for client in stored]
    state = begin(policy, setting)
    for price in itertools.islice(PRICES.rounds(np.random.default_rng(5)), setting.num_rounds):
        before = state.bought.copy()
        state, row = play_round(policy, setting, state, price)
        for client, new in enumerate((state.bought - before).tolist()):
            held, capacity = stored[client], setting.capacities[client]
            gone = held.count(horizon) if horizon else max(len(held) + new - capacity, 0)
            left += held[:gone]
            stored[client] = [use + 1 for use in held[gone:] + [0] * new]
        uses = np.array([*left, *itertools.chain(*stored)])
        size = sum(map(len, stored))
        assert row.training_size == size
        assert row.distinct_samples == len(uses)
        assert row.effective_samples == pytest.approx(
            uses.sum() ** 2 / (uses**2).sum() if uses.any() else 0
        )
        assert state.stored.occupancy.tolist() == [len(client) for client in stored]


def rows() -> st.SearchStrategy[EarlierSamples]:
    """Earlier samples that fit, of all uses from 0 to 7."""

    def fitting(capacity: int) -> st.SearchStrategy[list[int]]:
        uses = st.lists(st.integers(0, 7), max_size=capacity)
        return uses.map(lambda held: np.bincount(held, minlength=8).tolist())

    left = st.lists(st.integers(0, 9), max_size=6).map(lambda counts: [0, *counts])
    stored = st.tuples(*map(fitting, CAPACITIES))
    return st.builds(EarlierSamples, stored=stored, left=left)


@pytest.mark.parametrize("name", ["constant_admission", "acdpp", "drift_plus_penalty", "tide"])
@settings(max_examples=at_size(15, 100), deadline=None)
@given(earlier=rows())
def test_every_policy_counts_what_samples_moved_by_hand_count(
    name: str, earlier: EarlierSamples
) -> None:
    setting = problem(earlier=earlier)
    policy = make_policy(name, setting)
    play_beside_samples_moved_by_hand(policy, setting, policy.retention.for_client(0, 3)[1])


@settings(max_examples=at_size(30, 200), deadline=None)
@given(earlier=rows(), horizon=st.integers(1, 9), rounds=st.integers(1, 12))
def test_the_closed_form_of_reuse_equals_counting(
    earlier: EarlierSamples, horizon: int, rounds: int
) -> None:
    """eq:kstep-vtilde-exact, with what the samples of the initial state add to it."""
    admissions = [3, 0, 2, 1, 4, 0, 0, 5, 1, 2, 3, 1][:rounds]
    stored, left = uses_of(earlier)
    held = [*itertools.chain(*stored)]
    left += [use for use in held if use >= horizon]
    held = [use for use in held if use < horizon]
    for new in admissions:
        left += [use for use in held if use == horizon]
        held = [use + 1 for use in held if use < horizon] + [1] * new
    counted = np.array(left + held)
    tally = k_step_tally(admissions, horizon, earlier)
    assert tally.distinct_samples == len(counted)
    assert tally.total_uses == counted.sum()
    assert tally.squared_uses == (counted**2).sum()


def test_constant_admission_and_the_oracle_begin_where_their_formulas_begin() -> None:
    """Λ̄ and ΣB are whole numbers, so that formula and simulation are the same."""
    setting = problem()
    plan_sizes = constant_admission_sizes(3.0, 5, 40, earlier=EARLIER)
    policy = make_policy("constant_admission", setting)
    assert policy.retention.for_client(0, 3)[1] == 5
    run = simulate(policy, setting, PRICES, seed=0)
    oracle = simulate(make_policy("costless_oracle", setting), setting, PRICES, seed=0)
    for sizes, played in (
        (plan_sizes, run),
        (costless_oracle_sizes(15, 40, EARLIER), oracle),
    ):
        assert played.sizes.training_size == pytest.approx(sizes.training_size)
        assert played.sizes.distinct_samples == pytest.approx(sizes.distinct_samples)
        assert played.sizes.effective_samples == pytest.approx(sizes.effective_samples)
    of_the_oracle = regret(oracle.sizes, 15, setting.learning, EARLIER)
    assert of_the_oracle == pytest.approx(np.zeros(40), abs=1e-9)


def test_earlier_samples_cost_nothing_and_tide_fills_only_what_is_empty() -> None:
    full = EarlierSamples(stored=[[0, capacity] for capacity in CAPACITIES])
    half = EarlierSamples(stored=[[2], [2], [3]])
    for earlier, most in ((full, 0), (half, 8)):
        setting = problem(earlier=earlier)
        run = simulate(make_policy("tide", setting), setting, PRICES, seed=0)
        first = {name: column[0] for name, column in run.columns.items()}
        assert first["training_size"] == 15 - most + first["admitted"]
        assert first["admitted"] <= most
        assert first["spent"] == first["price"] * first["admitted"]
        assert run.columns["training_size"][-1] == 15


def test_guarantees_are_never_below_runs_that_begin_with_earlier_samples() -> None:
    setting = problem(at_size(100, 300, quick=60))
    runs = [simulate(make_policy("acdpp", setting), setting, PRICES, seed) for seed in range(10)]
    bounds = acdpp_guarantees(
        setting,
        lowest_price=1,
        highest_price=10,
        penalty_weight=setting.num_rounds**0.5,
        contraction=1 - setting.num_rounds**-0.5,
    )

    def penalty(run: Run) -> float:
        sizes = run.sizes.training_size, run.sizes.distinct_samples
        return float(surrogate_penalty(*sizes, setting.learning).sum())

    def last_regret(run: Run) -> float:
        return float(regret(run.sizes, 15, setting.learning, EARLIER)[-1])

    assert np.mean([penalty(run) for run in runs]) < bounds.surrogate_penalty
    assert np.mean([last_regret(run) for run in runs]) < bounds.regret
    assert np.mean([run.columns["cost_debt"][-1] for run in runs]) < bounds.cost_violation
    excess = np.mean([run.excess for run in runs], axis=0)
    assert np.maximum(excess, 0).sum() < bounds.buffer_violation


@pytest.mark.parametrize(
    ("stored", "left", "wrong"),
    [
        ([[5], [0], [0]], (), "client 0 has room for 4 samples, but stores 5"),
        ([[1]], (), r"for every client \(3\), got 1"),
        ([[1], [-1], [0]], (), "stored must count samples by their uses"),
        ([[1], [0.5], [0]], (), "stored must count samples by their uses"),
        ((), [3, 1], "left must begin with 0, got 3"),
    ],
)
def test_what_cannot_be_is_refused(stored: Any, left: Any, wrong: str) -> None:
    with pytest.raises(ConfigurationError, match=wrong):
        problem(earlier=EarlierSamples(stored=stored, left=left))


def test_hybrid_says_that_it_begins_otherwise() -> None:
    setting = problem()
    with pytest.raises(ConfigurationError, match="leave out the earlier samples"):
        simulate(make_policy("hybrid", setting), setting, PRICES, seed=0)
