"""The server of a running fleet: against the simulation, and when clients come and go."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from late_supplier import LateSupplier
from saved_controller import brought_back, restored, saved

from tidegate._internal.randomness import COHORTS, generator
from tidegate.client.gate import Gate
from tidegate.client.store import Store
from tidegate.client.streams import IndexedStream
from tidegate.cohorts import Cohorts
from tidegate.errors import ConfigurationError, SupplierError, WireError
from tidegate.policies import POLICIES, ControlOptions
from tidegate.policies.presets import EXPERIMENTS, make_policy
from tidegate.prices import (
    ConstantPrice,
    PriceFeed,
    PricePath,
    RecordedPrices,
    UniformPrice,
    price_feed,
)
from tidegate.problem import Problem
from tidegate.server.account import Lost, readable
from tidegate.server.controller import Controller
from tidegate.server.fleet import Terms
from tidegate.server.fleet_round import FleetRound
from tidegate.server.shards import Grant, Purse
from tidegate.simulation.rounds import Run, simulate
from tidegate.wire import LARGEST_INTEGER, NO_LIMIT, Address, Introduction, Order, Receipt

HARD = ControlOptions(hard_capacity=True)
SEED = 3


def terms(policy: str = "acdpp", options: ControlOptions = HARD, **changes: Any) -> Terms:
    values: dict[str, Any] = {
        "budget": 55.0,
        "prices": PricePath(UniformPrice(1, 10), SEED),
        "num_rounds": 40,
        **changes,
    }
    return Terms(
        policy=lambda problem: make_policy(policy, problem, options), policy_name=policy, **values
    )


def hello(
    client: str, capacity: int, *, buffer_id: str = "first", void_round: int = 0
) -> Introduction:
    return Introduction(
        run="r",
        client=client,
        buffer_capacity=capacity,
        buffer_id=buffer_id,
        void_round=void_round,
    )


def gate(client: str, capacity: int) -> Gate:
    return Gate(Store(None, "r", client, capacity), IndexedStream(range(100_000)))


def fleet(controller: Controller, capacities: Mapping[str, int]) -> dict[str, Gate]:
    for client, capacity in capacities.items():
        controller.join(hello(client, capacity))
    return {client: gate(client, capacity) for client, capacity in capacities.items()}


def play(controller: Controller, gates: Mapping[str, Gate]) -> FleetRound:
    for client, order in controller.decide(gates, gates).items():
        controller.book(client, gates[client].apply(order))
    return controller.close()


MNIST = {f"client-{number}": capacity for number, capacity in enumerate((8, 9, 10, 11, 12) * 2)}


@pytest.mark.parametrize("name", POLICIES)
def test_a_fleet_that_always_answers_does_what_the_simulation_does(name: str) -> None:
    controller = Controller(terms(name, learning=EXPERIMENTS["mnist"].problem(40).learning), "r")
    gates = fleet(controller, MNIST)
    rounds = [play(controller, gates) for _ in range(40)]
    problem = EXPERIMENTS["mnist"].problem(40)
    policy = make_policy(name, problem, HARD)
    run = simulate(policy, problem, EXPERIMENTS["mnist"].price, SEED)
    assert_alike(rounds, run)


def assert_alike(rounds: list[FleetRound], run: Run) -> None:
    for column in ("price", "ordered", "admitted", "training_size", "distinct_samples"):
        mine = [getattr(one, column) for one in rounds]
        np.testing.assert_array_equal(mine, run.columns[column], err_msg=column)
    for column in ("spent", "overspend", "cost_debt", "effective_samples"):
        mine = [getattr(one, column) for one in rounds]
        np.testing.assert_allclose(mine, run.columns[column], rtol=1e-12, atol=1e-9, err_msg=column)


@pytest.mark.parametrize("name", POLICIES)
def test_a_fleet_of_which_a_cohort_takes_part_does_what_the_simulation_says(name: str) -> None:
    cohorts = Cohorts(fraction_train=0.4)
    problem = replace(EXPERIMENTS["mnist"].problem(60), cohorts=cohorts)
    on = terms(name, num_rounds=60, fraction_train=0.4, learning=problem.learning)
    controller, members = Controller(on, "r"), cohorts.rounds(generator(SEED, COHORTS), 10)
    gates = fleet(controller, MNIST)
    rounds = []
    for who in itertools.islice(members, 60):
        present = [list(MNIST)[number] for number in np.arange(10)[who]]
        for client, order in controller.decide(present, gates).items():
            controller.book(client, gates[client].apply(order))
        rounds.append(controller.close())
    run = simulate(make_policy(name, problem, HARD), problem, EXPERIMENTS["mnist"].price, SEED)
    assert {one.orders for one in rounds} == {4}
    assert_alike(rounds, run)


def test_clients_whose_part_is_almost_nothing_are_named(caplog: pytest.LogCaptureFixture) -> None:
    controller = Controller(terms("tide"), "r")
    gates = fleet(controller, {"a": 10, "b": 10, "c": 10})
    play(controller, gates)
    assert not caplog.text
    play(controller, gates | fleet(controller, {"d": 1_000_000}))
    rare, large = caplog.messages
    assert "less than one sample in 50 rounds: 'a', 'b', 'c'. Each gets" in rare
    assert "100 times the median capacity: 'd'. They" in large


@pytest.mark.parametrize("name", POLICIES)
def test_a_controller_that_is_brought_back_goes_on_as_if_nothing_had_happened(name: str) -> None:
    plain, killed = Controller(terms(name), "r"), Controller(terms(name), "r")
    killed = restored(killed, terms(name))  # before anything is known
    gates, others = fleet(plain, MNIST), fleet(killed, MNIST)
    for _ in range(12):
        expected = play(plain, gates)
        killed = restored(killed, terms(name))  # between rounds
        orders = killed.decide(others, others)
        decided = saved(killed)
        for client in list(others)[:5]:  # these receipts die with the server
            killed.book(client, others[client].apply(orders[client]))
        killed = brought_back(decided, terms(name))
        assert killed.decide(others, others) == orders
        for client, order in killed.decide(others, others).items():
            killed.book(client, others[client].apply(order))
        assert killed.close() == expected


def test_a_run_whose_name_cannot_be_sent_is_refused_before_it_begins() -> None:
    with pytest.raises(WireError, match="run must be a name of at most 200 printable characters"):
        Controller(terms(), "line\nbreak")


def test_a_run_without_an_end_may_be_given_more_rounds() -> None:
    endless = ControlOptions(hard_capacity=True, endless=True)
    first = Controller(terms("tide", endless, endless=True), "r")
    gates = fleet(first, MNIST)
    for _ in range(5):
        play(first, gates)
    longer = restored(first, terms("tide", endless, endless=True, num_rounds=400))
    assert play(longer, gates).round_number == 6
    with pytest.raises(ValueError, match="made with num_rounds = 40, this run has 400"):
        restored(Controller(terms("tide"), "r"), terms("tide", num_rounds=400))


CONSTANT = ConstantPrice(1.0)
CHEAP: dict[str, Any] = {"prices": PricePath(CONSTANT, 0), "num_rounds": 100}


def test_what_an_absent_client_cannot_take_goes_to_the_others_at_once() -> None:
    controller = Controller(terms("constant_admission", budget=6.0, **CHEAP), "r")
    gates = fleet(controller, {"a": 20, "b": 20, "c": 20})  # K = 10, 6 samples a round
    play(controller, gates)
    away = {name: gates[name] for name in ("a", "b")}
    assert play(controller, away).admitted == 6
    assert controller.fleet == ["a", "b", "c"]  # still planned for: it may come back


def test_a_client_that_stays_away_until_its_samples_expired_frees_its_share() -> None:
    controller = Controller(terms("constant_admission", budget=6.0, **CHEAP), "r")
    gates = fleet(controller, {"a": 20, "b": 20, "c": 20})
    play(controller, gates)
    rest = {name: gates[name] for name in ("a", "b")}
    sizes = [play(controller, rest).fleet for _ in range(10)]
    assert sizes == [3] * 9 + [2]  # K = 10
    order = controller.decide(rest, rest)["a"]
    assert order.retention_horizon == 6  # 40 slots, 6 samples a round: the better of 6 and 7
    for client, one in rest.items():
        controller.book(client, one.apply(controller.decide(rest, rest)[client]))
    controller.close()
    assert play(controller, gates).fleet == 3  # and it may join again


def test_when_everybody_has_left_the_run_goes_on_with_who_comes() -> None:
    controller = Controller(terms("constant_admission", budget=6.0, num_rounds=60), "r")
    gates = fleet(controller, {"a": 3, "b": 3})
    play(controller, gates)
    for _ in range(50):  # longer than any sample stays
        assert not controller.decide([], [])
        assert controller.close().spent == 0
    gates |= fleet(controller, {"c": 3})
    assert play(controller, {"c": gates["c"]}).orders == 1
    assert controller.fleet == ["c"]


def test_a_fleet_whose_feed_knows_prices_ahead_does_what_the_simulation_does() -> None:
    prices = price_feed("uniform:1,10", SEED, known_ahead=12)
    problem = replace(EXPERIMENTS["mnist"].problem(40), known_ahead=12)
    controller = Controller(terms("tide", prices=prices, learning=problem.learning), "r")
    gates = fleet(controller, MNIST)
    rounds = [play(controller, gates) for _ in range(40)]
    runs = [
        simulate(make_policy("tide", one, HARD), one, EXPERIMENTS["mnist"].price, SEED)
        for one in (problem, replace(problem, known_ahead=0))
    ]
    assert_alike(rounds, runs[0])
    assert list(runs[0].columns["admitted"]) != list(runs[1].columns["admitted"])


class FarSighted:
    """One price for all, and what it says of the next ones."""

    def __init__(self, known: Any) -> None:
        self._known = known

    def mean(self, num_rounds: int) -> float:
        return 2.0

    def at(self, round_number: int, clients: Sequence[str]) -> float:
        return 2.0

    def known(self, round_number: int, horizon: int) -> Any:
        if isinstance(self._known, Exception):
            raise self._known
        return self._known


@pytest.mark.parametrize(
    ("known", "reason"),
    [
        (ConnectionError("no route"), "feed failed in round 1 with ConnectionError: no route"),
        (None, "feed failed in round 1 with TypeError"),
        ([2.0, -1.0], "as the price of round 3 for all clients, got -1.0"),
        ([2.0, "3"], "as the price of round 3 for all clients, got '3'"),
    ],
)
def test_what_a_feed_knows_wrongly_is_refused(known: Any, reason: str) -> None:
    controller = Controller(terms("tide", prices=FarSighted(known)), "r")
    gates = fleet(controller, {"a": 10})
    with pytest.raises(SupplierError, match=reason):
        controller.decide(gates, gates)


class OwnPrices:
    """Each client its own price."""

    def mean(self, num_rounds: int) -> float:
        return 2.0

    def at(self, round_number: int, clients: Sequence[str]) -> Mapping[str, float]:
        return {client: 1.0 + number for number, client in enumerate(clients)}


class FixedPrices:
    """Each client its own price, always the same; a tenth of the fleet is dear."""

    def mean(self, num_rounds: int) -> float:
        return 2.9

    def at(self, round_number: int, clients: Sequence[str]) -> Mapping[str, float]:
        return {client: 20.0 if client == "client-9" else 1.0 for client in clients}


@pytest.mark.parametrize("ahead", [0.0, None])
@pytest.mark.parametrize("share", [0.0, 0.25])
def test_nobody_is_shut_out_by_its_price(share: float, ahead: float | None) -> None:
    """The fleet does what the simulation does; the dear client has its samples, or none."""
    options = ControlOptions(hard_capacity=True, least_share=share)
    prices = FixedPrices()
    mine = partial(make_policy, "tide", options=options)
    on = replace(terms("tide", prices=prices), policy=mine, spend_ahead=ahead)
    controller = Controller(on, "r")
    gates = fleet(controller, {f"client-{number}": 10 for number in range(10)})
    rounds, dear = [], []
    for _ in range(40):
        rounds.append(play(controller, gates))
        dear.append(sum(controller.ledger.account("client-9").newest.holding))
    table = np.ones((40, 10))
    table[:, 9] = 20.0
    law = RecordedPrices(table)
    problem = Problem(
        buffer_capacities=[10] * 10, budget=55.0, mean_price=law.mean(40), num_rounds=40
    )
    counted = make_policy("tide", problem, replace(options, spend_ahead=ahead))
    run = simulate(counted, problem, law, 0, price_per_client=True)
    np.testing.assert_array_equal([one.admitted for one in rounds], run.columns["admitted"])
    np.testing.assert_allclose([one.spent for one in rounds], run.columns["spent"])
    assert (min(dear[20:]) > 0) == (share > 0)
    if ahead is not None:
        assert all(one.overspend <= 1e-9 for one in rounds)


@pytest.mark.parametrize(("granted", "has_some"), [(5.5, False), (55.0, True)])
def test_what_a_client_of_a_shard_is_bought_at_least_follows_the_grants(
    granted: float, has_some: bool
) -> None:
    """A tenth of its nominal budget does not pay for the dear client's samples."""
    purse = Purse("r", "east")
    budgets = (granted,) * 30
    purse.take(Grant(run="r", shard="east", first_round=1, before=0.0, budgets=budgets))
    controller = Controller(terms("tide", prices=FixedPrices(), budget=55.0, purse=purse), "r")
    gates = fleet(controller, {f"client-{number}": 10 for number in range(10)})
    for _ in budgets:
        row = play(controller, gates)
    assert (controller.ledger.account("client-9").admitted > 0) == has_some
    news = controller.report()
    assert news is not None
    assert news.round_number == row.round_number == len(budgets)


