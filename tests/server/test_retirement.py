"""A client that an operator takes out for good: plan, books and certificate go on without it."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from saved_controller import restored

from tidegate.admission.debt import certificate_holds
from tidegate.client.gate import Gate
from tidegate.client.store import Store
from tidegate.client.streams import IndexedStream
from tidegate.errors import WireError
from tidegate.policies import POLICIES, ControlOptions
from tidegate.policies.presets import make_policy
from tidegate.prices import PricePath, UniformPrice
from tidegate.server.controller import Controller
from tidegate.server.fleet import Terms
from tidegate.server.fleet_round import FleetRound
from tidegate.wire import Introduction, Order, Receipt

ROUNDS = 40
BUDGET = 55.0
CAPACITIES = {f"site-{number}": 8 + number for number in range(6)}
GONE = "site-2"
LIMITED = [name for name in POLICIES if name != "costless_oracle"]
"""Policies that keep to a budget."""


def terms(policy: str, **changes: Any) -> Terms:
    values: dict[str, Any] = {
        "budget": BUDGET,
        "prices": PricePath(UniformPrice(1, 10), 3),
        "num_rounds": ROUNDS,
        "spend_ahead": 0.0,
        **changes,
    }
    options = ControlOptions(hard_capacity=True)
    return Terms(
        policy=lambda problem: make_policy(policy, problem, options), policy_name=policy, **values
    )


def hello(client: str, buffer_id: str = "first", void_round: int = 0) -> Introduction:
    return Introduction(
        run="r",
        client=client,
        buffer_capacity=CAPACITIES[client],
        buffer_id=buffer_id,
        void_round=void_round,
    )


def gate(client: str) -> Gate:
    return Gate(Store(None, "r", client, CAPACITIES[client]), IndexedStream(range(100_000)))


def fleet(controller: Controller) -> dict[str, Gate]:
    for client in CAPACITIES:
        controller.join(hello(client))
    return {client: gate(client) for client in CAPACITIES}


def decide(controller: Controller, gates: Mapping[str, Gate]) -> dict[str, Order]:
    return controller.decide(gates, gates)


def play(controller: Controller, gates: Mapping[str, Gate], mute: str = "") -> FleetRound:
    """A round in which one may apply its order, and not be heard."""
    for client, order in decide(controller, gates).items():
        receipt = gates[client].apply(order)
        if client != mute:
            controller.book(client, receipt)
    return controller.close()


def newest(controller: Controller, gates: Mapping[str, Gate], mute: str = "") -> Receipt:
    """Play a round; what the client that leaves answers, heard or not."""
    order = decide(controller, gates)[GONE]
    play(controller, gates, mute)
    return gates[GONE].apply(order)  # an order that comes twice gets the same receipt


@pytest.mark.parametrize("policy", LIMITED)
@pytest.mark.parametrize("owes", [True, False], ids=["owes an answer", "owes nothing"])
def test_plan_books_and_certificate_go_on_without_it(policy: str, owes: bool) -> None:
    controller = Controller(terms(policy), "r")
    gates = fleet(controller)
    rows = [play(controller, gates) for _ in range(6)]
    rows.append(play(controller, gates, GONE if owes else ""))
    before, exposure = controller.ledger.account(GONE), rows[-1].exposure
    assert (exposure > 0) == owes

    lost = controller.ledger.retire(GONE, controller.round_number)
    assert lost == exposure
    assert controller.ledger.retire(GONE, controller.round_number) == 0.0
    controller = restored(controller, terms(policy))
    assert controller.ledger.retire(GONE, controller.round_number) == 0.0

    others = {client: one for client, one in gates.items() if client != GONE}
    while len(rows) < ROUNDS:
        rows.append(play(controller, gates))  # it can be reached, and gets no order all the same
        last = rows[-1]
        assert (last.fleet, last.retired, last.exposure, controller.away) == (5, 1, 0.0, 0)
        assert last.slots == sum(CAPACITIES[client] for client in others)
    assert controller.fleet == sorted(others)
    account = controller.ledger.account(GONE)
    assert account.paid == pytest.approx(before.paid + lost)
    assert account.admitted == before.admitted
    spent = math.fsum(row.spent for row in rows)
    accounts = [controller.ledger.account(client) for client in CAPACITIES]
    assert spent == pytest.approx(math.fsum(one.paid for one in accounts))
    assert certificate_holds(
        [row.overspend for row in rows],
        [row.cost_debt for row in rows],
        [row.spent for row in rows],
    )
    assert all(row.overspend <= 1e-9 for row in rows)


@pytest.mark.parametrize("policy", LIMITED)
def test_the_plan_is_that_of_a_fleet_that_never_knew_it(policy: str) -> None:
    one, other = Controller(terms(policy), "r"), Controller(terms(policy), "r")
    fleet(one)
    for client in CAPACITIES:
        if client != GONE:
            other.join(hello(client))
    one.ledger.retire(GONE, 1)
    orders = one.decide(CAPACITIES, CAPACITIES)
    there = [client for client in CAPACITIES if client != GONE]
    assert orders == other.decide(there, there)


def test_an_order_of_a_round_under_way_is_given_up_and_not_sent_again() -> None:
    controller = Controller(terms("tide"), "r")
    gates = fleet(controller)
    for _ in range(5):
        play(controller, gates)
    orders = decide(controller, gates)
    receipt = gates[GONE].apply(orders[GONE])
    exposure = controller.ledger.account(GONE).exposure
    assert controller.ledger.retire(GONE, controller.round_number) == exposure
    controller = restored(controller, terms("tide"))
    assert decide(controller, gates) == {
        client: order for client, order in orders.items() if client != GONE
    }
    with pytest.raises(WireError, match="site-2 was retired in round 6, and what it may have"):
        controller.book(GONE, receipt)
    for client in orders:
        if client != GONE:
            controller.book(client, gates[client].apply(orders[client]))
    row = controller.close()
    assert (row.orders, row.answered, row.exposure, controller.away) == (6, 5, 0.0, 0)


def test_it_is_refused_until_it_is_let_in_again_and_then_goes_on_with_what_it_stores() -> None:
    controller = Controller(terms("acdpp"), "r")
    gates = fleet(controller)
    for _ in range(4):
        play(controller, gates)
    receipt = newest(controller, gates)
    stored = controller.ledger.account(GONE).newest.holding
    controller.ledger.retire(GONE, 6)
    with pytest.raises(WireError, match=r"retired in round 6; .* tidegate retire FOLDER site-2"):
        controller.join(hello(GONE), receipt)
    play(controller, gates)
    controller.ledger.reinstate(GONE)
    controller.ledger.reinstate("site-1")  # which never was retired
    controller.join(hello(GONE, void_round=6), receipt)
    assert controller.ledger.account(GONE).newest.holding == stored
    row = play(controller, gates)
    assert (row.fleet, row.answered, row.retired) == (6, 6, 0)


def test_one_that_owed_an_answer_begins_again() -> None:
    controller = Controller(terms("acdpp"), "r")
    gates = fleet(controller)
    for _ in range(5):
        play(controller, gates)
    receipt = newest(controller, gates, mute=GONE)
    controller.ledger.retire(GONE, 7)
    play(controller, gates)
    controller.ledger.reinstate(GONE)
    with pytest.raises(WireError, match=r"without a reply when it was retired.* Delete its buffer"):
        controller.join(hello(GONE), receipt)
    controller.join(hello(GONE, "second"))
    assert GONE in decide(controller, gates)


def test_rounds_go_on_without_orders_when_everybody_is_retired() -> None:
    controller = Controller(terms("tide"), "r")
    gates = fleet(controller)
    play(controller, gates)
    for client in CAPACITIES:
        controller.ledger.retire(client, 2)
    row = play(controller, gates)
    assert (row.orders, row.admitted, row.retired, controller.away) == (0, 0, 6, 0)
    controller.join(replace(hello("site-0"), client="new"))
    assert list(controller.decide(["new"], ["new"])) == ["new"]
    assert controller.fleet == ["new"]
