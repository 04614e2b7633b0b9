"""One client says whatever it likes; the others, and the budget, must not pay for it."""

import dataclasses
from contextlib import suppress
from typing import Any

import pytest
from check_size import at_size
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from quiet import quietly
from world import terms

from liars import CAPACITY, LIAR, LIES, POLICIES, RUN, Client, play
from tidegate.errors import WireError
from tidegate.server.controller import Controller
from tidegate.server.fleet_round import FleetRound
from tidegate.wire import Introduction, Order, Receipt

pytestmark = pytest.mark.no_cover  # long loops, covered elsewhere

_quietly = pytest.fixture(autouse=True)(quietly)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("lie", [name for name in LIES if name != "honest"])
def test_a_liar_is_believed_no_more_than_an_honest_client_would_have_spent(
    policy: str, lie: str
) -> None:
    rounds = at_size(40, 150)
    honest = play(policy, LIES["honest"], seed=1, rounds=rounds)
    played = play(policy, LIES[lie], seed=1, rounds=rounds)
    fill = 10.0 * CAPACITY / rounds  # the first buffer that it loses is filled again at once
    assert played.liars <= 1.15 * honest.liars + fill
    assert played.others >= 0.97 * honest.others
    assert played.booked <= honest.booked + 0.02 * 55.0 + fill


HONEST = ("client-1", "client-2")
small = st.integers(0, 12)


@st.composite
def receipts(draw: st.DrawFn) -> dict[str, Any]:
    """What to change in an honest receipt; often a little, so that it may be believed."""
    changes: dict[str, Any] = {}
    for name in ("admitted", "occupancy", "expiring", "prior_uses", "round_number"):
        if draw(st.booleans()):
            changes[name] = draw(small)
    for name in ("total_admitted", "total_spent", "spent"):
        if draw(st.integers(0, 3)) == 0:
            changes[name] = draw(small) if name == "total_admitted" else draw(st.floats(0, 200))
    return changes


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
        liar = self.clients[LIAR]
        if new_disk:
            liar.begin_again()
        newest = liar.store.answer(liar.store.books().last_round)
        with suppress(WireError):
            self.controller.join(liar.introduction, newest[1] if newest else None)
            self.present.add(LIAR)

    def tell(self, order: Order, changes: dict[str, Any], *, silent: bool, paid: bool) -> None:
        account = self.controller.ledger.account(LIAR)
        self.asked += account.most_bought(order) * order.price
        try:
            told = dataclasses.asdict(self.clients[LIAR].gate.apply(order)) | changes
            if paid:
                told["spent"] = told["admitted"] * order.price
            if not silent:
                self.controller.book(LIAR, Receipt(**told))
        except WireError:
            self.present.discard(LIAR)

    def check(self, row: FleetRound) -> None:
        ledger = self.controller.ledger
        self.spent += row.spent
        assert row.overspend <= row.cost_debt + 1e-6
        assert row.training_size <= len(self.clients) * CAPACITY
        assert ledger.account(LIAR).total_spent <= self.asked + 1e-6
        for name in HONEST:
            books, account = self.clients[name].store.books(), ledger.account(name)
            assert account.total_admitted == books.total_admitted
            assert account.total_spent == pytest.approx(books.total_spent)
        in_all = sum(ledger.account(name).total_spent for name in self.clients)
        assert self.spent == pytest.approx(in_all)
        if self.strict:
            assert in_all <= 20.0 * row.round_number * (1 + 1e-9)


@given(
    policy=st.sampled_from(POLICIES),
    strict=st.booleans(),
    plans=st.lists(
        st.tuples(receipts(), st.booleans(), st.booleans(), st.booleans()), min_size=5, max_size=25
    ),
)
@settings(
    max_examples=at_size(30, 150),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
def test_whatever_one_client_says_the_books_of_the_others_stand(
    policy: str, strict: bool, plans: list[tuple[dict[str, Any], bool, bool, bool]]
) -> None:
    played = Played(policy, strict=strict)
    for changes, new_disk, silent, paid in plans:
        if LIAR not in played.present:
            played.come_back(new_disk=new_disk)
        for name, order in played.controller.decide(played.present, played.present).items():
            if name == LIAR:
                played.tell(order, changes, silent=silent, paid=paid)
            else:
                played.controller.book(name, played.clients[name].gate.apply(order))
        played.check(played.controller.close())


def test_a_capacity_beyond_belief_is_refused() -> None:
    believing = dataclasses.replace(terms("tide", strict=False, seed=1), largest_buffer=50)
    controller = Controller(believing, RUN)
    controller.join(Client("client-1").introduction)
    boast = Introduction(run=RUN, client=LIAR, buffer_capacity=51, buffer_id="b")
    with pytest.raises(WireError, match=r"51 samples, above the limit of 50; raise"):
        controller.join(boast)
    assert controller.ledger.clients == ["client-1"]
