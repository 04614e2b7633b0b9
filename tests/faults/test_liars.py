"""One client says whatever it likes; the others, and the budget, must not pay for it."""

import dataclasses
from contextlib import suppress
from functools import cache
from statistics import fmean

import pytest
from check_size import at_size
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from quiet import quietly
from world import terms

from liars import CAPACITY, LIAR, LIES, POLICIES, RUN, Client, Outcome, believable, play
from tidegate.errors import WireError
from tidegate.server.account import Account
from tidegate.server.controller import Controller
from tidegate.server.fleet_round import FleetRound
from tidegate.wire import HEALTH, Introduction, Order, Receipt

pytestmark = pytest.mark.no_cover  # long loops, covered elsewhere

_quietly = pytest.fixture(autouse=True)(quietly)


@pytest.mark.long
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("lie", [name for name in LIES if name != "honest"])
def test_a_liar_is_believed_no_more_than_an_honest_client_would_have_spent(
    policy: str, lie: str
) -> None:
    rounds = at_size(40, 150)
    seeds = AGES_BY_SEEDS if lie == "makes its samples older" else [1]
    honest = [played_honestly(policy, seed, rounds) for seed in seeds]
    played = [play(policy, LIES[lie], seed=seed, rounds=rounds) for seed in seeds]
    fill = 10.0 * CAPACITY / rounds  # the first buffer that it loses is filled again at once
    assert mean(played, "liars") <= 1.15 * mean(honest, "liars") + fill
    assert mean(played, "others") >= 0.97 * mean(honest, "others")
    assert mean(played, "booked") <= mean(honest, "booked") + 0.02 * 55.0 + fill


@cache
def played_honestly(policy: str, seed: int, rounds: int) -> Outcome:
    return play(policy, LIES["honest"], seed=seed, rounds=rounds)


AGES_BY_SEEDS = [1, 2, 3, 4]
"""What it gains depends on the prices: in 40 rounds of the first of these a quarter, or else 0."""


def mean(outcomes: list[Outcome], name: str) -> float:
    return fmean(getattr(outcome, name) for outcome in outcomes)


HONEST = ("client-1", "client-2")
COUNTS = ("bought", "admitted", "refused", "expiring", "occupancy", "uses", "read", "round_number")
AMOUNTS = ("spent", "refunded", "under_way_spent")


@dataclasses.dataclass(frozen=True)
class Plan:
    """What the liar does in one round."""

    bought: int | None
    """What it makes up to have bought, as far as its order allows; None to apply the order."""
    is_late: bool
    """Whether it says that what it bought is still under way."""
    changes: dict[str, int]
    """What is added to its receipt: to counts, or to amounts as so many times the price."""
    holding: tuple[int, ...] | None
    """Samples by age that it makes up."""
    health: dict[str, float]
    is_silent: bool
    new_disk: bool
    """If it has to come back: with a new disk."""


rarely = st.integers(0, 5).map(lambda number: number == 5)
made_up = st.lists(st.integers(0, 5), max_size=5).map(tuple)
changes = st.dictionaries(st.sampled_from(COUNTS + AMOUNTS), st.integers(-3, 3), max_size=2)
plans_of_a_liar = st.builds(
    Plan,
    bought=st.sampled_from([None, 0, 1, 2, 4, CAPACITY]),
    is_late=st.booleans(),
    changes=st.just(dict[str, int]()) | changes,
    holding=rarely.flatmap(lambda is_made_up: made_up if is_made_up else st.none()),
    health=st.dictionaries(st.sampled_from([*HEALTH, "mood"]), st.floats(0, 1e15), max_size=2),
    is_silent=rarely,
    new_disk=rarely,
)


