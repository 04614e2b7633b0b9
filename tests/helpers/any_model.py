"""Models of many kinds, each trained by the same two apps: a plain one, and one behind a gate."""

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from numpy.typing import NDArray

from tidegate.flower import ClientGate

SAMPLES = 8
"""Of each client."""
CLASSES = 3

Sample = tuple[NDArray[Any], int]


def local_data(context: Context) -> list[Sample]:
    """A client's samples: points around one centre a class."""
    draw = np.random.default_rng(int(context.node_config["partition-id"]))
    labels = [number % CLASSES for number in range(SAMPLES)]
    points = draw.normal(size=(SAMPLES, 4)) + 2 * np.eye(CLASSES, 4)[labels]
    return [(points[n].astype(np.float32), label) for n, label in enumerate(labels)]


@dataclass(frozen=True)
class Trained:
    """What a client sends: its model and a loss."""

    arrays: ArrayRecord
    loss: float


@dataclass(frozen=True)
class Case:
    """A kind of model."""

    name: str
    needs: tuple[str, ...]
    initial: Callable[[], ArrayRecord]
    train: Callable[[ArrayRecord, Sequence[Sample], int], Trained]
    """With the model, the samples and the round."""

    @property
    def missing(self) -> list[str]:
        """Packages that it needs and that are not here."""
        return [name for name in self.needs if importlib.util.find_spec(name) is None]


def apps(case: Case, mods: Sequence[Any] = ()) -> tuple[ClientApp, ClientApp]:
    """The app that somebody has, and the same behind a gate that takes in everything."""
    plain = ClientApp(mods=[*mods])
    gate = ClientGate(local_data, buffer_capacity=SAMPLES)
    gated = ClientApp(mods=[gate, *mods])

    def reply(message: Message, samples: Sequence[Sample]) -> Message:
        now = int(message.content.config_records["config"]["server-round"])  # type: ignore[arg-type]
        trained = case.train(message.content.array_records["arrays"], samples, now)
        metrics = MetricRecord({"loss": trained.loss, "num-examples": len(samples)})
        content = RecordDict({"arrays": trained.arrays, "metrics": metrics})
        return Message(content, reply_to=message)

    @plain.train()
    def train(message: Message, context: Context) -> Message:
        return reply(message, local_data(context))

    @gated.train()
    def train_gated(message: Message, context: Context) -> Message:
        return reply(message, list(gate.samples(context)))

    return plain, gated


def _columns(samples: Sequence[Sample]) -> tuple[NDArray[Any], NDArray[Any]]:
    return np.stack([point for point, _ in samples]), np.array([label for _, label in samples])


def _numpy_case(name: str, kind: Any) -> Case:
    def initial() -> ArrayRecord:
        return ArrayRecord({"w": Array(np.zeros((4, CLASSES), kind))})

    def train(arrays: ArrayRecord, samples: Sequence[Sample], now: int) -> Trained:
        w = arrays["w"].numpy().astype(np.float64)
        x, y = _columns(samples)
        for _ in range(3):
            scores = np.exp(x @ w)
            error = scores / scores.sum(axis=1, keepdims=True) - np.eye(CLASSES)[y]
            w -= 0.1 * x.T @ error / len(x)
        return Trained(ArrayRecord({"w": Array(w.astype(kind))}), float(np.mean(error**2)))

    return Case(name, (), initial, train)


def _counting_train(arrays: ArrayRecord, samples: Sequence[Sample], now: int) -> Trained:
    """Weights with an int8 counter and an int8 table beside them, as quantised models have."""
    mean = _columns(samples)[0].mean(axis=0)
    w = arrays["w"].numpy() * np.float32(0.9) + mean * np.float32(0.1)
    # A client takes whole numbers from what it is sent, as torch does when it loads a state.
    steps = arrays["steps"].numpy().astype(np.int8) + np.int8(1)
    table = arrays["table"].numpy().astype(np.int8) + (mean > 0).astype(np.int8)
    sent = {"w": w.astype(np.float32), "steps": steps, "table": table}
    return Trained(ArrayRecord({name: Array(np.asarray(one)) for name, one in sent.items()}), 0.5)


INT8 = Case(
    "int8 buffers", (),
    lambda: ArrayRecord({
        "w": Array(np.zeros(4, np.float32)),
        "steps": Array(np.zeros((), np.int8)),
        "table": Array(np.zeros(4, np.int8)),
    }),
    _counting_train,
)  # fmt: skip