class OneAt(OwnPrices):
    """Nine pay 1 for a sample; the tenth pays what it is given."""

    def __init__(self, price: float) -> None:
        self.price = price

    def at(self, round_number: int, clients: Sequence[str]) -> Mapping[str, float]:
        return {client: self.price if client == "client-9" else 1.0 for client in clients}


def admitted_by_each(policy: str, price: float, rounds: int) -> list[int]:
    """What ten clients admit at no money ahead, in a fleet and, together, in the simulation."""
    strict = ControlOptions(hard_capacity=True, spend_ahead=0.0)
    controller = Controller(terms(policy, strict, prices=OneAt(price), num_rounds=rounds), "r")
    gates = fleet(controller, {f"client-{number}": 10 for number in range(10)})
    played = [play(controller, gates) for _ in range(rounds)]
    assert all(row.overspend <= 1e-9 for row in played)
    table = np.ones((rounds, 10))
    table[:, 9] = price
    problem = Problem(buffer_capacities=[10] * 10, budget=55.0, mean_price=2.0, num_rounds=rounds)
    run = simulate(
        make_policy(policy, problem, strict), problem, RecordedPrices(table), 0,
        price_per_client=True,
    )  # fmt: skip
    np.testing.assert_array_equal([row.admitted for row in played], run.columns["admitted"])
    return [controller.ledger.account(client).admitted for client in gates]