class Played:
    """Two honest clients and one that says what it is told to."""

    def __init__(self, policy: str, *, strict: bool) -> None:
        self.strict = strict
        self.controller = Controller(terms(policy, strict=strict, seed=1), RUN)
        self.clients = {name: Client(name) for name in (LIAR, *HONEST)}
        for client in self.clients.values():
            self.controller.join(client.introduction)
        self.present = set(self.clients)
        self.asked, self.spent = 0.0, 0.0

    def come_back(self, *, new_disk: bool) -> None:
        """As it is, or with a new disk; also if what it says of the old one is refused."""
        liar = self.clients[LIAR]
        if not new_disk:
            liar.store.void(self.controller.round_number - 1)
            newest = liar.store.answer(liar.store.books().last_round)
            with suppress(WireError):
                self.controller.join(liar.introduction, newest[1] if newest else None)
                self.present.add(LIAR)
                return
        liar.begin_again()
        self.controller.join(liar.introduction)
        self.present.add(LIAR)

    def tell(self, order: Order, plan: Plan) -> None:
        account = self.controller.ledger.account(LIAR)
        self.asked += account.most_bought(order) * order.price
        try:
            receipt = self.lie(account, order, plan)
            if not plan.is_silent:
                self.controller.book(LIAR, receipt)
        except WireError:
            self.present.discard(LIAR)
        if plan.is_silent:
            self.present.discard(LIAR)

    def lie(self, account: Account, order: Order, plan: Plan) -> Receipt:
        if plan.bought is None:
            told = dataclasses.asdict(self.clients[LIAR].gate.apply(order))
        else:
            bought = min(plan.bought, account.most_bought(order))
            told = dataclasses.asdict(believable(account, order, bought))
            if plan.is_late:
                told["admitted"] -= bought
                told["under_way_spent"] += bought * order.price
                told["occupancy"] = min(told["occupancy"], account.newest.occupancy)
        for name, change in plan.changes.items():
            told[name] += change * (order.price if name in AMOUNTS else 1)
        if plan.holding is not None:
            told["holding"] = plan.holding
        return Receipt(**{**told, "health": plan.health})

    def check(self, row: FleetRound) -> None:
        ledger = self.controller.ledger
        self.spent += row.spent
        assert row.overspend <= row.cost_debt + 1e-6
        assert row.training_size <= len(self.clients) * CAPACITY
        liar = ledger.account(LIAR)
        assert liar.lost.spent + liar.newest.spent <= self.asked + 1e-6
        assert liar.paid >= -1e-6
        assert max(liar.newest.occupancy, sum(liar.newest.holding)) <= CAPACITY
        for name in HONEST:
            books, account = self.clients[name].store.books(), ledger.account(name)
            assert account.admitted == books.admitted
            assert account.paid == pytest.approx(books.spent)
        in_all = sum(ledger.account(name).paid for name in self.clients)
        assert self.spent == pytest.approx(in_all)
        if self.strict:
            assert in_all <= 20.0 * row.round_number * (1 + 1e-9)


@given(
    policy=st.sampled_from(POLICIES),
    strict=st.booleans(),
    plans=st.lists(plans_of_a_liar, min_size=5, max_size=25),
)
@settings(
    max_examples=at_size(60, 600),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
def test_whatever_one_client_says_the_books_of_the_others_stand(
    policy: str, strict: bool, plans: list[Plan]
) -> None:
    play_plans(policy, plans, strict=strict)


def play_plans(policy: str, plans: list[Plan], *, strict: bool) -> Played:
    played = Played(policy, strict=strict)
    for plan in plans:
        if LIAR not in played.present:
            played.come_back(new_disk=plan.new_disk)
        for name, order in played.controller.decide(played.present, played.present).items():
            if name == LIAR:
                played.tell(order, plan)
            else:
                played.controller.book(name, played.clients[name].gate.apply(order))
        played.check(played.controller.close())
    return played


def test_a_capacity_beyond_belief_is_refused() -> None:
    believing = dataclasses.replace(terms("tide", strict=False, seed=1), largest_buffer=50)
    controller = Controller(believing, RUN)
    controller.join(Client("client-1").introduction)
    boast = Introduction(run=RUN, client=LIAR, buffer_capacity=51, buffer_id="b")
    with pytest.raises(WireError, match=r"51 samples, above the limit of 50; raise"):
        controller.join(boast)
    assert controller.ledger.clients == ["client-1"]
