"""With everything admitted, a wrapped strategy gives the model of the bare one, bit for bit."""

import logging
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
from any_model import CASES, INT8, SAMPLES, TREES, Case, apps
from check_size import at_size
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import (
    Bulyan,
    FedAdagrad,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedMedian,
    FedProx,
    FedTrimmedAvg,
    FedXgbBagging,
    FedYogi,
    Krum,
    MultiKrum,
    QFedAvg,
    Strategy,
)

from tidegate.errors import ConfigurationError
from tidegate.flower import AdmissionControl, ClientGate, FoldedFedAvg, LocalGrid
from tidegate.prices import ConstantPrice, PricePath

CLIENTS, ROUNDS = 4, 3
QUIET: dict[str, Any] = {"fraction_evaluate": 0.0}

STRATEGIES: dict[str, Callable[[], Strategy]] = {
    "FedAvg": lambda: FedAvg(**QUIET),
    "FedProx": lambda: FedProx(**QUIET, proximal_mu=0.1),
    "FedAdam": lambda: FedAdam(**QUIET),
    "FedAdagrad": lambda: FedAdagrad(**QUIET),
    "FedYogi": lambda: FedYogi(**QUIET),
    "FedAvgM": lambda: FedAvgM(**QUIET, server_momentum=0.5),
    "FedMedian": lambda: FedMedian(**QUIET),
    "FedTrimmedAvg": lambda: FedTrimmedAvg(**QUIET, beta=0.25),
    "Krum": lambda: Krum(**QUIET, num_malicious_nodes=1),
    "MultiKrum": lambda: MultiKrum(**QUIET, num_malicious_nodes=1, num_nodes_to_select=2),
    "Bulyan": lambda: Bulyan(**QUIET, num_malicious_nodes=0),
    "QFedAvg": lambda: QFedAvg(**QUIET, client_learning_rate=0.1, q=0.1, train_loss_key="loss"),
    "FoldedFedAvg": lambda: FoldedFedAvg(**QUIET),
}
A_FEW = ("FedAvg", "FedAdam", "FedMedian")
"""Of which each model meets at least these; NumPy and torch meet all."""


WHOLE_NUMBERS = (INT8.name, "torch with BatchNorm")


def pairs() -> list[tuple[Case, str]]:
    everything = ("NumPy", "torch with BatchNorm", INT8.name)
    return [
        (case, name)
        for case in CASES
        for name in STRATEGIES
        if at_size(name in A_FEW or case.name in everything, full=True)
        and not (name == "QFedAvg" and case.name in WHOLE_NUMBERS)
    ]


class OrderedGrid(LocalGrid):
    """Asks nodes in their own order, whatever order a strategy has drawn them in."""

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        return super().push_messages(sorted(messages, key=lambda one: one.metadata.dst_node_id))


def everything_admitted(strategy: Strategy) -> AdmissionControl:
    """The first round pays for all samples that there are; the streams are dry then."""
    prices = PricePath(ConstantPrice(1.0), seed=0)
    return AdmissionControl(
        strategy, "tide", budget=10.0 * CLIENTS * SAMPLES, prices=prices, run="r"
    )


def models(case: Case, make: Callable[[], Strategy]) -> tuple[ArrayRecord, ArrayRecord]:
    """After three rounds of the bare strategy, and of the wrapped one."""
    if case.missing:
        pytest.skip(f"needs {' and '.join(case.missing)}")
    plain, gated = apps(case)
    nodes = [{"partition-id": number} for number in range(CLIENTS)]
    initial = case.initial()
    bare = make().start(OrderedGrid(plain, nodes), initial, num_rounds=ROUNDS).arrays
    control = everything_admitted(make())
    wrapped = control.start(OrderedGrid(gated, nodes), initial, num_rounds=ROUNDS).arrays
    assert [row.training_size for row in control.rounds] == [CLIENTS * SAMPLES] * ROUNDS
    assert bare is not None
    assert wrapped is not None
    return bare, wrapped


def assert_same(bare: ArrayRecord, wrapped: ArrayRecord, initial: ArrayRecord) -> None:
    assert list(bare) == list(wrapped)
    for name, array in bare.items():
        mine, own = wrapped[name].numpy(), initial[name].numpy().dtype
        theirs = array.numpy()
        if own.kind in "biu" and theirs.dtype.kind == "f":
            assert mine.dtype == own  # theirs is what a client makes of it
            theirs = theirs.astype(own)
        assert mine.dtype == theirs.dtype, name
        assert mine.tobytes() == theirs.tobytes(), name


@pytest.mark.parametrize(("case", "strategy"), pairs(), ids=lambda one: getattr(one, "name", one))
def test_the_model_is_that_of_the_bare_strategy_bit_for_bit(case: Case, strategy: str) -> None:
    bare, wrapped = models(case, STRATEGIES[strategy])
    assert_same(bare, wrapped, case.initial())
    assert any(
        not np.array_equal(array.numpy(), wrapped[name].numpy())
        for name, array in case.initial().items()
    )


def test_trees_are_bagged_as_bare() -> None:
    bare, wrapped = models(TREES, lambda: FedXgbBagging(**QUIET))
    assert bare["0"].numpy().tobytes() == wrapped["0"].numpy().tobytes()
    assert len(wrapped["0"].numpy())