@pytest.mark.long
@pytest.mark.parametrize("policy", [name for name in POLICIES if name != "hybrid"])
def test_one_client_at_1000_does_not_price_the_others(policy: str) -> None:
    """Each of the nine others has at least what it has where all pay the same, or nearly."""
    alike = admitted_by_each(policy, 1.0, rounds=40)
    *others, dear = admitted_by_each(policy, 1000.0, rounds=40)
    assert min(others) >= 0.95 * min(alike)
    assert dear <= 40 * 55 // 1000


class BadPrices(OwnPrices):
    """A feed that fails in one of several ways."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def at(self, round_number: int, clients: Sequence[str]) -> Any:
        return self.answer


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (
            float("nan"),
            "must return a number from 0 to 1e.15 as the price of round 1 for all clients, got",
        ),
        (None, "the price of round 1 for all clients, got None"),
        ("dear", "got 'dear'"),
        ("3", "got '3'"),
        (True, "got True"),
        ({"a": 1.0, "b": "3"}, "for b, got '3'"),
        (-1.0, "got -1.0"),
        ({}, "has no price for 'a', 'b' in round 1, only for nobody; prices are by client name"),
        ({"c": 1.0}, "has no price for 'a', 'b' in round 1, only for 'c'"),
        ({f"site-{n}": 1.0 for n in range(5)}, "only for 'site-0', 'site-1', 'site-2' and others;"),
        (
            {"a": 1.0, "b": float("inf")},
            "as the price of round 1 for b, got inf",
        ),
    ],
)
def test_a_price_that_is_none_is_refused_by_round_and_client(answer: Any, reason: str) -> None:
    controller = Controller(terms("constant_admission", prices=BadPrices(answer)), "r")
    gates = fleet(controller, {"a": 10, "b": 10})
    with pytest.raises(SupplierError, match=reason):
        controller.decide(gates, gates)


@pytest.mark.parametrize("policy", ["constant_admission", "tide"])
def test_a_client_that_the_price_feed_does_not_know_gets_no_order(
    policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It holds up nobody, and has its part as soon as the feed knows it."""
    prices = BadPrices({"a": 1.0, "c": 2.0})
    controller = Controller(terms(policy, prices=prices), "r")
    gates = fleet(controller, {"a": 10, "b": 10, "c": 10})
    row = play(controller, gates)
    assert (row.fleet, row.orders, row.answered) == (3, 2, 2)
    assert row.spent > 0
    assert "no order for 'b' in round 1: the price feed only knows 'a', 'c'" in caplog.text
    prices.answer = {"a": 1.0, "b": 1.0, "c": 2.0}
    assert set(controller.decide(gates, gates)) == {"a", "b", "c"}


