"""With everything admitted, a wrapped strategy gives the model of the bare one, bit for bit."""

import gc
import logging
import random
import re
from collections.abc import Callable, Iterable
from typing import Any

import flwr.serverapp.strategy
import numpy as np
import pytest
from any_model import CASES, INT8, SAMPLES, TREES, Case, apps
from check_size import SIZE
from flower_strategies import AVERAGING, QUIET
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod, adaptiveclipping_mod, fixedclipping_mod
from flwr.serverapp.strategy import (
    FedAvg,
    FedAvgM,
    FedXgbBagging,
    FedXgbCyclic,
    Strategy,
)

from tidegate.errors import ConfigurationError
from tidegate.flower import AdmissionControl, ClientGate, FoldedFedAvg, LocalGrid
from tidegate.prices import ConstantPrice, PricePath

CLIENTS, ROUNDS = 4, 3

STRATEGIES: dict[str, Callable[[], Strategy]] = {
    **AVERAGING,
    "FoldedFedAvg": lambda: FoldedFedAvg(**QUIET),
}
A_FEW = ("FedAvg", "FedAdam", "FedMedian")
"""Of which each model meets at least these; NumPy and torch meet all."""


CYCLIC = ("FedXgbCyclic",)
"""Trains one node a round."""
CLIPPING = (
    "DifferentialPrivacyClientSideAdaptiveClipping",
    "DifferentialPrivacyClientSideFixedClipping",
    "DifferentialPrivacyServerSideAdaptiveClipping",
    "DifferentialPrivacyServerSideFixedClipping",
)
WHOLE_NUMBERS = (INT8.name, "torch with BatchNorm")


LOADED_FOR_SECONDS = ("JAX", "LoRA adapters")
"""Their libraries are; before a commit the other models are enough."""


