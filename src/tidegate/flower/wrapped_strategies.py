"""What we know about wrapped strategies, and the state they carry from round to round."""

import logging
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from flwr.app import ArrayRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideAdaptiveClipping,
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAdagrad,
    FedAdam,
    FedAvgM,
    FedYogi,
    QFedAvg,
    Strategy,
)

from tidegate._internal.arguments import check_whole_number
from tidegate.errors import ConfigurationError, RunDiffersError
from tidegate.flower.local_grid import LocalGrid
from tidegate.flower.log_lines import NOT_KEPT, NOT_SAVED
from tidegate.flower.own_state import (
    LOAD,
    SAVE,
    OwnState,
    Stateful,
    check_methods,
    own_state,
    unsaved,
)
from tidegate.flower.records import NUM_EXAMPLES
from tidegate.flower.updates import check_model

logger = logging.getLogger(__name__)

STRATEGY_STATE: Mapping[type[Strategy], tuple[str, ...]] = {
    FedAdagrad: ("m_t", "v_t"),
    FedAdam: ("m_t", "v_t"),
    FedYogi: ("m_t", "v_t"),
    FedAvgM: ("momentum_vector",),
    DifferentialPrivacyClientSideAdaptiveClipping: ("clipping_norm",),
    DifferentialPrivacyServerSideAdaptiveClipping: ("clipping_norm",),
}
"""State that Flower's own strategies carry from one round to the next, besides the model."""

FLOATS_ONLY = (
    QFedAvg,
    DifferentialPrivacyClientSideAdaptiveClipping,
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
)
"""Flower's strategies that multiply arrays in place, which fails for whole numbers."""


def wrapped(strategy: Strategy) -> Iterator[Strategy]:
    """Yield a strategy and those that it wraps, the outermost first."""
    inner: Strategy | None = strategy
    while isinstance(inner, Strategy):
        yield inner
        inner = getattr(inner, "strategy", None)


def _places(strategy: Strategy) -> Iterator[tuple[str, Strategy, str]]:
    """Yield a key, an owner and an attribute for everything that changes from round to round."""
    for depth, one in enumerate(wrapped(strategy)):
        for kind, names in STRATEGY_STATE.items():
            if isinstance(one, kind):
                yield from ((f"{depth}.{name}", one, name) for name in names)


def _own(strategy: Strategy) -> Iterator[tuple[str, Stateful]]:
    """Yield a key and an owner for each strategy that saves its own state."""
    for depth, one in enumerate(wrapped(strategy)):
        if isinstance(one, Stateful):
            yield f"{depth}.{SAVE}", one


def state_of(strategy: Strategy) -> dict[str, Any]:
    """Return the state of a strategy and of those that it wraps; None for what is not yet set."""
    flower_s = {key: getattr(owner, name) for key, owner, name in _places(strategy)}
    return flower_s | {key: own_state(owner) for key, owner in _own(strategy)}


def kept_by(strategy: Strategy) -> dict[str, Any]:
    """Return the state that is set, for saving."""
    return {key: value for key, value in state_of(strategy).items() if value is not None}


def give_back(strategy: Strategy, state: Mapping[str, Any]) -> None:
    """Restore what ``state_of`` returned before, or ``kept_by`` in an earlier process."""
    for key, owner, name in _places(strategy):
        if key in state:
            setattr(owner, name, state[key])
    for key, one in _own(strategy):
        if key in state:
            one.load_state_dict(state[key].values)


def warn_of_what_is_lost(strategy: Strategy) -> None:
    """Warn, before a saved run begins, of state that a resumed run will not have."""
    saved = {(id(owner), name) for _, owner, name in _places(strategy)}
    for one in wrapped(strategy):
        if names := [name for name in unsaved(one) if (id(one), name) not in saved]:
            logger.warning(NOT_SAVED, type(one).__name__, ", ".join(names))


def check_resumable(strategy: Strategy, kept: Mapping[str, Any]) -> None:
    """Refuse to resume with a strategy whose state was not saved, or cannot be restored.

    Args:
        strategy: the strategy of this start.
        kept: the state that an earlier start saved.
    """
    takes = {key for key, _ in _own(strategy)}
    for key, value in kept.items():
        if isinstance(value, OwnState) and key not in takes:
            raise RunDiffersError(
                f"the folder holds the result of a strategy's {SAVE}(), but no strategy in its "
                f"place has a {LOAD}() to restore it; resume with the strategy that began the run",
                name=SAVE,
                saved=sorted(value.values),
                given=None,
            )
    for key in takes - kept.keys():
        logger.warning(NOT_KEPT, type(dict(_own(strategy))[key]).__name__)
    if any(getattr(one, "accountant", None) is not None for one in wrapped(strategy)):
        raise ConfigurationError(
            "a run with a privacy accountant cannot be resumed: the accountant would forget the "
            "privacy loss of earlier rounds; start a new run in another folder"
        )


def reached(strategy: Strategy) -> tuple[float, int]:
    """Return the part of the nodes that a strategy trains in a round, and the least number.

    If it does not say, assume all: it may train every node that it sees.
    """
    for one in wrapped(strategy):
        share = getattr(one, "fraction_train", None)
        if share is None:
            continue
        if not 0 < share <= 1:
            raise ConfigurationError(
                f"{type(one).__name__} has fraction_train = {share}, so no node trains; set a "
                "fraction above 0 and at most 1"
            )
        return share, getattr(one, "min_train_nodes", 1)
    return 1.0, 1


def check_enough_nodes(strategy: Strategy, grid: Grid) -> None:
    """Refuse a strategy that waits for more nodes than this process will ever have.

    There is no such wait without any nodes; and on other grids, any number of nodes may join.
    """
    nodes = grid.num_nodes if isinstance(grid, LocalGrid) else 0
    for one in wrapped(strategy) if nodes else ():
        wanted = {"min_available_nodes": getattr(one, "min_available_nodes", 0)}
        for kind in ("train", "evaluate"):
            if getattr(one, f"fraction_{kind}", 0):
                wanted[f"min_{kind}_nodes"] = getattr(one, f"min_{kind}_nodes", 0)
        name = max(wanted, key=wanted.__getitem__)
        if wanted[name] > nodes:
            raise ConfigurationError(
                f"{type(one).__name__} waits for {name} = {wanted[name]} nodes, but this process "
                f"has only {nodes}: give LocalGrid {wanted[name]} node_configs (tidegate run: "
                f"--clients {wanted[name]}), or lower "
                f"{' and '.join(key for key in wanted if wanted[key] > nodes)}"
            )


def check_start(strategy: Strategy, model: ArrayRecord, num_rounds: int) -> None:
    """Refuse a run that cannot learn, before clients spend anything on it."""
    check_whole_number("num_rounds", num_rounds, remedy="no round was run")
    check_model(model)
    for one in wrapped(strategy):
        check_methods(one)
    floats_only = [one for one in wrapped(strategy) if isinstance(one, FLOATS_ONLY)]
    for name, array in model.items() if floats_only else ():
        if np.dtype(array.dtype).kind != "f":
            raise ConfigurationError(
                f"{type(floats_only[0]).__name__} only works with floats, but the model's array "
                f"{name!r} is {array.dtype}: send it as a float, or use another strategy"
            )


def weight_key(strategy: Strategy) -> str:
    """Return the metric by which a strategy weighs replies."""
    keys = [getattr(one, "weighted_by_key", "") for one in wrapped(strategy)]
    return next(filter(None, keys), NUM_EXAMPLES)
