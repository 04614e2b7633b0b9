"""No sample trains in more rounds than it may: controller and gate, whatever happens to them."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from check_size import at_size
from late_supplier import LateSupplier
from quiet import quietly
from world import RUN, Disk, World

from tidegate.client.store import KEPT_ANSWERS
from tidegate.policies import ControlOptions
from tidegate.policies.presets import make_policy
from tidegate.prices import PricePath, UniformPrice
from tidegate.server.fleet import Terms

pytestmark = pytest.mark.no_cover  # long loops, covered elsewhere

_quietly = pytest.fixture(autouse=True)(quietly)

USES = at_size(5_000, 1_000_000)
CLIENTS, SLOTS = 6, 12


def capped(cap: int, budget: float, *, strict: bool = False) -> Terms:
    options = ControlOptions(hard_capacity=True, spend_ahead=0.0 if strict else None, most_uses=cap)
    return Terms(
        policy=lambda problem: make_policy("tide", problem, options),
        policy_name="tide",
        options={"most_uses": cap},
        budget=budget,
        prices=PricePath(UniformPrice(1, 10), 3),
        num_rounds=10**6,
        endless=True,
    )


def play(
    terms: Terms,
    wanted: int,
    make_store: Callable[[str, int, int], Disk] | None = None,
    *,
    late: bool = False,
) -> dict[str, set[int]]:
    """The rounds in which each sample was trained, in a fleet in which everything goes wrong."""
    world = World(terms, make_store=make_store)
    draw = np.random.default_rng(7)
    for number in range(CLIENTS):
        world.join(SLOTS, 10**9, supplier=LateSupplier(number) if late else None)
    trained: dict[str, set[int]] = {}
    counted = now = 0
    while counted < wanted:
        now += 1
        for device in world.devices.values():
            device.online = bool(draw.random() < 0.75)
            if draw.random() < 0.03:
                device.disk.accident = str(draw.choice(["before", "after", "full"]))
        world.open_round(dies_before_saving=bool(draw.random() < 0.03))
        while world.orders:
            counted += deliver(world, draw, trained)
        if draw.random() < 0.03:
            world.restart_server()
        elif world.deciding:
            world.close_round(dies_before_saving=bool(draw.random() < 0.03))
        if now % 50 == 0 and now < KEPT_ANSWERS:  # books are compared with every answer
            world.check()
    return trained


def deliver(world: World, draw: np.random.Generator, trained: dict[str, set[int]]) -> int:
    """An order arrives, or is lost; how many samples train, those not counted that did before."""
    if draw.random() < 0.1:
        world.orders.pop(0)
        return 0
    client, before = world.orders[0].client, len(world.replies)
    world.deliver(0, keep=bool(draw.random() < 0.1))
    if len(world.replies) == before or world.replies[-1].receipt is None:
        return 0
    now, new = world.replies[-1].receipt.round_number, 0
    for sample in world.devices[client].disk.samples():
        rounds = trained.setdefault(sample, set())
        new += now not in rounds
        rounds.add(now)
    if draw.random() < 0.9:
        world.receive(len(world.replies) - 1)
    return new


@pytest.mark.parametrize(
    ("cap", "budget", "late"),
    [(1, 60.0, False), (4, 30.0, False), (10, 12.0, False), (4, 30.0, True)],
)
def test_no_sample_trains_more_often_than_it_may(cap: int, budget: float, late: bool) -> None:
    """Clients stay away and come back; processes die; messages are lost, late or come twice."""
    trained = play(capped(cap, budget), USES // 4, late=late)
    uses = [len(rounds) for rounds in trained.values()]
    assert max(uses) == cap  # and so the cap is what ends a life here


def test_a_file_counts_uses_over_restarts(tmp_path: Path) -> None:
    files = itertools.count()

    def store(name: str, capacity: int, train_on: int) -> Disk:
        return Disk(tmp_path / f"{next(files)}.sqlite", RUN, name, capacity, train_on=train_on)

    trained = play(capped(3, 60.0), 600, store)
    assert max(len(rounds) for rounds in trained.values()) == 3


def test_without_the_cap_the_same_fleet_trains_more_often() -> None:
    """So the tests above could fail."""
    terms = replace(capped(4, 12.0), policy=lambda problem: make_policy("tide", problem))
    trained = play(terms, 4000)
    assert max(len(rounds) for rounds in trained.values()) > 8


def test_clients_that_stay_away_longer_than_the_cap_are_waited_for() -> None:
    world = World(capped(3, 30.0))
    for _ in range(3):
        world.join(4, 1000)
    for now in range(12):
        world.devices["client-2"].online = not 2 <= now < 10
        world.open_round()
        while world.orders:
            world.deliver(0)
        while world.replies:
            world.receive(0)
        world.close_round()
        world.check()
    assert world.rounds[9].fleet == 3
    assert all(row.answered == row.orders for row in world.rounds)
