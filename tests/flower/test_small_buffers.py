"""The guide's remedies for the first rounds, in which buffers hold a sample or two."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from guide import ADDED, blocks

from tidegate.flower import AdmissionControl, ClientGate, LocalGrid

pytest.importorskip("sklearn")
torch = pytest.importorskip("torch")

CLASSES, FEATURES, NODES = 4, 3, 4

Train = Callable[[list[Any], Any], list[Any]]
"""From what a buffer holds and the model's arrays to new ones."""


def printed() -> dict[str, Any]:
    """What the guide's Python block defines."""
    names: dict[str, Any] = {}
    (block,) = blocks(ADDED, "python")
    exec(compile(block, str(ADDED), "exec"), names)  # noqa: S102
    return names


def data(context: Context) -> list[tuple[Any, int]]:
    """Samples whose class changes after every third."""
    draw = np.random.default_rng(int(context.node_config["partition-id"]))
    return [(draw.normal(size=FEATURES).astype(np.float32), n // 3 % CLASSES) for n in range(300)]


def failures(train: Train, model: ArrayRecord, fits: Callable[[list[Any]], bool]) -> list[int]:
    """Answers that were not heard in each round; a client that does not fit skips the round."""
    gate = ClientGate(data, buffer_capacity=10)
    app = ClientApp(mods=[gate])

    @app.train()
    def train_client(message: Message, context: Context) -> Message:
        samples = gate.samples(context)
        if not fits(samples):
            reply: Message = printed()["not_yet"](message)
            return reply
        arrays = message.content.array_records["arrays"]
        trained = ArrayRecord(train(samples, arrays.to_numpy_ndarrays()))
        return Message(RecordDict({"arrays": trained}), reply_to=message)

    control = AdmissionControl(FedAvg(fraction_evaluate=0.0), "tide", budget=6, prices=1)
    grid = LocalGrid(app, [{"partition-id": number} for number in range(NODES)])
    result = control.start(grid, model, 6)
    assert any(np.any(array) for array in result.arrays.to_numpy_ndarrays())
    assert min(row.training_size for row in control.rounds) < 10
    return [row.orders - row.answered for row in control.rounds]


def columns(samples: list[Any]) -> tuple[Any, Any]:
    return np.stack([x for x, _ in samples]), np.array([y for _, y in samples])


def logistic(samples: list[Any], arrays: list[Any]) -> list[Any]:
    from sklearn.linear_model import LogisticRegression

    x, y = columns(samples)
    fitted = LogisticRegression().fit(x, y)
    coefficients = np.zeros((CLASSES, FEATURES))
    coefficients[fitted.classes_] = fitted.coef_  # one row for two classes goes to both
    return [coefficients]


LOGISTIC = ArrayRecord([np.zeros((CLASSES, FEATURES))])


def test_a_classifier_that_wants_two_classes_waits_for_them() -> None:
    assert sum(failures(logistic, LOGISTIC, lambda samples: True)) > 0
    assert sum(failures(logistic, LOGISTIC, printed()["has_two_classes"])) == 0


def test_a_classifier_that_is_given_its_classes_learns_from_the_first_sample() -> None:
    def classes_given(samples: list[Any], arrays: list[Any]) -> list[Any]:
        return [printed()["fitted"](*columns(samples), range(CLASSES)).coef_]

    assert sum(failures(classes_given, LOGISTIC, lambda samples: True)) == 0


@pytest.mark.parametrize("remedy", [False, True])
def test_batch_norm_is_given_no_batch_of_one(remedy: bool) -> None:
    from torch.utils.data import DataLoader

    network = torch.nn.Sequential(
        torch.nn.Linear(FEATURES, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, CLASSES)
    )
    names = list(network.state_dict())
    steps = []

    def train(samples: list[Any], arrays: list[Any]) -> list[Any]:
        state = {name: torch.tensor(array) for name, array in zip(names, arrays, strict=True)}
        network.load_state_dict(state)
        optimiser = torch.optim.SGD(network.parameters(), lr=0.1)
        batches: Any = printed()["batches"] if remedy else partial(DataLoader, batch_size=4)
        for x, y in batches(samples):
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(network(x), y).backward()
            optimiser.step()
            steps.append(len(y))
        return [one.numpy().copy() for one in network.state_dict().values()]

    model = ArrayRecord([one.numpy().copy() for one in network.state_dict().values()])
    failed = failures(train, model, lambda samples: not remedy or len(samples) > 1)
    assert (sum(failed) == 0) == remedy
    assert min(steps) > 1