def test_a_price_feed_that_raises_is_named_with_its_round() -> None:
    class Down(BadPrices):
        def at(self, round_number: int, clients: Sequence[str]) -> Any:
            raise ConnectionError("no route to the exchange")

    controller = Controller(terms("constant_admission", prices=Down(None)), "r")
    gates = fleet(controller, {"a": 10})
    with pytest.raises(
        SupplierError, match="feed failed in round 1 with ConnectionError: no"
    ) as it:
        controller.decide(gates, gates)
    assert isinstance(it.value.__cause__, ConnectionError)
    assert it.value.supplier == "the price feed"


def test_a_client_that_lost_its_books_begins_again_and_what_is_unknown_is_booked() -> None:
    controller = Controller(terms("constant_admission", budget=6.0, **CHEAP), "r")
    gates = fleet(controller, {"a": 20, "b": 20})
    play(controller, gates)
    orders = controller.decide(gates, gates)
    controller.book("a", gates["a"].apply(orders["a"]))
    gates["b"].apply(orders["b"])  # paid, and lost with the buffer
    controller.close()
    assert controller.ledger.exposure == 3.0
    assert controller.address("b").booked_round == 1
    gates["b"] = gate("b", 20)
    controller.join(hello("b", 20, buffer_id="second"))
    assert controller.ledger.exposure == 0.0
    assert controller.address("b").booked_round == 0
    assert controller.address("b").buffer_id == "second"
    third = play(controller, gates)
    assert (third.admitted, third.spent, third.answered) == (6, 9.0, 2)
    account = controller.ledger.account("b")
    assert (account.admitted, account.paid) == (6, 9.0)
    assert (account.lost.admitted, account.lost.spent, account.lost.buffers) == (3, 6.0, 1)


def test_an_open_rounds_receipt_waits_for_the_reply_that_brings_the_model() -> None:
    on = terms("constant_admission", budget=6.0, **CHEAP)
    controller = Controller(on, "r")
    gates = fleet(controller, {"a": 20, "b": 20})
    orders = controller.decide(gates, gates)
    controller = restored(controller, on)  # the server died after sending
    controller.join(hello("a", 20), gates["a"].apply(orders["a"]))
    again = controller.decide(gates, gates)
    assert controller.book("a", gates["a"].apply(again["a"])).on_time


@pytest.mark.parametrize("policy", ["constant_admission", "tide"])
def test_a_client_that_claims_to_have_read_too_much_stops_nobody(policy: str) -> None:
    """Its receipt is refused; so is what it says when it comes back, and it may begin again."""
    on = terms(policy, budget=30.0, **CHEAP)
    controller = Controller(on, "r")
    gates = fleet(controller, {"a": 20, "b": 20, "liar": 20})
    play(controller, gates)
    for now, read in enumerate((2**63 - 1, 2**62, 10_000), start=2):
        orders = controller.decide(gates, gates)
        lie = replace(gates["liar"].apply(orders["liar"]), read=read)
        before = controller.ledger.account("liar")
        with pytest.raises(WireError, match=r"of liar is refused: it reports \S+ samples read"):
            controller.book("liar", lie)
        assert controller.ledger.account("liar") == before
        for client in ("a", "b"):
            controller.book(client, gates[client].apply(orders[client]))
        row = controller.close()
        assert (row.orders, row.answered) == (3, 2)
        controller = restored(controller, on)
        with pytest.raises(WireError, match=r"samples read .* Delete its buffer file to begin"):
            controller.join(hello("liar", 20, buffer_id=before.buffer_id), lie)
        gates["liar"] = gate("liar", 20)
        controller.join(hello("liar", 20, buffer_id=f"buffer {now}"))
        address = controller.address("liar")
        assert Address.from_record(address.to_record()) == address
        assert address.skip <= 20 * now
        controller = restored(controller, on)
    assert play(controller, gates).answered == 3


