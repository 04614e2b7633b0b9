"""What is known of the strategies that are wrapped, and what they carry from round to round."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from flwr.app import ArrayRecord
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideAdaptiveClipping,
    DifferentialPrivacyServerSideAdaptiveClipping,
    FedAdagrad,
    FedAdam,
    FedAvgM,
    FedYogi,
    QFedAvg,
    Strategy,
)

from tidegate.errors import ConfigurationError

STRATEGY_STATE: Mapping[type[Strategy], tuple[str, ...]] = {
    FedAdagrad: ("m_t", "v_t"),
    FedAdam: ("m_t", "v_t"),
    FedYogi: ("m_t", "v_t"),
    FedAvgM: ("momentum_vector",),
    DifferentialPrivacyClientSideAdaptiveClipping: ("clipping_norm",),
    DifferentialPrivacyServerSideAdaptiveClipping: ("clipping_norm",),
}
"""What Flower's own strategies carry from one round to the next, besides the model."""


def wrapped(strategy: Strategy) -> Iterator[Strategy]:
    """A strategy and those that it wraps, from outside."""
    inner: Strategy | None = strategy
    while isinstance(inner, Strategy):
        yield inner
        inner = getattr(inner, "strategy", None)


def _state_of(strategy: Strategy) -> Iterator[tuple[str, Strategy, str]]:
    """A key, an owner and an attribute for all that changes from round to round."""
    for depth, one in enumerate(wrapped(strategy)):
        for kind, names in STRATEGY_STATE.items():
            if isinstance(one, kind):
                yield from ((f"{depth}.{name}", one, name) for name in names)


def kept_by(strategy: Strategy) -> dict[str, Any]:
    """The state of a strategy and of those that it wraps."""
    values = {key: getattr(owner, name) for key, owner, name in _state_of(strategy)}
    return {key: value for key, value in values.items() if value is not None}


def give_back(strategy: Strategy, kept: Mapping[str, Any]) -> None:
    """Set what ``kept_by`` gave in an earlier process."""
    if any(getattr(one, "accountant", None) is not None for one in wrapped(strategy)):
        raise ConfigurationError(
            "a privacy accountant does not survive a restart: what was spent before would be "
            "forgotten; start a new run in another folder"
        )
    for key, owner, name in _state_of(strategy):
        if key in kept:
            setattr(owner, name, kept[key])


def reached(strategy: Strategy) -> tuple[float, int]:
    """The part of the nodes that a strategy trains in a round, and how many at least.

    All of them where it does not say.
    """
    for one in wrapped(strategy):
        share = getattr(one, "fraction_train", None)
        if share:
            return share, getattr(one, "min_train_nodes", 1)
    return 1.0, 1


def check_averages(strategy: Strategy, model: ArrayRecord) -> None:
    """Refuse a strategy that cannot average a model, before anything is spent on it."""
    if not any(isinstance(one, QFedAvg) for one in wrapped(strategy)):
        return
    for name, array in model.items():
        if np.dtype(array.dtype).kind != "f":
            raise ConfigurationError(
                f"QFedAvg cannot average whole numbers, and the model's array {name!r} is "
                f"{array.dtype}: send it as a float, or take another strategy"
            )


def weight_key(strategy: Strategy) -> str:
    """The metric by which a strategy weighs replies."""
    keys = [getattr(one, "weighted_by_key", "") for one in wrapped(strategy)]
    return next(filter(None, keys), "num-examples")
