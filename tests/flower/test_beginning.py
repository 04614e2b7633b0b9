"""A second run of an app, with another model, begun with the samples of the first."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

from tidegate.flower import AdmissionControl, ClientGate, LocalGrid

NODES: list[dict[str, Any]] = [{"partition-id": number, "num-partitions": 2} for number in range(2)]


class Fleet:
    """Two clients, what they paid for, and how often each sample was used."""

    def __init__(self) -> None:
        self.paid = list[str]()
        self.uses = Counter[tuple[str, int]]()

    def play(self, folder: Path, rounds: int, weights: int, begin: Path | None) -> Any:
        def acquire(sample: int, key: str) -> int:
            client, place = key.split("/")[-2:]
            self.paid.append(f"{client}/{place}")
            return sample

        gate = ClientGate(
            lambda context: range(300), 6, acquire=acquire, keep_bought=True, begin_with=begin
        )
        app = ClientApp(mods=[gate])
        in_first_round = list[int]()

        @app.train()
        def train(message: Message, context: Context) -> Message:
            samples = list(gate.samples(context))
            in_first_round.append(len(samples))
            client = f"partition-{context.node_config['partition-id']}"
            self.uses.update((client, sample) for sample in samples)
            arrays = message.content.array_records["arrays"]
            return Message(RecordDict({"arrays": arrays}), reply_to=message)

        strategy = AdmissionControl(
            FedAvg(fraction_evaluate=0.0), "tide", budget=6.0, prices="uniform:1,10", folder=folder
        )
        model = ArrayRecord({"w": Array(np.zeros(weights, np.float32))})
        strategy.start(LocalGrid(app, NODES), initial_arrays=model, num_rounds=rounds)
        self.in_first_round = in_first_round[:2]
        return strategy


@pytest.mark.process
def test_a_second_run_pays_for_nothing_twice_and_counts_from_the_initial_state(
    tmp_path: Path,
) -> None:
    fleet = Fleet()
    fleet.play(tmp_path / "first", 20, weights=3, begin=None)
    stored = {
        (client, sample): fleet.uses[client, sample]
        for client in ("partition-0", "partition-1")
        for sample in sorted(s for c, s in fleet.uses if c == client)[-6:]
    }
    paid_before = list(fleet.paid)
    fleet.uses = Counter(stored)
    strategy = fleet.play(tmp_path / "second", 20, 7, tmp_path / "first" / "buffers")
    assert fleet.in_first_round == [6, 6]
    assert len(set(fleet.paid)) == len(fleet.paid) > len(paid_before)
    last = strategy.rounds[-1]
    uses = fleet.uses.values()
    assert last.distinct_samples == len(uses)
    assert last.effective_samples == pytest.approx(sum(uses) ** 2 / sum(use * use for use in uses))
    spent = sum(row.spent for row in strategy.rounds)
    assert 0 < spent <= 20 * 6.0
    ledger = strategy._running().ledger
    assert sum(ledger.account(client).paid for client in ledger.clients) == pytest.approx(spent)
