"""What is known of the strategies that are wrapped, and what they carry from round to round."""

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

logger = logging.getLogger("flwr.tidegate")

STRATEGY_STATE: Mapping[type[Strategy], tuple[str, ...]] = {
    FedAdagrad: ("m_t", "v_t"),
    FedAdam: ("m_t", "v_t"),
    FedYogi: ("m_t", "v_t"),
    FedAvgM: ("momentum_vector",),
    DifferentialPrivacyClientSideAdaptiveClipping: ("clipping_norm",),
    DifferentialPrivacyServerSideAdaptiveClipping: ("clipping_norm",),
}
"""What Flower's own strategies carry from one round to the next, besides the model."""

FLOATS_ONLY = (
    QFedAvg,
    DifferentialPrivacyClientSideAdaptiveClipping,
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
)
"""Flower's strategies that multiply arrays in place, which fails for whole numbers."""


def wrapped(strategy: Strategy) -> Iterator[Strategy]:
    """A strategy and those that it wraps, from outside."""
    inner: Strategy | None = strategy
    while isinstance(inner, Strategy):
        yield inner
        inner = getattr(inner, "strategy", None)


def _places(strategy: Strategy) -> Iterator[tuple[str, Strategy, str]]:
    """A key, an owner and an attribute for all that changes from round to round."""
    for depth, one in enumerate(wrapped(strategy)):
        for kind, names in STRATEGY_STATE.items():
            if isinstance(one, kind):
                yield from ((f"{depth}.{name}", one, name) for name in names)


def _own(strategy: Strategy) -> Iterator[tuple[str, Stateful]]:
    """A key and an owner for the state of each strategy that saves its own."""
    for depth, one in enumerate(wrapped(strategy)):
        if isinstance(one, Stateful):
            yield f"{depth}.{SAVE}", one


def state_of(strategy: Strategy) -> dict[str, Any]:
    """The state of a strategy and of those that it wraps; None for what it has not made yet."""
    flower_s = {key: getattr(owner, name) for key, owner, name in _places(strategy)}
    return flower_s | {key: own_state(owner) for key, owner in _own(strategy)}


def kept_by(strategy: Strategy) -> dict[str, Any]:
    """As much of it as there is, to be saved."""
    return {key: value for key, value in state_of(strategy).items() if value is not None}


def give_back(strategy: Strategy, state: Mapping[str, Any]) -> None:
    """Set what ``state_of`` gave before, or ``kept_by`` in an earlier process."""
    for key, owner, name in _places(strategy):
        if key in state:
            setattr(owner, name, state[key])
    for key, one in _own(strategy):
        if key in state:
            one.load_state_dict(state[key].values)


def warn_of_what_is_lost(strategy: Strategy) -> None:
    """Say what a resumed run will not know, before a run that will be saved begins."""
    saved = {(id(owner), name) for _, owner, name in _places(strategy)}
    for one in wrapped(strategy):
        if names := [name for name in unsaved(one) if (id(one), name) not in saved]:
            logger.warning(NOT_SAVED, type(one).__name__, ", ".join(names))


def check_resumable(strategy: Strategy, kept: Mapping[str, Any]) -> None:
    """Refuse to go on with a strategy whose state was not saved, or cannot be given back.

    Args:
        strategy: of this start.
        kept: what an earlier one has saved.
    """
    takes = {key for key, _ in _own(strategy)}
    for key, value in kept.items():
        if isinstance(value, OwnState) and key not in takes:
            raise RunDiffersError(
                f"the folder holds what a strategy's {SAVE}() gave, and no strategy in its place "
                f"has a {LOAD}() to take it; resume with the strategy that began the run",
                name=SAVE,
                saved=sorted(value.values),
                given=None,
            )
    for key in takes - kept.keys():
        logger.warning(NOT_KEPT, type(dict(_own(strategy))[key]).__name__)
    if any(getattr(one, "accountant", None) is not None for one in wrapped(strategy)):
        raise ConfigurationError(
            "a privacy accountant does not survive a restart: what was spent before would be "
            "forgotten; start a new run in another folder"
        )


def reached(strategy: Strategy) -> tuple[float, int]:
    """The part of the nodes that a strategy trains in a round, and how many at least.

    All of them where it does not say: it may train every node that it sees.
    """
    for one in wrapped(strategy):
        share = getattr(one, "fraction_train", None)
        if share is None:
            continue
        if not 0 < share <= 1:
            raise ConfigurationError(
                f"{type(one).__name__} has fraction_train = {share}, and a run needs nodes that "
                "train; give it a fraction above 0 and at most 1"
            )
        return share, getattr(one, "min_train_nodes", 1)
    return 1.0, 1


def check_enough_nodes(strategy: Strategy, grid: Grid) -> None:
    """Refuse a strategy that waits for more nodes than there will ever be in this process.

    Nobody waits where there are no nodes at all, nor knows how many come to any other grid.
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
                f"{type(one).__name__} waits for {name} = {wanted[name]} nodes, and in this "
                f"process there are never more than {nodes}: give LocalGrid {wanted[name]} "
                f"node_configs (tidegate run: --clients {wanted[name]}), or lower "
                f"{' and '.join(key for key in wanted if wanted[key] > nodes)}"
            )


def check_start(strategy: Strategy, model: ArrayRecord, num_rounds: int) -> None:
    """Refuse a run that cannot learn, before anything is spent on it."""
    check_whole_number("num_rounds", num_rounds, remedy="no round was run")
    check_model(model)
    for one in wrapped(strategy):
        check_methods(one)
    floats_only = [one for one in wrapped(strategy) if isinstance(one, FLOATS_ONLY)]
    for name, array in model.items() if floats_only else ():
        if np.dtype(array.dtype).kind != "f":
            raise ConfigurationError(
                f"{type(floats_only[0]).__name__} takes floats alone, and the model's array "
                f"{name!r} is {array.dtype}: send it as a float, or take another strategy"
            )


def weight_key(strategy: Strategy) -> str:
    """The metric by which a strategy weighs replies."""
    keys = [getattr(one, "weighted_by_key", "") for one in wrapped(strategy)]
    return next(filter(None, keys), NUM_EXAMPLES)