def test_a_client_that_lost_ever_so_many_buffers_can_be_addressed() -> None:
    """It claims all that is believed, for one buffer after another."""
    controller = Controller(terms("tide", **CHEAP), "r")
    controller.join(hello("liar", 100))
    long_ago = replace(controller.ledger.account("liar"), lost=Lost(read=LARGEST_INTEGER - 2000))
    controller.ledger.accounts["liar"] = long_ago
    for number in range(3):
        (order,) = controller.decide(["liar"], ["liar"]).values()
        claimed = readable(controller.ledger.account("liar").most_bought(order))
        assert claimed >= 1000
        controller.book("liar", Receipt(run="r", round_number=number + 1, read=claimed))
        controller.close()
        controller.join(hello("liar", 100, buffer_id=f"buffer {number}"))
        address = controller.address("liar")
        assert Address.from_record(address.to_record()) == address
    assert address.skip == LARGEST_INTEGER


def test_how_far_a_stream_was_read_is_believed_in_proportion(
    caplog: pytest.LogCaptureFixture,
) -> None:
    controller = Controller(terms(), "r")
    controller.join(replace(hello("a", 20), candidates=30, read=readable(30)))
    assert controller.ledger.account("a").newest.read == readable(30)
    assert not caplog.records
    controller.join(replace(hello("a", 20), candidates=30, read=2 * readable(30) + 1))
    assert controller.ledger.account("a").newest.read == readable(30)
    assert "more than its orders allow; the server ignores this count" in caplog.text
    assert controller.decide(["a"], ["a"])


def test_books_that_the_server_does_not_know_are_refused_with_a_remedy() -> None:
    old = Controller(terms(), "r")
    gates = fleet(old, {"a": 20, "b": 20})
    receipt = gates["a"].apply(old.decide(gates, gates)["a"])
    with pytest.raises(WireError, match="round 1 of run 'r', which this server does not know: res"):
        Controller(terms(), "r").join(hello("a", 20), receipt)
    with pytest.raises(WireError, match="round 1 of run 'r', which this server does not know: res"):
        old.join(hello("a", 20, buffer_id="another"), receipt)
    with pytest.raises(WireError, match="a now has a capacity of 30, but had 20 before"):
        old.join(hello("a", 30))


def test_a_client_that_is_ahead_of_an_older_copy_of_the_books_is_refused_with_a_remedy() -> None:
    on = terms()
    controller = Controller(on, "r")
    gates = fleet(controller, {"a": 20, "b": 20})
    older = controller
    for number in range(1, 5):
        orders = controller.decide(gates, gates)
        for name, order in orders.items():
            newest = gates[name].apply(order)
            controller.book(name, newest)
        controller.close()
        if number == 2:
            older = restored(controller, on)
    told = "books of run 'r' end at round 2, and b is at round 4: .* Put the newer folder back"
    with pytest.raises(WireError, match=told):
        older.join(hello("b", 20), newest)


def test_terms_that_are_refused_stay_refused() -> None:
    controller = Controller(terms("tide", headroom=4.0), "r")
    controller.join(hello("a", 10))
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="so a headroom of 4"):
            controller.decide(["a"], ["a"])


def test_a_trace_that_ends_before_the_run_is_refused_with_the_terms() -> None:
    trace = PricePath(RecordedPrices([2.0] * 39), seed=0)
    with pytest.raises(ConfigurationError, match="prices for 39 rounds, but the run has 40"):
        terms(prices=trace)
    assert terms(prices=trace, num_rounds=39).num_rounds == 39


def test_a_round_needs_a_client_and_is_decided_before_it_is_closed() -> None:
    controller = Controller(terms(), "r")
    with pytest.raises(ValueError, match="no client can take part"):
        controller.decide([], [])
    with pytest.raises(ValueError, match="round 1 has not been decided"):
        controller.close()


def test_a_fleet_that_changes_in_every_round_spends_what_is_ordered_and_is_fair() -> None:
    on = terms("constant_admission", budget=3.0, **CHEAP)
    controller = Controller(on, "r")
    gates = fleet(controller, {f"c{number:02}": 20 for number in range(10)})
    ordered = admitted = 0.0
    for now in range(60):
        guest = f"d{now:02}"  # stays for one round
        controller.join(hello(guest, 1))
        gates[guest] = gate(guest, 1)
        closed = play(controller, gates)
        del gates[guest]
        controller = restored(controller, on)
        ordered, admitted = ordered + closed.ordered, admitted + closed.admitted
    assert admitted == pytest.approx(ordered, abs=1)
    each = [controller.ledger.account(f"c{number:02}").admitted for number in range(10)]
    assert max(each) - min(each) <= 2
    assert min(each) >= 10


def test_only_the_open_rounds_orders_are_given_again() -> None:
    on = terms("constant_admission", budget=6.0, **CHEAP)
    controller = Controller(on, "r")
    gates = fleet(controller, {"a": 20, "b": 20})
    orders = controller.decide(gates, gates)
    controller.book("a", gates["a"].apply(orders["a"]))
    controller.close()
    assert controller.is_silent("b")
    assert not controller.is_silent("a")
    orders = controller.decide(
        gates, gates
    )  # b must answer, or introduce itself, before it gets one
    assert set(orders) == {"a"}
    again = restored(controller, on)
    assert again.decide(gates, gates) == orders
    gates["a"].apply(orders["a"])
    again.book("a", gates["a"].apply(orders["a"]))
    again.close()
    again.join(hello("b", 20, void_round=2))
    assert set(again.decide(gates, gates)) == {"a", "b"}


