"""The guide's remedies for the first rounds, in which buffers hold a sample or two."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from guide import ADDED

from tidegate.flower import AdmissionControl, ClientGate, LocalGrid

pytest.importorskip("sklearn")
pytest.importorskip("torch")

CLASSES, FEATURES, NODES = 4, 3, 4

Train = Callable[[list[Any], Any], list[Any]]
"""From what a buffer holds and the model's arrays to new ones."""


def unheard(app: ClientApp, model: ArrayRecord) -> list[int]:
    """Answers that were not heard in each of the first rounds."""
    control = AdmissionControl(FedAvg(fraction_evaluate=0.0), "tide", budget=6, prices=1)
    grid = LocalGrid(app, [{"partition-id": number} for number in range(NODES)])
    result = control.start(grid, model, 6)
    assert any(np.any(array) for array in result.arrays.to_numpy_ndarrays())
    assert min(row.training_size for row in control.rounds) < 10
    return [row.orders - row.answered for row in control.rounds]


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
        samples = list(gate.samples(context))
        if not fits(samples):
            return Message(RecordDict(), reply_to=message)
        arrays = message.content.array_records["arrays"]
        trained = ArrayRecord(train(samples, arrays.to_numpy_ndarrays()))
        return Message(RecordDict({"arrays": trained}), reply_to=message)

    return unheard(app, model)


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
    def has_two_classes(samples: list[Any]) -> bool:
        return not len({label for _, label in samples}) < 2

    assert sum(failures(logistic, LOGISTIC, lambda samples: True)) > 0
    assert sum(failures(logistic, LOGISTIC, has_two_classes)) == 0


def test_a_classifier_that_is_given_its_classes_learns_from_the_first_sample() -> None:
    from sklearn.linear_model import SGDClassifier

    def classes_given(samples: list[Any], arrays: list[Any]) -> list[Any]:
        x, y = columns(samples)
        known = SGDClassifier(loss="log_loss").partial_fit(x, y, classes=np.arange(CLASSES))
        return [known.coef_]

    assert sum(failures(classes_given, LOGISTIC, lambda samples: True)) == 0


@pytest.mark.parametrize("stored", [1, 7, 33])
def test_the_loader_of_the_page_has_full_batches_from_the_first_sample_on(stored: int) -> None:
    from torch.utils.data import DataLoader, RandomSampler

    printed = re.findall(r"^\+    ((?:steps|trainloader) = .*)$", ADDED.read_text("utf-8"), re.M)
    names = {
        "DataLoader": DataLoader, "RandomSampler": RandomSampler,
        "samples": [np.float32(number) for number in range(stored)], "batch_size": 32,
    }  # fmt: skip
    exec("\n".join(printed), names)  # noqa: S102
    batches = list(names["trainloader"])  # type: ignore[call-overload]
    assert [len(batch) for batch in batches] == [32] * 20
    uses = np.bincount(np.concatenate(batches).astype(int), minlength=stored)
    assert uses.max() - uses.min() <= 1
