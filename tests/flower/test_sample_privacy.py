"""How often a sample takes part, by counting; and what that means for its privacy."""

import math
from collections import Counter

import numpy as np
import pytest
from world import World, terms

from tidegate.policies import POLICIES, ControlOptions
from tidegate.policies.presets import make_policy
from tidegate.problem import Problem

ROUNDS = 30
EXPIRING = {"acdpp", "constant_admission", "drift_plus_penalty", "costless_oracle"}


@pytest.mark.parametrize("name", POLICIES)
def test_no_sample_takes_part_more_often_than_its_policy_says(name: str) -> None:
    """Clients that stay away, and come back, too."""
    problem = Problem(buffer_capacities=[6] * 4, budget=20.0, mean_price=5.5, num_rounds=ROUNDS)
    policy = make_policy(name, problem, ControlOptions(hard_capacity=True))
    bound = policy.most_uses(ROUNDS)
    world = World(terms(name, strict=False, seed=2, rounds=ROUNDS))
    for _ in range(4):
        world.join(6, 1000)
    uses: Counter[str] = Counter()
    draw = np.random.default_rng(1)
    for _ in range(ROUNDS):
        for number, device in enumerate(world.devices.values()):
            device.online = number == 0 or draw.random() < 0.8
        world.open_round()
        while world.orders:
            client = world.orders[0].client
            world.deliver(0)
            if world.replies:
                world.receive(0)
                uses.update(world.devices[client].disk.samples())
        world.close_round()
    assert max(uses.values()) <= bound
    if name in EXPIRING:
        assert bound < ROUNDS
        assert max(uses.values()) == bound  # so it is no looser than it must be
    else:
        assert bound == ROUNDS


def by_hand(sensitivity: float, noise: float, releases: int, delta: float) -> float:
    """Rényi divergence of Gaussians, composed and converted, order by order."""
    orders = [1 + number / 10 for number in range(1, 100)] + list(range(11, 513))
    return min(
        releases * order * sensitivity**2 / (2 * noise**2)
        + math.log1p(-1 / order)
        - (math.log(delta) + math.log(order)) / (order - 1)
        for order in orders
    )


@pytest.mark.parametrize("participations", [1, 10, 200])
@pytest.mark.parametrize("noise_multiplier", [1.0, 8.0])
def test_the_loss_of_a_sample_is_that_of_the_rounds_it_takes_part_in(
    participations: int, noise_multiplier: float
) -> None:
    pytest.importorskip("dp_accounting", reason="Flower's accountant needs flwr[dp]")
    from tidegate.flower.sample_privacy import sample_privacy

    spent = sample_privacy(
        noise_multiplier=noise_multiplier, participations=participations, delta=1e-5
    )
    # One of n updates, each clipped to a norm, goes from one end of the ball to the other; Flower
    # adds noise of multiplier x norm / n to their average.
    norm, clients = 0.7, 13
    ends = np.array([norm, 0.0]), np.array([-norm, 0.0])
    moved = float(np.linalg.norm(ends[0] - ends[1])) / clients
    noise = noise_multiplier * norm / clients
    expected = by_hand(moved, noise, participations, 1e-5)
    assert spent.epsilon == pytest.approx(expected, rel=0.01)
    assert spent.num_releases == participations


def test_a_cap_on_uses_gives_tide_the_account_of_as_many_steps() -> None:
    pytest.importorskip("dp_accounting", reason="Flower's accountant needs flwr[dp]")
    from tidegate.flower.sample_privacy import sample_privacy

    problem = Problem(buffer_capacities=[10] * 10, budget=55.0, mean_price=5.5, num_rounds=1000)
    capped = make_policy("tide", problem, ControlOptions(most_uses=10))
    spent = [
        sample_privacy(noise_multiplier=8.0, participations=one.most_uses(1000), delta=1e-5).epsilon
        for one in (capped, make_policy("acdpp", problem), make_policy("tide", problem))
    ]
    assert spent[0] == spent[1] == pytest.approx(3.62, abs=0.005)
    assert spent[2] > 60