@pytest.mark.parametrize("name", WHOLE_NUMBERS)
def test_a_strategy_that_cannot_average_a_model_is_refused_before_anything_is_bought(
    name: str,
) -> None:
    (case,) = [one for one in CASES if one.name == name]
    if case.missing:
        pytest.skip(f"needs {' and '.join(case.missing)}")
    plain, gated = apps(case)
    nodes = [{"partition-id": number} for number in range(CLIENTS)]
    with pytest.raises(TypeError):  # bare Flower, too, and in the first round
        STRATEGIES["QFedAvg"]().start(LocalGrid(plain, nodes), case.initial(), num_rounds=1)
    grid = LocalGrid(gated, nodes)
    with pytest.raises(ConfigurationError, match="QFedAvg cannot average whole numbers"):
        everything_admitted(STRATEGIES["QFedAvg"]()).start(grid, case.initial(), num_rounds=1)
    assert not grid.answers.sent


@pytest.mark.parametrize("clients", [3, 10])
def test_a_counter_survives_weights_that_do_not_add_up_to_one(clients: int) -> None:
    """Ten weights of 0.1 make 0.9999999999999999, which torch would load as 0."""
    _, gated = apps(INT8)
    nodes = [{"partition-id": number} for number in range(clients)]
    control = everything_admitted(FedAvg(**QUIET))
    after = control.start(LocalGrid(gated, nodes), INT8.initial(), num_rounds=ROUNDS).arrays
    assert after is not None
    assert after["steps"].numpy() == ROUNDS
    assert after["steps"].numpy().dtype == np.int8


def app_that_sends(arrays: Callable[[int], ArrayRecord]) -> ClientApp:
    gate = ClientGate(lambda context: range(1000), buffer_capacity=4)
    app = ClientApp(mods=[gate])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        assert gate.samples(context)
        now = int(message.content.config_records["config"]["server-round"])  # type: ignore[arg-type]
        content = RecordDict({"arrays": arrays(now), "metrics": MetricRecord({"num-examples": 1})})
        return Message(content, reply_to=message)

    return app


class Overflowing(FedAvg):
    """Finite models whose average is not, in some rounds."""

    def __init__(self, wrong: range) -> None:
        super().__init__(**QUIET)
        self.wrong = wrong

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        arrays, metrics = super().aggregate_train(server_round, replies)
        if server_round in self.wrong:
            arrays = ArrayRecord({"w": Array(np.full(2, np.inf))})
        return arrays, metrics


MODEL = ArrayRecord({"w": Array(np.zeros(2))})


@pytest.mark.parametrize("policy", ["tide", "constant_admission", "acdpp"])
def test_clients_buy_nothing_while_the_average_is_refused(
    policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    prices = PricePath(ConstantPrice(1.0), seed=0)
    control = AdmissionControl(Overflowing(range(4, 7)), policy, budget=2.0, prices=prices)
    grid = LocalGrid(app_that_sends(lambda now: MODEL), [{"partition-id": n} for n in range(2)])
    with caplog.at_level(logging.WARNING, logger="flwr.tidegate"):
        control.start(grid, MODEL, num_rounds=12)
    spent = [row.spent for row in control.rounds]
    assert spent[4:7] == [0.0, 0.0, 0.0]
    assert sum(spent[:4]) > 0
    assert sum(spent[7:]) > 0
    assert caplog.text.count("cannot be the next model") == 3
    assert caplog.text.count("they get no more samples until one of their models is used") == 3


def test_clients_buy_nothing_more_while_all_their_models_are_refused() -> None:
    prices = PricePath(ConstantPrice(1.0), seed=0)
    control = AdmissionControl(FedAvg(**QUIET), "tide", budget=2.0, prices=prices)
    wrong = ArrayRecord({"w": Array(np.full(2, np.nan))})
    app = app_that_sends(lambda now: wrong if now < 8 else MODEL)
    control.start(LocalGrid(app, [{"partition-id": n} for n in range(2)]), MODEL, num_rounds=16)
    spent = [row.spent for row in control.rounds]
    assert spent[0] > 0
    assert not any(spent[1:8])
    assert any(spent[8:])


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        (ArrayRecord({"w": Array(np.array([1j]))}), "its array 'w' is no array of numbers"),
        (ArrayRecord({"w": Array(np.array(["a"]))}), "its array 'w' is no array of numbers"),
        (ArrayRecord({"w": Array(np.array([np.nan]))}), "'w' holds numbers that are not finite"),
        (ArrayRecord({"w": Array("f4", (1,), "other", b"x")}), "its array 'w' cannot be read"),
    ],
)
def test_a_model_that_cannot_be_averaged_is_refused_before_anything_is_bought(
    arrays: ArrayRecord, reason: str
) -> None:
    control = everything_admitted(FedAvg(**QUIET))
    grid = LocalGrid(app_that_sends(lambda now: MODEL), [{"partition-id": 0}])
    with pytest.raises(ConfigurationError, match=reason):
        control.start(grid, arrays, num_rounds=3)
    assert not grid.answers.sent


@pytest.mark.parametrize("strategy", ["FedAvg", object(), "admission control"])
def test_what_is_not_a_strategy_is_refused_by_its_name(strategy: Any) -> None:
    if strategy == "admission control":
        strategy = everything_admitted(FedAvg(**QUIET))
    with pytest.raises(ConfigurationError, match="wraps a strategy of flwr"):
        everything_admitted(strategy)


def test_flower_cannot_carry_bfloat16() -> None:
    """So docs/flower.md asks for ``.float()``; if this fails, Flower has learned it."""
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match="BFloat16"):
        ArrayRecord({"w": torch.zeros(2, dtype=torch.bfloat16)})