@pytest.mark.parametrize("ahead", [0.0, None])
@pytest.mark.parametrize("prices", [PricePath(UniformPrice(1, 10), SEED), OwnPrices()])
@pytest.mark.parametrize("name", ["tide", "acdpp", "constant_admission"])
def test_a_round_in_which_nobody_can_be_ordered_from_passes(
    name: str, prices: PriceFeed, ahead: float | None
) -> None:
    controller = Controller(terms(name, prices=prices, spend_ahead=ahead), "r")
    gates = fleet(controller, {"a": 20, "b": 20})
    controller.decide(gates, gates)
    controller.close()
    assert controller.decide(gates, gates) == {}
    row = controller.close()
    assert (row.orders, row.answered, row.spent) == (0, 0, 0.0)


def test_when_k_grows_the_server_still_knows_what_is_stored() -> None:
    on = terms("constant_admission", budget=10.0, **CHEAP)
    controller = Controller(on, "r")
    gates = fleet(controller, {"a": 20, "b": 20})  # K = 4
    for _ in range(6):
        play(controller, gates)
    controller.join(hello("c", 40))
    gates["c"] = gate("c", 40)  # K = 8
    for _ in range(8):
        orders = controller.decide(gates, gates)
        for client, order in orders.items():
            booking = controller.book(client, gates[client].apply(order))
            assert booking.admitted == order.count, (client, order)  # no more than fits is ordered
        controller.close()


def test_a_client_that_turns_stale_in_mid_run_is_not_filled_for_nothing() -> None:
    controller = Controller(terms("hybrid", budget=6.0, **CHEAP), "r")
    gates = fleet(controller, {"m": 20, "z": 20})
    play(controller, gates)
    controller.join(hello("a", 20))
    controller.join(hello("b", 20))  # now m is of the second half
    gates.update({"a": gate("a", 20), "b": gate("b", 20)})
    orders = controller.decide(gates, gates)
    assert (orders["m"].retention, orders["m"].count) == ("frozen", 0)
    for client, order in orders.items():
        controller.book(client, gates[client].apply(order))
    controller.close()
    rest = {name: gates[name] for name in ("a", "b", "m")}
    for _ in range(3):
        assert play(controller, rest).fleet == 4  # what z keeps does not expire: it has not left


@pytest.mark.parametrize("name", POLICIES)
def test_spending_nothing_ahead_holds_when_disks_are_lost_and_others_join(name: str) -> None:
    strict = ControlOptions(hard_capacity=True, spend_ahead=0.0)
    controller = Controller(terms(name, strict), "r")
    gates = fleet(controller, MNIST)
    draw = np.random.default_rng(2)
    lost, paid = 0.0, dict.fromkeys(gates, 0.0)
    broken: list[str] = []
    for now in range(1, 41):
        for client in broken:
            capacity = controller.ledger.account(client).buffer_capacity
            controller.join(hello(client, capacity, buffer_id=f"made in round {now}"))
        broken = []
        if now % 7 == 0:
            newcomer = f"late-{now}"
            gates[newcomer], paid[newcomer] = gate(newcomer, 10), 0.0
            controller.join(hello(newcomer, 10))
        present = [client for client in gates if draw.random() < 0.8]
        for client, order in controller.decide(present, gates).items():
            receipt = gates[client].apply(order)
            paid[client] = receipt.spent
            if draw.random() < 0.5:
                controller.book(client, receipt)
            elif draw.random() < 0.2:  # the disk is gone, and with it what nobody has heard of
                lost += paid[client]
                capacity = controller.ledger.account(client).buffer_capacity
                paid[client], gates[client] = 0.0, gate(client, capacity)
                broken.append(client)
        controller.close()
        assert lost + sum(paid.values()) <= 55.0 * now * (1 + 1e-9)


def test_a_client_that_never_gets_as_far_as_its_gate_costs_the_others_nothing() -> None:
    """It introduces itself in every round and fails before it applies an order."""
    controller = Controller(terms("tide", num_rounds=60), "r")
    gates = fleet(controller, MNIST)
    for now in range(60):
        controller.join(hello("client-0", 8, void_round=now))
        for client, order in controller.decide(gates, gates).items():
            if client != "client-0":
                controller.book(client, gates[client].apply(order))
        last = controller.close()
    paid = sum(controller.ledger.account(client).paid for client in gates)
    assert paid == pytest.approx(55.0 * 60, rel=0.03)
    unanswered = controller.ledger.account("client-0").outstanding
    assert unanswered is not None
    assert unanswered.round_number == 60
    assert last.exposure <= 8 * unanswered.price


@pytest.mark.no_cover
@pytest.mark.long
@pytest.mark.parametrize("on_time", [0.1, 0.5])
def test_late_receipts_do_not_make_spending_run_away(on_time: float) -> None:
    endless = ControlOptions(hard_capacity=True, endless=True)
    controller = Controller(terms("tide", endless, endless=True, num_rounds=300), "r")
    gates = fleet(controller, MNIST)
    draw = np.random.default_rng(0)
    waiting: list[tuple[str, Any]] = []
    spent = []
    for _ in range(300):
        orders = controller.decide(gates, gates)
        for client, receipt in waiting:
            controller.book(client, receipt)
        waiting = []
        for client, order in orders.items():
            receipt = gates[client].apply(order)
            if draw.random() < on_time:
                controller.book(client, receipt)
            else:
                waiting.append((client, receipt))
        spent.append(controller.close().spent)
    assert np.mean(spent) == pytest.approx(55.0, rel=0.1)