def pairs() -> list[tuple[Case, str]]:
    everything = (INT8.name,) if SIZE == "quick" else ("NumPy", "torch with BatchNorm", INT8.name)
    return [
        (case, name)
        for case in CASES
        for name in STRATEGIES
        if (SIZE == "full" or name in A_FEW or case.name in everything)
        and (SIZE != "quick" or case.name not in LOADED_FOR_SECONDS)
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
    gc.freeze()  # some strategies collect garbage after each reply; frameworks stay loaded anyway
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


@pytest.mark.contract
@pytest.mark.no_cover
@pytest.mark.parametrize(("case", "strategy"), pairs(), ids=lambda one: getattr(one, "name", one))
def test_the_model_is_that_of_the_bare_strategy_bit_for_bit(case: Case, strategy: str) -> None:
    bare, wrapped = models(case, STRATEGIES[strategy])
    assert_same(bare, wrapped, case.initial())
    assert any(
        not np.array_equal(array.numpy(), wrapped[name].numpy())
        for name, array in case.initial().items()
    )


def test_trees_are_passed_on_as_bare() -> None:
    case, strategy = TREES, FedXgbCyclic(**QUIET)
    if case.missing:
        pytest.skip(f"needs {' and '.join(case.missing)}")
    plain, gated = apps(case)
    nodes = [{"partition-id": number} for number in range(CLIENTS)]
    random.seed(0)  # Flower draws the order of nodes from it
    bare = FedXgbCyclic(**QUIET).start(
        OrderedGrid(plain, nodes), case.initial(), num_rounds=CLIENTS
    )
    control = everything_admitted(strategy)
    random.seed(0)
    wrapped = control.start(OrderedGrid(gated, nodes), case.initial(), num_rounds=CLIENTS)
    assert [row.orders for row in control.rounds] == [1] * CLIENTS
    assert bare.arrays["0"].numpy().tobytes() == wrapped.arrays["0"].numpy().tobytes()


def clipping(name: str) -> Strategy:
    kind = getattr(flwr.serverapp.strategy, name)
    norm = {"initial_clipping_norm": 0.5} if "Adaptive" in name else {"clipping_norm": 0.5}
    wrapper: Strategy = kind(
        FedAvg(**QUIET), noise_multiplier=1e-3, num_sampled_clients=CLIENTS, **norm
    )
    return wrapper


MODS: dict[str, list[Any]] = {
    "DifferentialPrivacyClientSideAdaptiveClipping": [adaptiveclipping_mod],
    "DifferentialPrivacyClientSideFixedClipping": [fixedclipping_mod],
    "local": [LocalDpMod(clipping_norm=0.5, sensitivity=0.1, epsilon=10.0, delta=1e-5)],
}


@pytest.mark.contract
@pytest.mark.parametrize("name", [*CLIPPING, "local"])
def test_flowers_own_privacy_works_beside_the_gate(name: str) -> None:
    """Its noise is drawn from NumPy's global generator: the same for both."""
    (case,) = [one for one in CASES if one.name == "NumPy"]
    nodes = [{"partition-id": number} for number in range(CLIENTS)]
    mods, found = MODS.get(name, []), list[ArrayRecord]()
    for gated in (False, True):
        strategy = FedAvg(**QUIET) if name == "local" else clipping(name)
        np.random.seed(0)  # noqa: NPY002 - Flower's
        grid = OrderedGrid(apps(case, mods)[gated], nodes)
        start = everything_admitted(strategy).start if gated else strategy.start
        arrays = start(grid, case.initial(), num_rounds=ROUNDS).arrays
        assert arrays is not None
        assert not grid.answers.failed
        found.append(arrays)
    assert_same(found[0], found[1], case.initial())


@pytest.mark.parametrize("name", CLIPPING)
def test_privacy_that_cannot_clip_whole_numbers_is_refused_at_the_start(name: str) -> None:
    grid = LocalGrid(apps(INT8)[1], [{"partition-id": 0}])
    with pytest.raises(ConfigurationError, match=f"{name} only works with floats"):
        everything_admitted(clipping(name)).start(grid, INT8.initial(), num_rounds=1)
    assert not grid.answers.sent


def test_trees_are_bagged_as_bare() -> None:
    bare, wrapped = models(TREES, lambda: FedXgbBagging(**QUIET))
    assert bare["0"].numpy().tobytes() == wrapped["0"].numpy().tobytes()
    assert len(wrapped["0"].numpy())


@pytest.mark.contract
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
    with pytest.raises(ConfigurationError, match="QFedAvg only works with floats"):
        everything_admitted(STRATEGIES["QFedAvg"]()).start(grid, case.initial(), num_rounds=1)
    assert not grid.answers.sent


@pytest.mark.contract
def test_no_strategy_of_flower_is_left_out() -> None:
    tested = {*STRATEGIES, "FedXgbBagging", *CYCLIC, *CLIPPING}
    others = {"Result", "Strategy"}
    assert tested - {"FoldedFedAvg"} == set(flwr.serverapp.strategy.__all__) - others


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


def spent_by(
    strategy: Strategy, app: ClientApp, policy: str = "tide", rounds: int = 12, clients: int = 2
) -> list[float]:
    prices = PricePath(ConstantPrice(1.0), seed=0)
    control = AdmissionControl(strategy, policy, budget=2.0, prices=prices)
    nodes = [{"partition-id": number} for number in range(clients)]
    control.start(LocalGrid(app, nodes), MODEL, num_rounds=rounds)
    return [row.spent for row in control.rounds]


@pytest.mark.parametrize("policy", ["tide", "constant_admission", "acdpp"])
def test_clients_buy_less_and_less_while_the_average_is_refused(
    policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="tidegate"):
        wrong = Overflowing(range(4, 100))
        spent = spent_by(wrong, app_that_sends(lambda now: MODEL), policy, 60)
    bought = [now for now, paid in enumerate(spent, start=1) if paid and now > 3]
    assert bought
    assert len(bought) <= 6
    pauses = np.diff(bought)
    assert all(pauses[1:] >= pauses[:-1])
    assert "cannot be the next model" in caplog.text
    told = re.findall(r"clients buy nothing in the next (\d+) rounds", caplog.text)
    assert told == ["2", "4", "8", "16", "32"][: len(told)]  # each pause once, as it begins
    assert len(told) >= 3
    assert "again, no update of a client that bought samples could be used" in caplog.text


def test_clients_buy_again_as_soon_as_a_model_is_used() -> None:
    wrong = Overflowing(range(4, 7))
    spent = spent_by(wrong, app_that_sends(lambda now: MODEL), "constant_admission", 12)
    assert spent[4] == 0
    assert all(spent[7:])


class FaultyError(Exception):
    """What a client's own code raises."""


def _raise(now: int) -> ArrayRecord:
    raise FaultyError


@pytest.mark.parametrize(
    "arrays",
    [lambda now: ArrayRecord({"w": Array(np.full(2, np.nan))}), lambda now: ArrayRecord(), _raise],
    ids=["not finite", "no model", "raises"],
)
@pytest.mark.parametrize("policy", ["tide", "constant_admission"])
def test_clients_buy_less_and_less_while_none_of_their_models_is_of_use(
    arrays: Callable[[int], ArrayRecord], policy: str
) -> None:
    spent = spent_by(FedAvg(**QUIET), app_that_sends(arrays), policy, 60)
    assert 0 < sum(paid > 0 for paid in spent) <= 8


def test_a_client_whose_code_is_wrong_does_not_keep_the_others_from_learning() -> None:
    gate = ClientGate(lambda context: range(1000), buffer_capacity=4)
    app = ClientApp(mods=[gate])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        if context.node_config["partition-id"] == 0:
            raise FaultyError
        gate.samples(context)
        content = RecordDict({"arrays": MODEL, "metrics": MetricRecord({"num-examples": 1})})
        return Message(content, reply_to=message)

    prices = PricePath(ConstantPrice(1.0), seed=0)
    control = AdmissionControl(FedAvg(**QUIET), "tide", budget=1.0, prices=prices)
    control.start(LocalGrid(app, [{"partition-id": n} for n in range(3)]), MODEL, num_rounds=40)
    assert control.rounds[-1].training_size == 8  # both others are full


def test_an_average_that_is_refused_leaves_no_trace_in_the_strategy() -> None:
    """Momentum that is not finite would make every average after it not finite."""
    model = ArrayRecord({"w": Array(np.zeros(2, np.float32))})
    huge = ArrayRecord({"w": Array(np.full(2, 3e38, np.float32))})
    small = ArrayRecord({"w": Array(np.full(2, -1e38, np.float32))})
    app = app_that_sends(lambda now: huge if now % 5 == 0 else small if now == 4 else model)
    strategy = FedAvgM(**QUIET, server_momentum=0.9)
    prices = PricePath(ConstantPrice(1.0), seed=0)
    control = AdmissionControl(strategy, "tide", budget=2.0, prices=prices)
    with np.errstate(over="ignore", invalid="ignore"):
        control.start(LocalGrid(app, [{"partition-id": n} for n in range(2)]), model, num_rounds=30)
    assert strategy.momentum_vector is not None
    assert np.isfinite(strategy.momentum_vector[0]).all()


def test_truth_values_stay_what_torch_makes_of_them() -> None:
    torch = pytest.importorskip("torch")
    masks = {0: [False, True, False], 1: [True, True, False]}
    gate = ClientGate(lambda context: range(1000), buffer_capacity=4)
    app = ClientApp(mods=[gate])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        gate.samples(context)
        mask = np.array(masks[int(context.node_config["partition-id"])])
        arrays = ArrayRecord({"mask": Array(mask)})
        content = RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 1})})
        return Message(content, reply_to=message)

    initial = ArrayRecord({"mask": Array(np.zeros(3, bool))})
    control = everything_admitted(FedAvg(**QUIET))
    nodes = [{"partition-id": number} for number in range(2)]
    after = control.start(LocalGrid(app, nodes), initial, num_rounds=1).arrays
    assert after is not None
    loaded = torch.zeros(3, dtype=torch.bool).copy_(torch.tensor([0.5, 1.0, 0.0]))
    assert after["mask"].numpy().tolist() == loaded.tolist() == [True, True, False]


