"""Samples that come rounds after they were bought: the simulation against real gates."""

import io
import itertools
from dataclasses import replace

import numpy as np
import pytest
from client_parts import uses_of
from late_samples import LateFleet

from tidegate._internal import saving
from tidegate._internal.randomness import COHORTS, DELAYS, PRICES, generator, uniform_at
from tidegate.cohorts import Cohorts
from tidegate.errors import ConfigurationError
from tidegate.policies import ControlOptions
from tidegate.policies.presets import EXPERIMENTS, make_policy
from tidegate.problem import Problem
from tidegate.problem.delays import Delays
from tidegate.retention.k_step import KStepBuffers
from tidegate.retention.oldest_first import OldestFirstBuffers
from tidegate.simulation.rounds import begin, play_round, simulate

pytestmark = pytest.mark.no_cover  # long loops, covered elsewhere

MNIST, SEED, ROUNDS = EXPERIMENTS["mnist"], 3, 60
LONGER = 130
"""Rounds of a run that knows its delay before it looks at how many are left."""
POLICIES = ("constant_admission", "acdpp", "drift_plus_penalty", "costless_oracle", "tide")
WHOLE = ("admitted", "training_size", "distinct_samples", "under_way")


def problem_with(delays: Delays, cohorts: Cohorts | None = None) -> Problem:
    return replace(MNIST.problem(ROUNDS), delays=delays, cohorts=cohorts or Cohorts())


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize(
    ("delay", "cohorts"),
    [
        ("7", Cohorts()),
        pytest.param("uniform:1,9", Cohorts(), marks=pytest.mark.long),
        ("uniform:1,9", Cohorts(fraction_train=0.4)),
    ],
    ids=str,
)
def test_counts_are_those_of_real_gates_with_a_late_supplier(
    name: str, delay: str, cohorts: Cohorts
) -> None:
    problem = problem_with(Delays.read(delay), cohorts)
    is_near = name == "tide" and "uniform" in delay
    if is_near:  # its last purchases depend on every sample before
        problem = replace(problem, num_rounds=LONGER)
    options = ControlOptions(hard_capacity=True)
    fleet = LateFleet(name, problem, options, MNIST.price, SEED)
    names, stores = fleet.names, fleet.stores
    policy = make_policy(name, problem, options)
    state = begin(policy, problem, SEED)
    members = cohorts.rounds(generator(SEED, COHORTS), problem.num_clients)
    prices = MNIST.price.rounds(generator(SEED, PRICES))
    rounds, most_under_way = zip(members, prices, strict=False), 0
    for now, (who, price) in enumerate(itertools.islice(rounds, ROUNDS), start=1):
        real = fleet.play([names[number] for number in np.arange(problem.num_clients)[who]])
        state, row = play_round(policy, problem, state, price, who)
        if is_near:
            # An arrival may take the place of a planned sample, which counts alone do not tell.
            for column in ("overspend", "distinct_samples", "effective_samples"):
                near = pytest.approx(getattr(row, column), rel=0.05, abs=problem.budget)
                assert getattr(real, column) == near, (now, column)
            continue
        for column in WHOLE:
            assert getattr(real, column) == getattr(row, column), (now, column)
        for column in ("spent", "overspend", "cost_debt", "effective_samples"):
            assert getattr(real, column) == pytest.approx(getattr(row, column)), (now, column)
        uses = getattr(state.stored, "most_uses", 0) or ROUNDS
        stored = [[use for use in uses_of(stores[client]) if use < uses] for client in names]
        assert [len(one) for one in stored] == state.stored.occupancy.tolist()
        assert isinstance(state.stored, KStepBuffers | OldestFirstBuffers)
        assert [sum(used) for used in stored] == state.stored.uses.tolist(), now
        most_under_way = max(most_under_way, row.under_way)
    if not most_under_way:
        return
    assert row.distinct_samples > row.training_size
    assert state.admitted.tolist() == [stores[client].books().admitted for client in names]