def test_an_order_that_buys_nothing_is_no_exposure() -> None:
    controller = Controller(terms("tide"), "r")
    fleet(controller, MNIST)
    ledger = controller.ledger
    order = Order(
        run="r", round_number=1, price=9.0, retention="oldest_first", retention_horizon=0,
        count=NO_LIMIT, thresholds=(3.0, 8.0),
    )  # fmt: skip
    ledger.send("client-0", order)
    assert ledger.exposure == 0
    ledger.send("client-1", replace(order, price=3.0))
    assert ledger.exposure == 3.0 * 9  # all slots are empty


def test_an_end_cannot_be_given_up_or_taken_on_in_a_resumed_run() -> None:
    endless = terms("tide", endless=True)
    with pytest.raises(ValueError, match="made with num_rounds = 40, this run has None"):
        restored(Controller(terms("tide"), "r"), endless)
    with pytest.raises(ValueError, match="made with num_rounds = None, this run has 40"):
        restored(Controller(endless, "r"), terms("tide"))


def test_an_order_that_a_client_calls_void_is_forgotten_and_refused_when_it_comes() -> None:
    """It introduced itself as new, and then had an order of a round that was over."""
    controller = Controller(terms("constant_admission"), "r")
    gates = fleet(controller, {"early": 10, "late": 10})
    store = Store(None, "r", "late", 10)
    gates["late"] = Gate(store, IndexedStream(range(100_000)))
    delayed = controller.decide(gates, gates)["late"]
    controller.close()
    assert controller.ledger.account("late").exposure > 0
    store.void(1)
    controller.join(hello("late", 10, void_round=1))
    assert controller.ledger.account("late").exposure == 0
    order = controller.decide(gates, gates)["late"]
    with pytest.raises(WireError, match="round 1 is void: the server no longer expects orders"):
        gates["late"].apply(delayed)
    receipt = gates["late"].apply(order)
    controller.book("late", receipt)
    account = controller.ledger.account("late")
    assert account.paid == pytest.approx(receipt.spent)
    assert account.admitted == receipt.admitted > 0
    assert account.outstanding is None


def test_an_order_that_was_applied_in_an_open_round_is_not_void() -> None:
    """The receipt that is still to come speaks of it."""
    on = terms("constant_admission", budget=6.0, **CHEAP)
    controller = Controller(on, "r")
    gates = fleet(controller, {"a": 20, "b": 20})
    play(controller, gates)
    newest = gates["a"].apply(controller.decide(gates, gates)["a"])
    controller = restored(controller, on)
    controller.join(hello("a", 20, void_round=2), newest)
    assert controller.book("a", newest).admitted == 3


def test_a_buffer_that_went_back_in_time_is_refused_with_a_remedy() -> None:
    controller = Controller(terms("constant_admission", budget=6.0, **CHEAP), "r")
    gates = fleet(controller, {"a": 20})
    first = gates["a"].apply(controller.decide(gates, gates)["a"])
    controller.book("a", first)
    controller.close()
    play(controller, gates)
    with pytest.raises(WireError, match=r"old copy: .* round 2, .* none after 1. Delete its buf"):
        controller.join(hello("a", 20), first)
    with pytest.raises(WireError, match="booked round 2, but the buffer has none after"):
        controller.join(hello("a", 20))


class Rationed(IndexedStream):
    """A stream that gives no more than a number of samples in each round."""

    left = 0

    def take(self, count: int) -> list[Any]:
        given = super().take(min(count, self.left))
        self.left -= len(given)
        return given


@pytest.mark.parametrize("sums_only", [True, False])
@pytest.mark.parametrize("name", ["acdpp", "constant_admission", "tide", "hybrid"])
def test_decisions_follow_from_sums_alone_where_that_is_asked(name: str, sums_only: bool) -> None:
    """Two fleets that report the same sums, split otherwise among their clients."""
    capacities = {"a": 40, "b": 40, "c": 40, "d": 40}
    splits = {"one": {"a": 12, "b": 0, "c": 9, "d": 3}, "two": {"a": 6, "b": 6, "c": 3, "d": 9}}
    orders: dict[str, list[dict[str, Order]]] = {"one": [], "two": []}
    for split, takes in splits.items():
        controller = Controller(terms(name, budget=400.0, sums_only=sums_only), "r")
        fleet(controller, capacities)
        streams = {client: Rationed(range(1000)) for client in capacities}
        gates = {
            client: Gate(Store(None, "r", client, 40), stream) for client, stream in streams.items()
        }
        for _ in range(4):
            for client, stream in streams.items():
                stream.left = takes[client]
            given = controller.decide(gates, gates)
            orders[split].append(given)
            for client, order in given.items():
                controller.book(client, gates[client].apply(order))
            row = controller.close()
    assert row.admitted > 0
    if sums_only or name == "tide":
        assert orders["one"] == orders["two"]
    elif name == "acdpp":  # which clips an order to the room that it leaves each client
        assert orders["one"] != orders["two"]


def test_a_policy_without_a_shadow_price_cannot_be_a_shard() -> None:
    controller = Controller(terms("acdpp", purse=Purse("r", "east")), "r")
    gates = fleet(controller, MNIST)
    with pytest.raises(ValueError, match="acdpp cannot be sharded: it does not say what money is"):
        controller.decide(gates, gates)
    with pytest.raises(ValueError, match="this server is not a shard"):
        Controller(terms("tide"), "r").report()