@pytest.mark.parametrize(
    "opened",
    [([1], [2]), "abc", b"abc", {"x": 1}, iter([1]), 5],
    ids=lambda one: type(one).__name__,
)
def test_what_is_not_a_data_set_is_refused_before_anything_is_bought(
    opened: Any, caplog: pytest.LogCaptureFixture
) -> None:
    gate = ClientGate(lambda context: opened, buffer_capacity=4)
    app = ClientApp(mods=[gate])
    app.train()(lambda message, context: pytest.fail("there is nothing to train on"))
    control = everything_admitted(FedAvg(**QUIET))
    with pytest.raises(ValueError, match="no client can take part"):
        control.start(LocalGrid(app, [{"partition-id": n} for n in range(2)]), MODEL, 1)
    assert f"open_stream returned a {type(opened).__name__}" in caplog.text


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        (ArrayRecord({"w": Array(np.array([1j]))}), "its array 'w' is not an array of numbers"),
        (ArrayRecord({"w": Array(np.array(["a"]))}), "its array 'w' is not an array of numbers"),
        (ArrayRecord({"w": Array(np.array([np.nan]))}), "'w' has numbers that are not finite"),
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


def test_flower_cannot_carry_bfloat16() -> None:
    """So docs/flower.md asks for ``.float()``; if this fails, Flower has learned it."""
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match="BFloat16"):
        ArrayRecord({"w": torch.zeros(2, dtype=torch.bfloat16)})