def test_a_constant_delay_moves_training_and_not_money() -> None:
    problem = problem_with(Delays(5, 5))
    policy = make_policy("constant_admission", problem)
    at_once = simulate(policy, replace(problem, delays=Delays()), MNIST.price, SEED).columns
    later = simulate(policy, problem, MNIST.price, SEED).columns
    np.testing.assert_array_equal(later["spent"][:-5], at_once["spent"][:-5])
    assert not later["spent"][-5:].any()  # that could not train any more
    for column in ("admitted", "training_size", "distinct_samples", "effective_samples"):
        np.testing.assert_array_equal(later[column][5:], at_once[column][:-5], err_msg=column)
        assert not later[column][:5].any()
    assert at_once["under_way"].tolist() == [0] * ROUNDS
    bought = np.append(at_once["admitted"][:-5], np.zeros(5)).cumsum()
    np.testing.assert_array_equal(later["under_way"], bought - later["admitted"].cumsum())
    assert not later["under_way"][-1]


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("delay", [1, 7])
def test_a_hard_capacity_holds_what_the_plan_held_the_delay_before(name: str, delay: int) -> None:
    """What is under way holds no slot: a delay costs its first rounds and nothing else.

    So the run is one of as many rounds fewer; of the policies only Tide looks at the last one.
    """
    problem = replace(problem_with(Delays(delay, delay)), num_rounds=LONGER)
    shorter = replace(problem, num_rounds=LONGER - delay, delays=Delays())
    options = ControlOptions(hard_capacity=True)
    policy = make_policy(name, problem, options)
    without = make_policy(name, shorter if name == "tide" else problem, options)
    at_once = simulate(without, shorter, MNIST.price, SEED).columns
    later = simulate(policy, problem, MNIST.price, SEED).columns
    assert later["training_size"].max() <= problem.total_capacity
    for column in ("admitted", "training_size"):
        np.testing.assert_array_equal(later[column][delay:], at_once[column])
    np.testing.assert_array_equal(later["spent"][:-delay], at_once["spent"])
    assert not later["spent"][-delay:].any()


@pytest.mark.parametrize("name", POLICIES)
def test_what_cannot_train_is_not_bought(name: str) -> None:
    """Where delays are drawn, less is lost than the budget of the shortest of them."""
    problem = replace(problem_with(Delays(10, 20)), num_rounds=LONGER)
    run = simulate(make_policy(name, problem), problem, MNIST.price, SEED)
    assert not run.columns["spent"][-10:].any()
    assert run.columns["under_way"][-1] < 0.02 * run.columns["admitted"].sum()


def test_tide_with_a_cap_spends_what_it_may() -> None:
    problem = replace(problem_with(Delays(5, 5)), num_rounds=200)
    policy = make_policy("tide", problem, ControlOptions(most_uses=10))
    run = simulate(policy, problem, MNIST.price, SEED)
    assert run.columns["spent"].mean() == pytest.approx(55, rel=0.05)


def test_what_comes_after_the_last_round_never_comes() -> None:
    for delays in (Delays(ROUNDS, ROUNDS), Delays(70, 10**6)):
        problem = problem_with(delays)
        run = simulate(make_policy("tide", problem), problem, MNIST.price, SEED)
        assert not run.columns["admitted"].any()
        assert run.columns["under_way"][-1] > run.problem.total_capacity


def test_purchases_under_way_are_saved_with_the_state() -> None:
    problem = problem_with(Delays(1, 20))
    policy = make_policy("tide", problem)
    whole = simulate(policy, problem, MNIST.price, SEED)
    half = simulate(policy, problem, MNIST.price, SEED, until=25)
    file = io.BytesIO()
    saving.write(half.final, file)
    file.seek(0)
    saved = saving.read(begin(policy, problem), file)
    rest = simulate(policy, problem, MNIST.price, SEED, resume=saved)
    for column, values in whole.columns.items():
        joined = np.concatenate([half.columns[column], rest.columns[column]])
        np.testing.assert_array_equal(joined, values, err_msg=column)


def test_delays_are_uniform_and_belong_to_their_purchase() -> None:
    clients, numbers = np.divmod(np.arange(100_000), 1000)
    drawn = Delays(1, 20).draw(7, clients, numbers)
    counts = np.bincount(drawn, minlength=21)[1:]
    assert len(counts) == 20
    assert ((counts - 5000) ** 2 / 5000).sum() < 43.8  # of 19 degrees of freedom, p = 0.001
    alone = Delays(1, 20).draw(7, clients[500:501], numbers[500:501])
    assert alone.tolist() == [drawn[500]]
    assert (drawn != Delays(1, 20).draw(8, clients, numbers)).mean() > 0.9
    pairs = np.corrcoef(uniform_at(7, DELAYS, clients, numbers).reshape(100, 1000))
    assert np.abs(pairs - np.eye(100)).max() < 0.2


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("soon", "such as uniform:1,20; got 'soon'"),
        ("uniform:3", "such as 10, or uniform"),
        ("-1", "got '-1'"),
        ("1.5", "got '1.5'"),
        ("uniform:0,5", "with the next order at the earliest"),
        ("uniform:9,5", "at most 5, got 9"),
        ("10000000", "the longest delay must be a whole number"),
    ],
)
def test_a_delay_that_cannot_be(text: str, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        Delays.read(text)
