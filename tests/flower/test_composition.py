"""Which strategies can be wrapped, and which order of wrappers works."""

import gc
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
from flower_strategies import AVERAGING, QUIET
from flwr.app import ConfigRecord, Message
from flwr.serverapp.strategy import (
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAdam,
    FedAvg,
    FedProx,
    Strategy,
)
from gated_apps import MODEL, gated_app

from tidegate.flower import AdmissionControl, LocalGrid
from tidegate.flower.records import asks_who
from tidegate.prices import PricePath, UniformPrice

CLIENTS = 5

STRATEGIES: dict[str, Callable[[], Strategy]] = {
    **AVERAGING,
    "DP, fixed clipping": lambda: DifferentialPrivacyServerSideFixedClipping(
        FedAvg(**QUIET), noise_multiplier=1e-4, clipping_norm=10.0, num_sampled_clients=CLIENTS
    ),
    "DP, adaptive clipping": lambda: DifferentialPrivacyServerSideAdaptiveClipping(
        FedAvg(**QUIET), noise_multiplier=1e-4, num_sampled_clients=CLIENTS,
        initial_clipping_norm=10.0,
    ),
    "DP around FedAdam": lambda: DifferentialPrivacyServerSideFixedClipping(
        FedAdam(**QUIET), noise_multiplier=1e-4, clipping_norm=10.0, num_sampled_clients=CLIENTS
    ),
}  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def _nothing_to_look_through() -> None:
    """Some strategies collect garbage after each reply; what is loaded by now stays anyway."""
    gc.collect()
    gc.freeze()


def grid() -> LocalGrid:
    return LocalGrid(gated_app(), [{"partition-id": number} for number in range(CLIENTS)])


def control(strategy: Strategy, budget: float = 40.0, policy: str = "acdpp") -> AdmissionControl:
    prices = PricePath(UniformPrice(1, 10), seed=1)
    return AdmissionControl(strategy, policy, budget=budget, prices=prices, run="r")


def error(arrays: Any) -> float:
    """Distance from the plane that the data lie on."""
    w, b = arrays.to_numpy_ndarrays()
    return float(np.linalg.norm(np.append(w, b) - [1.0, -2.0, 0.5, 3.0]))


@pytest.mark.parametrize("name", STRATEGIES)
def test_no_wrapped_strategy_fails_where_nobody_has_samples(name: str) -> None:
    result = control(STRATEGIES[name](), budget=0.01).start(grid(), MODEL, num_rounds=2)
    assert error(result.arrays) == error(MODEL)


@pytest.mark.contract
@pytest.mark.parametrize("name", STRATEGIES)
def test_no_wrapped_strategy_fails_where_one_client_alone_has_samples(name: str) -> None:
    strategy = control(STRATEGIES[name](), budget=5.5, policy="constant_admission")
    result = strategy.start(grid(), MODEL, num_rounds=1)
    assert strategy.rounds[0].training_size == 1
    assert np.isfinite(error(result.arrays))


def test_around_admission_control_nothing_works_and_the_error_says_why() -> None:
    around = DifferentialPrivacyServerSideFixedClipping(
        control(FedAvg(**QUIET)), noise_multiplier=1.0, clipping_norm=1.0, num_sampled_clients=5
    )
    with pytest.raises(RuntimeError, match="AdmissionControl must be the outermost strategy"):
        around.start(grid(), MODEL, num_rounds=1)


def test_the_messages_of_the_wrapped_strategy_keep_what_it_wrote() -> None:
    sent: list[Message] = []

    class Watching(LocalGrid):
        def push_messages(self, messages: Iterable[Message]) -> list[str]:
            batch = list(messages)
            sent.extend(one for one in batch if not asks_who(one.content))
            return super().push_messages(batch)

    watching = Watching(gated_app(), [{"partition-id": number} for number in range(CLIENTS)])
    strategy = control(FedProx(**QUIET, proximal_mu=0.25))
    strategy.start(watching, MODEL, num_rounds=1, train_config=ConfigRecord({"lr": 0.5}))
    for message in sent:
        config = message.content.config_records["config"]
        assert (config["lr"], config["proximal-mu"], config["server-round"]) == (0.5, 0.25, 1)
