"""Plays rounds and writes down how long each took, and the memory of it all."""

import json
import resource
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg, Strategy

from tidegate.flower import AdmissionControl, FoldedFedAvg
from tidegate.prices import PricePath, UniformPrice

LAYERS = 10
"""Arrays that a model is made of; LeNet has ten."""

app = ServerApp()


def model(parameters: int) -> ArrayRecord:
    sizes = [parameters // LAYERS] * (LAYERS - 1)
    sizes.append(parameters - sum(sizes))
    draw = np.random.default_rng(0)
    return ArrayRecord(
        {f"layer-{n}": Array(draw.random(size, np.float32)) for n, size in enumerate(sizes)}
    )


def counting(kind: type[FedAvg], answers: list[int], min_available_nodes: int) -> FedAvg:
    """A strategy that notes how many models each round brought."""

    class Counting(kind):  # type: ignore[misc, valid-type]
        def aggregate_train(
            self, server_round: int, replies: Iterable[Message]
        ) -> tuple[ArrayRecord | None, MetricRecord | None]:
            answers.append(0)
            return super().aggregate_train(server_round, self._counted(replies))  # type: ignore[no-any-return]

        def _counted(self, replies: Iterable[Message]) -> Iterator[Message]:
            for reply in replies:
                answers[-1] += not reply.has_error()
                yield reply

    return Counting(fraction_evaluate=0.0, min_available_nodes=min_available_nodes)


@app.main()
def main(grid: Grid, context: Context) -> None:
    config, ends, answers = context.run_config, [], list[int]()
    clients = int(config["clients"])
    kind = FoldedFedAvg if config["strategy"] == "folded" else FedAvg
    strategy: Strategy = counting(kind, answers, min_available_nodes=clients)
    if config["strategy"] != "bare":
        prices = PricePath(UniformPrice(1, 10), seed=1)
        strategy = AdmissionControl(strategy, "acdpp", budget=5.5 * clients, prices=prices)
    strategy.start(
        grid,
        model(int(config["parameters"])),
        num_rounds=int(config["num-server-rounds"]),
        evaluate_fn=lambda now, arrays: ends.append(time.perf_counter()),
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    found = {"seconds": np.diff(ends).tolist(), "peak_bytes": peak, "answers": answers}
    Path(str(config["out"])).write_text(json.dumps(found))
