"""Hypothesis drives server and clients, and makes what it finds as short as it can."""

import pytest
from check_size import at_size
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from quiet import quietly
from world import POLICIES, World, terms

_quietly = pytest.fixture(autouse=True)(quietly)

some = st.integers(0, 10**6)
"""Which of what there is, whatever there is."""


FOR_ANY_FLEET = [name for name in POLICIES if name != "hybrid"]  # which needs two clients


class Faults(RuleBasedStateMachine):
    """Every step that a world can take, in any order."""

    world: World

    @initialize(
        policy=st.sampled_from(FOR_ANY_FLEET), seed=st.integers(0, 99), strict=st.booleans()
    )
    def begin(self, policy: str, seed: int, strict: bool) -> None:
        strict = strict and policy != "costless_oracle"
        self.world = World(terms(policy, strict=strict, seed=seed), strict=strict)
        self.world.join(4, 1000)

    @precondition(lambda self: len(self.world.devices) < 5)
    @rule(
        capacity=st.integers(1, 6),
        pool=st.sampled_from([0, 3, 1000]),
        at_fault=st.frozensets(st.integers(0, 12), max_size=4),
    )
    def somebody_joins(self, capacity: int, pool: int, at_fault: frozenset[int]) -> None:
        self.world.join(capacity, pool, at_fault)

    @precondition(lambda self: not self.world.deciding)
    @rule(dies=st.booleans())
    def a_round_is_decided(self, dies: bool) -> None:
        self.world.open_round(dies_before_saving=dies)

    @precondition(lambda self: self.world.orders)
    @rule(number=some, keep=st.booleans())
    def an_order_arrives(self, number: int, keep: bool) -> None:
        self.world.deliver(number % len(self.world.orders), keep=keep)

    @precondition(lambda self: self.world.orders)
    @rule(number=some)
    def an_order_is_lost(self, number: int) -> None:
        self.world.orders.pop(number % len(self.world.orders))

    @precondition(lambda self: self.world.replies)
    @rule(number=some, keep=st.booleans())
    def a_reply_arrives(self, number: int, keep: bool) -> None:
        self.world.receive(number % len(self.world.replies), keep=keep)

    @precondition(lambda self: self.world.replies)
    @rule(number=some)
    def a_reply_is_lost(self, number: int) -> None:
        self.world.replies.pop(number % len(self.world.replies))

    @precondition(lambda self: self.world.deciding)
    @rule(dies=st.booleans())
    def a_round_is_closed(self, dies: bool) -> None:
        self.world.close_round(dies_before_saving=dies)

    @rule()
    def the_server_dies(self) -> None:
        self.world.restart_server()

    @rule(number=some, accident=st.sampled_from(["before", "after", "full"]))
    def the_next_commit_fails(self, number: int, accident: str) -> None:
        devices = list(self.world.devices.values())
        devices[number % len(devices)].disk.accident = accident

    @rule(number=some, after=st.integers(0, 3))
    def a_supplier_fails(self, number: int, after: int) -> None:
        devices = list(self.world.devices.values())
        devices[number % len(devices)].supplier_fails_after = after

    @rule(number=some)
    def somebody_comes_or_goes(self, number: int) -> None:
        devices = list(self.world.devices.values())
        device = devices[number % len(devices)]
        device.online = not device.online

    @rule(number=some)
    def a_disk_is_lost(self, number: int) -> None:
        self.world.lose_disk(list(self.world.devices)[number % len(self.world.devices)])

    @invariant()
    def the_books_reconcile(self) -> None:
        if hasattr(self, "world"):
            self.world.check()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.calm_down()


TestFaults = pytest.mark.no_cover(Faults.TestCase)
TestFaults.settings = settings(
    max_examples=at_size(12, 60),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
