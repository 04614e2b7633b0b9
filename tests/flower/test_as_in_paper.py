"""The paper's policy on a fleet, in one line."""

import pytest
from check_size import at_size
from flwr.serverapp.strategy import FedAvg
from gated_apps import MODEL, echo_app

import tidegate
from tidegate.errors import ConfigurationError
from tidegate.flower import AdmissionControl, ClientGate, LocalGrid, Planning
from tidegate.prices import price_feed

COUNTED = ("price", "ordered", "admitted", "training_size", "distinct_samples")
SUMMED = ("spent", "overspend", "cost_debt", "effective_samples")
"""Whose sums over clients round otherwise in the server's books."""
MNIST = tidegate.EXPERIMENTS["mnist"]


def played(policy: str, rounds: int, seed: int, headroom: float = 4) -> AdmissionControl:
    """A fleet of the paper's MNIST setting, with slots for peaks."""
    capacities = MNIST.buffer_capacities
    gate = ClientGate(
        lambda context: range(10_000),
        lambda context: int(headroom * capacities[int(context.node_config["partition-id"])]),
    )
    control = AdmissionControl.as_in_paper(
        FedAvg(fraction_evaluate=0.0),
        policy,
        budget=MNIST.budget,
        prices=price_feed(MNIST.price, seed),
        planning=Planning(headroom=headroom, learning=MNIST.problem(rounds).learning),
    )
    nodes = [{"partition-id": number} for number in range(len(capacities))]
    control.start(LocalGrid(echo_app(gate), nodes), MODEL, num_rounds=rounds)
    return control


@pytest.mark.parametrize("policy", ["acdpp", "constant_admission"])
@pytest.mark.parametrize("seed", range(2))
def test_every_round_is_that_of_the_simulation(policy: str, seed: int) -> None:
    problem = MNIST.problem(at_size(25, 100, quick=15))
    control = played(policy, problem.num_rounds, seed)
    run = tidegate.simulate(tidegate.make_policy(policy, problem), problem, MNIST.price, seed)
    for column in (*COUNTED, *SUMMED):
        rows, simulated = [getattr(row, column) for row in control.rounds], run.columns[column]
        near = pytest.approx(simulated, rel=1e-12, abs=1e-9)
        assert rows == (near if column in SUMMED else simulated.tolist()), column


def test_it_spends_ahead_and_its_peaks_need_more_than_the_planned_memory() -> None:
    rounds = played("acdpp", rounds=15, seed=0).rounds
    assert max(row.overspend for row in rounds) > MNIST.budget
    assert max(row.training_size for row in rounds) > sum(MNIST.buffer_capacities)
    assert all(row.overspend <= row.cost_debt + 1e-9 for row in rounds)


def test_a_peak_without_slots_is_not_ordered() -> None:
    free, limited = (played("acdpp", 40, seed=0, headroom=headroom) for headroom in (4, 1.1))
    slots = sum(int(1.1 * capacity) for capacity in MNIST.buffer_capacities)
    sizes = [[row.training_size for row in control.rounds] for control in (free, limited)]
    assert max(sizes[0]) > slots >= max(sizes[1])


def test_memory_as_a_hard_limit_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"headroom is 1.*Planning\(headroom=4\)"):
        played("acdpp", rounds=2, seed=0, headroom=1)