def _torch_case(name: str, needs: tuple[str, ...], make: Callable[[], Any]) -> Case:
    """A module, of which the parameters that are trained and the buffers travel."""

    def state(module: Any) -> dict[str, Any]:
        trained = {name for name, one in module.named_parameters() if one.requires_grad}
        buffers = {name for name, _ in module.named_buffers()}
        return {
            name: one.float() if str(one.dtype) == "torch.bfloat16" else one
            for name, one in module.state_dict().items()
            if name in trained | buffers
        }

    def train(arrays: ArrayRecord, samples: Sequence[Sample], now: int) -> Trained:
        import torch

        module = make()
        module.load_state_dict(arrays.to_torch_state_dict(), strict=False)
        module.train()
        x, y = map(torch.from_numpy, _columns(samples))
        kind = next(module.parameters()).dtype
        learned = [one for one in module.parameters() if one.requires_grad]
        optimizer = torch.optim.SGD(learned, lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(module(x.to(kind)).float(), y)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        return Trained(ArrayRecord(state(module)), float(loss.detach()))

    return Case(name, ("torch", *needs), lambda: ArrayRecord(state(make())), train)


def _batch_norm() -> Any:
    import torch
    from torch import nn

    torch.manual_seed(0)
    return nn.Sequential(
        nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 4, 2, padding=1), nn.BatchNorm2d(4), nn.ReLU(),
        nn.Flatten(), nn.Linear(36, CLASSES),
    )  # fmt: skip


def _bfloat16() -> Any:
    import torch
    from torch import nn

    torch.manual_seed(0)
    return nn.Linear(4, CLASSES).to(torch.bfloat16)


@lru_cache
def _frozen_transformer() -> Any:
    """The part that stays on every client; made from a configuration."""
    import torch
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8,
        vocab_size=4, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    return BertModel(config)


def _lora() -> Any:
    import copy

    import torch
    from peft import LoraConfig, get_peft_model
    from torch import nn

    class Classifier(nn.Module):
        """A transformer over four numbers as four tokens, and a head that stays as it is."""

        def __init__(self) -> None:
            super().__init__()
            self.body = copy.deepcopy(_frozen_transformer())
            self.lift = nn.Linear(1, 8)
            self.head = nn.Linear(8, CLASSES)

        def forward(self, x: Any) -> Any:
            hidden = self.body(inputs_embeds=self.lift(x.unsqueeze(-1))).last_hidden_state
            return self.head(hidden.mean(dim=1))

    torch.manual_seed(0)
    adapters = LoraConfig(r=2, target_modules=["query", "value"], lora_dropout=0.0)
    return get_peft_model(Classifier(), adapters)


def _sklearn_train(arrays: ArrayRecord, samples: Sequence[Sample], now: int) -> Trained:
    from sklearn.linear_model import SGDClassifier
    from sklearn.metrics import log_loss

    x, y = _columns(samples)
    x = x.astype(np.float64)
    model = SGDClassifier(loss="log_loss", random_state=0, alpha=0.01)
    model.partial_fit(x, y, classes=range(CLASSES))
    model.coef_, model.intercept_ = (one.copy() for one in arrays.to_numpy_ndarrays())
    model.partial_fit(x, y)
    loss = log_loss(y, model.predict_proba(x), labels=range(CLASSES))
    return Trained(ArrayRecord([model.coef_, model.intercept_]), float(loss))


def _jax_train(arrays: ArrayRecord, samples: Sequence[Sample], now: int) -> Trained:
    import jax
    import jax.numpy as jnp

    x, y = _columns(samples)

    def loss(weights: Any) -> Any:
        w, b = weights
        return -jnp.mean(jax.nn.log_softmax(x @ w + b)[jnp.arange(len(y)), y])

    weights = [jnp.asarray(one) for one in arrays.to_numpy_ndarrays()]
    value, slope = jax.value_and_grad(loss)(weights)
    after = [np.asarray(one - 0.1 * by) for one, by in zip(weights, slope, strict=True)]
    return Trained(ArrayRecord(after), float(value))


def _trees(arrays: ArrayRecord, samples: Sequence[Sample], now: int) -> Trained:
    """One more tree a client and round, as bytes, for Flower's bagging."""
    import xgboost

    x, y = _columns(samples)
    data = xgboost.DMatrix(x, label=y)
    settings = {"objective": "reg:squarederror", "max_depth": 2, "nthread": 1}
    if now == 1:
        booster = xgboost.train(settings, data, num_boost_round=1)
    else:
        booster = xgboost.Booster(settings)
        booster.load_model(bytearray(arrays["0"].numpy().tobytes()))
        booster.update(data, booster.num_boosted_rounds())
        booster = booster[booster.num_boosted_rounds() - 1 :]
    raw = np.frombuffer(booster.save_raw("json"), dtype=np.uint8)
    return Trained(ArrayRecord([raw]), 0.5)


TREES = Case(
    "XGBoost trees", ("xgboost",), lambda: ArrayRecord([np.frombuffer(b"", dtype=np.uint8)]), _trees
)
CASES = [
    _numpy_case("NumPy", np.float64),
    _numpy_case("float16", np.float16),
    INT8,
    _torch_case("torch with BatchNorm", (), _batch_norm),
    _torch_case("torch in bfloat16", (), _bfloat16),
    _torch_case("LoRA adapters", ("peft", "transformers"), _lora),
    Case(
        "scikit-learn", ("sklearn",),
        lambda: ArrayRecord([np.zeros((CLASSES, 4)), np.zeros(CLASSES)]), _sklearn_train,
    ),
    Case(
        "JAX", ("jax",),
        lambda: ArrayRecord([np.zeros((4, CLASSES), np.float32), np.zeros(CLASSES, np.float32)]),
        _jax_train,
    ),
]  # fmt: skip