def test_a_shard_is_resumed_as_a_shard_and_reports_nothing_before_its_first_round() -> None:
    shard = Controller(terms("tide", purse=Purse("r", "east")), "r")
    assert shard.report() is None
    with pytest.raises(ValueError, match=r"made with shard = \['r', 'east'\], this run has None"):
        restored(shard, terms("tide"))


JOINING = 151
TARGET = 11.0


def joining(controller: Controller, rounds: int) -> list[FleetRound]:
    """Two clients with 10 slots each, and from round 151 on 18 more."""
    gates = fleet(controller, {"a": 10, "b": 10})
    played = []
    for now in range(1, rounds + 1):
        if now == JOINING:
            gates |= fleet(controller, {f"late-{number}": 10 for number in range(18)})
        played.append(play(controller, gates))
    return played


def test_tide_fills_the_slots_of_those_who_join_as_the_budget_pays_for_them() -> None:
    prices = PricePath(UniformPrice(1, 10), seed=1)
    controller = Controller(terms("tide", budget=TARGET, num_rounds=400, prices=prices), "r")
    played = joining(controller, rounds=200)
    late = played[JOINING - 1 :]
    assert late[0].price > 4  # at which 180 slots would have cost the budget of 68 rounds
    assert late[0].spent < 15 * TARGET
    assert max(row.overspend for row in late) < 15 * TARGET
    assert late[-1].training_size == 200


def test_tide_does_not_wait_for_slots_whose_client_has_nothing_to_fill_them_with() -> None:
    prices = PricePath(UniformPrice(1, 10), seed=1)
    controller = Controller(terms("tide", budget=TARGET, num_rounds=200, prices=prices), "r")
    gates = fleet(controller, {"a": 10, "b": 10})
    controller.join(hello("dry", 60))
    gates["dry"] = Gate(Store(None, "r", "dry", 60), IndexedStream(range(3)))
    played = [play(controller, gates) for _ in range(150)]
    assert played[-1].training_size == 23
    # Waiting for θ(0), the others would have replaced their samples for 2.5 a round.
    assert sum(row.spent for row in played[50:]) > 0.35 * 100 * TARGET


def test_buying_goes_on_while_the_first_samples_are_under_way() -> None:
    """Nobody trains yet, because nothing has come; that is no mistake of the clients'."""
    controller = Controller(terms("constant_admission"), run="r")
    controller.join(hello("a", 100))
    supplier = LateSupplier(number=1, longest_delay=20, now=-1000)
    late = Gate(Store(None, "r", "a", 100), IndexedStream("x" * 1000), supplier=supplier)
    for _ in range(4):
        (order,) = controller.decide(["a"], ["a"]).values()
        receipt = late.apply(order)
        supplier.now -= 1  # nothing is due
        assert (receipt.under_way > 0, receipt.occupancy) == (True, 0)
        controller.book("a", receipt)
        assert controller.close(used=False).pause == 0
    supplier.now = 0
    (order,) = controller.decide(["a"], ["a"]).values()
    receipt = late.apply(order)
    assert receipt.admitted
    controller.book("a", receipt)
    assert controller.close(used=False).pause == 1


def test_a_pause_in_buying_survives_a_restart() -> None:
    """With it, what is left of it, and how often purchases were of no use before."""

    def bought(*, restarts: bool) -> list[int]:
        controller = Controller(terms("tide"), "r")
        gates = fleet(controller, {"a": 10, "b": 10})
        counts = []
        for _ in range(20):
            orders = controller.decide(list(gates), list(gates))
            for client, order in orders.items():
                controller.book(client, gates[client].apply(order))
            counts.append(controller.close(used=False).admitted)
            if restarts:
                controller = restored(controller, terms("tide"))
        return counts

    straight = bought(restarts=False)
    assert [number for number, count in enumerate(straight) if count][:4] == [0, 2, 5, 10]
    assert bought(restarts=True) == straight


def test_an_older_buffer_that_was_put_back_is_refused_with_a_remedy() -> None:
    for stored in (True, False):  # only a buffer that held something counts as a loss
        budget = 6.0 if stored else 1e-9
        controller = Controller(terms("constant_admission", budget=budget, **CHEAP), "r")
        gates = fleet(controller, {"a": 20, "b": 20})
        orders = controller.decide(gates, gates)
        receipts = {name: gates[name].apply(order) for name, order in orders.items()}
        for name, receipt in receipts.items():
            controller.book(name, receipt)
        controller.close()
        assert (receipts["a"].occupancy > 0) is stored
        controller.join(hello("a", 20, buffer_id="another"), None)
        with pytest.raises(WireError, match=r"an older buffer that was put back.* Delete its buff"):
            controller.join(hello("a", 20), receipts["a"])


def test_a_client_that_begins_with_more_than_is_planned_stops_nobody() -> None:
    controller = Controller(terms(headroom=4.0), "r")
    gates = fleet(controller, {"a": 40, "b": 40})
    full = replace(hello("full", 40), holding=(30, 10))
    controller.join(full)
    orders = controller.decide(["a", "b", "full"], ["a", "b", "full"])
    assert orders.keys() == {"a", "b", "full"}
    for client in gates:
        assert controller.book(client, gates[client].apply(orders[client])).on_time
    assert controller.close().distinct_samples >= 40


def test_what_a_client_began_with_counts_even_if_it_has_read_its_stream() -> None:
    controller = Controller(terms(), "r")
    controller.join(replace(hello("a", 40), holding=(5,), read=15, last_taken="x"))
    newest = controller.ledger.account("a").newest
    assert (newest.holding, newest.occupancy, newest.read) == ((5,), 5, 15)
