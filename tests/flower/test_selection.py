"""A client app that ranks its candidates with the model that a message brings."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from gated_apps import MODEL, dataset

from tidegate.flower import AdmissionControl, ClientGate, LocalGrid
from tidegate.selection import Selection

NODES: list[dict[str, Any]] = [{"partition-id": number, "num-partitions": 2} for number in range(2)]


def play(gate: ClientGate, rounds: int = 3, **settings: Any) -> tuple[Any, dict[int, list[Any]]]:
    """Play some rounds; the strategy, and what each partition trained on last."""
    app = ClientApp(mods=[gate])
    trained: dict[int, list[Any]] = {}

    @app.train()
    def train(message: Message, context: Context) -> Message:
        trained[int(context.node_config["partition-id"])] = list(gate.samples(context))
        arrays = message.content.array_records["arrays"]
        return Message(RecordDict({"arrays": arrays}), reply_to=message)

    strategy = AdmissionControl(
        FedAvg(fraction_evaluate=0.0), "tide", **{"budget": 1e6, "prices": 1.0, **settings}
    )
    strategy.start(LocalGrid(app, NODES), initial_arrays=MODEL, num_rounds=rounds)
    return strategy, trained


def test_the_model_of_the_message_decides_what_is_bought() -> None:
    seen: list[tuple[int, int]] = []

    def worth(candidates: Sequence[Any], message: Message, context: Context) -> list[float]:
        weights = message.content.array_records["arrays"]["w"].numpy()
        assert weights.shape == (3,)
        seen.append((int(context.node_config["partition-id"]), len(candidates)))
        return [point[0] for point, _ in candidates]

    choice = Selection(candidates=50, backlog=0, random_share=0)
    gate = ClientGate(dataset, 4, worth=worth, selection=choice)
    _, trained = play(gate, rounds=1)
    assert sorted(seen) == [(0, 50), (1, 50)]
    for node in NODES:
        points = [point for point, _ in dataset(Context(0, 0, node, {}, {}))[:50]]  # type: ignore[arg-type]
        best = sorted((point[0] for point in points), reverse=True)[:4]
        bought = [point[0] for point, _ in trained[node["partition-id"]]]
        np.testing.assert_array_equal(bought, best)


def test_a_node_may_choose_and_another_not() -> None:
    def selection(context: Context) -> Selection | None:
        return Selection(30, 0) if context.node_config["partition-id"] else None

    def worth(candidates: Sequence[Any], message: Message, context: Context) -> list[float]:
        return [point[1] for point, _ in candidates]

    strategy, _ = play(ClientGate(dataset, 3, worth=worth, selection=selection), rounds=4)
    accounts = strategy._running().ledger
    takes_next, chooses = (accounts.account(f"partition-{number}") for number in range(2))
    assert takes_next.candidates == 0
    assert takes_next.newest.read == takes_next.admitted > 0
    assert chooses.candidates == 30
    assert chooses.newest.read >= 30
