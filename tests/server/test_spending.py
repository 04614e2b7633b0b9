"""Money that is not spent before it comes: at no time, by no policy, whoever joins."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.admission.floor import cheapest_first
from tidegate.client.gate import Gate
from tidegate.client.store import Store
from tidegate.client.streams import IndexedStream
from tidegate.errors import ConfigurationError
from tidegate.policies import POLICIES, ControlOptions
from tidegate.policies.hybrid import hybrid
from tidegate.policies.presets import make_policy
from tidegate.prices import PriceFeed, price_feed
from tidegate.problem import Problem
from tidegate.server.controller import Controller
from tidegate.server.fleet import Terms
from tidegate.simulation.rounds import simulate
from tidegate.wire import Introduction

pytestmark = pytest.mark.no_cover  # long loops, covered elsewhere

BUDGET = 11.0
ROUNDS = 60
JOINING = 31


class Own:
    """A price for each client and round."""

    def mean(self, num_rounds: int) -> float:
        return 5.5

    def at(self, round_number: int, clients: Sequence[str]) -> Mapping[str, float]:
        drawn = np.random.default_rng(round_number).uniform(1, 10, len(clients))
        return dict(zip(clients, drawn.tolist(), strict=True))


def terms(name: str = "tide", **changes: Any) -> Terms:
    options = ControlOptions(hard_capacity=True)
    values: dict[str, Any] = {"prices": price_feed("uniform:1,10", 1), "num_rounds": ROUNDS}
    values["policy"] = lambda problem: make_policy(name, problem, options)
    return Terms(**{"policy_name": name, "budget": BUDGET, **values, **changes})


def join(controller: Controller, gates: dict[str, Gate], clients: int) -> None:
    for number in range(len(gates), len(gates) + clients):
        name = f"client-{number:02}"
        controller.join(Introduction(run="r", client=name, buffer_capacity=10, buffer_id="b"))
        gates[name] = Gate(Store(None, "r", name, 10), IndexedStream(range(10_000)))


def spent_with_20_joining(on: Terms, *, silent: int = 0) -> list[float]:
    """What was spent by the end of each round, and what unanswered orders may have cost."""
    controller, gates, spent = Controller(on, "r"), dict[str, Gate](), [0.0]
    join(controller, gates, 2)
    told = []
    for now in range(1, ROUNDS + 1):
        if now == JOINING:
            join(controller, gates, 20)
        for place, (client, order) in enumerate(controller.decide(gates, gates).items()):
            if place >= silent:
                controller.book(client, gates[client].apply(order))
        row = controller.close()
        spent.append(spent[-1] + row.spent)
        told.append(spent[-1] + row.exposure)
    return told


@pytest.mark.long
@pytest.mark.parametrize("own", [False, True], ids=["one price", "own prices"])
@pytest.mark.parametrize("ahead", [0.0, 5.0])
@pytest.mark.parametrize("policy", ["tide", "acdpp"])
def test_20_clients_that_join_at_once_spend_nothing_ahead(
    policy: str, ahead: float, own: bool
) -> None:
    feed: PriceFeed = Own() if own else price_feed("uniform:1,10", 1)
    on = terms(policy, spend_ahead=ahead, prices=feed)
    for silent in (0, 1):  # one client after another is never heard of again
        told = spent_with_20_joining(on, silent=silent)
        assert all(one <= BUDGET * (now + ahead) for now, one in enumerate(told, start=1))
        assert silent or told[-1] > 0.5 * BUDGET * ROUNDS


def test_without_a_limit_the_same_fleet_spends_ahead() -> None:
    told = spent_with_20_joining(terms(spend_ahead=None))
    assert any(one > BUDGET * (now + 5) for now, one in enumerate(told, start=1))


@pytest.mark.parametrize("per_client", [False, True], ids=["one price", "own prices"])
@pytest.mark.parametrize("ahead", [0.0, 2.5, 15.0])
@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_keeps_to_what_may_be_spent_ahead(
    name: str, ahead: float, per_client: bool
) -> None:
    problem = Problem(buffer_capacities=[10] * 6, budget=33.0, mean_price=5.5, num_rounds=80)
    policy = make_policy(name, problem, ControlOptions(spend_ahead=ahead))
    run = simulate(policy, problem, "uniform:1,10", 1, price_per_client=per_client)
    spent = list(itertools.accumulate(run.columns["spent"]))
    assert all(one <= 33.0 * (now + ahead) for now, one in enumerate(spent, start=1))
    assert spent[-1] > 0.5 * 33.0 * 80


@pytest.mark.parametrize(("price", "count"), [(1.0, 20), (0.1, 3), (0.07, 11), (1 / 3, 30)])
@pytest.mark.parametrize("name", ["constant_admission", "tide"])
def test_a_price_that_divides_the_budget_buys_all_of_it(
    name: str, price: float, count: int
) -> None:
    rounds, budget = 40, round(count * price, 9)
    problem = Problem(
        buffer_capacities=[10] * 10, budget=budget, mean_price=price, num_rounds=rounds
    )
    policy = make_policy(name, problem, ControlOptions(spend_ahead=0.0))
    run = simulate(policy, problem, str(price), 0)
    assert run.columns["admitted"][0] == count
    assert run.columns["admitted"].sum() >= count * (rounds - 1)
    assert run.columns["spent"].sum() <= budget * rounds * (1 + 1e-9)


def test_tide_loses_little_by_spending_nothing_ahead_where_clients_have_their_own_prices() -> None:
    problem = Problem(buffer_capacities=[10] * 10, budget=55.0, mean_price=5.5, num_rounds=300)
    gained = []
    for ahead in (0.0, None):
        policy = make_policy("tide", problem, ControlOptions(spend_ahead=ahead))
        run = simulate(policy, problem, "uniform:1,10", 1, price_per_client=True)
        gained.append(run.columns["effective_samples"][-1])
    assert gained[0] > 0.95 * gained[1]


@pytest.mark.parametrize("wrong", [-1.0, math.nan, math.inf])
def test_what_is_not_a_number_of_rounds_is_refused(wrong: float) -> None:
    with pytest.raises(ConfigurationError, match="spend_ahead must be 0 or more and at most"):
        ControlOptions(spend_ahead=wrong)


def test_samples_from_before_round_1_cannot_be_paid_for_where_spending_is_limited() -> None:
    charged = terms(policy=lambda problem: hybrid(problem, charge_prefill=True), spend_ahead=0.0)
    controller, gates = Controller(charged, "r"), dict[str, Gate]()
    join(controller, gates, 2)
    with pytest.raises(ConfigurationError, match="leave out charge_prefill, or set spend_ahead"):
        controller.decide(gates, gates)


@given(
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from([0.0, 0.5, 1.0, 3.0])), min_size=1),
    st.floats(0, 30),
)
def test_the_cheapest_come_first_and_money_is_never_exceeded(
    clients: list[tuple[int, float]], money: float
) -> None:
    wanted, prices = (np.array(one) for one in zip(*clients, strict=True))
    given_out = cheapest_first(wanted, prices.astype(float), money)
    assert np.all(given_out <= wanted)
    assert float(given_out @ prices) <= money
    for short in np.flatnonzero(given_out < wanted):
        dearer = prices > prices[short]
        assert not given_out[dearer].any()
        assert float(given_out @ prices) + prices[short] > money
