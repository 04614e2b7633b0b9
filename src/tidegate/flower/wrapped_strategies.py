"""What we know about wrapped strategies, and the state they carry from round to round.

Flower's own strategies are known by name, with the attributes that they keep. A user's own strategy
says what it keeps with two methods, ``state`` and ``restore``.
"""

import copy
import logging
from collections.abc import Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

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

from tidegate._internal.arguments import check_kind, check_whole_number
from tidegate.errors import ConfigurationError, RunDiffersError
from tidegate.flower.local_grid import LocalGrid
from tidegate.flower.log_lines import NOT_KEPT, NOT_SAVED
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

LIBRARIES = ("flwr", "tidegate")
"""Packages whose strategies are known here."""

STATE = "state()"
"""End of the key of what a user's strategy keeps."""

FLOATS_ONLY = (
    QFedAvg,
    DifferentialPrivacyClientSideAdaptiveClipping,
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
)
"""Flower's strategies that multiply arrays in place, which fails for whole numbers."""


@runtime_checkable
class Stateful(Protocol):
    """A user's strategy whose own state is saved with a run."""

    def state(self) -> Mapping[str, Any]:
        """Return everything that the strategy changes from round to round."""
        ...

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from what ``state`` returned, in another process."""
        ...


def wrapped(strategy: Strategy) -> Iterator[Strategy]:
    """Yield a strategy and those that it wraps, the outermost first."""
    inner: Strategy | None = strategy
    while isinstance(inner, Strategy):
        yield inner
        inner = getattr(inner, "strategy", None)


def _flower_s(strategy: Strategy) -> Iterator[tuple[str, Strategy, str]]:
    """Yield a key, an owner and an attribute for all state of Flower's own strategies."""
    for depth, layer in enumerate(wrapped(strategy)):
        for kind, names in STRATEGY_STATE.items():
            if isinstance(layer, kind):
                yield from ((f"{depth}.{name}", layer, name) for name in names)


def _own(strategy: Strategy) -> dict[str, Stateful]:
    """Return the strategies that say what they keep, each by a key."""
    return {
        f"{depth}.{STATE}": layer
        for depth, layer in enumerate(wrapped(strategy))
        if isinstance(layer, Stateful)
    }


def state_of(strategy: Strategy) -> dict[str, Any]:
    """Return the state of a strategy and of those that it wraps; None for what is not yet set."""
    kept = {key: getattr(owner, name) for key, owner, name in _flower_s(strategy)}
    for key, owner in _own(strategy).items():
        state = owner.state()
        if not isinstance(state, Mapping):
            raise ConfigurationError(
                f"{type(owner).__name__}.state() must return a dict, got a {type(state).__name__}"
            )
        kept[key] = copy.deepcopy(dict(state))  # the strategy may change it in place later
    return kept


def give_back(strategy: Strategy, state: Mapping[str, Any]) -> None:
    """Restore what ``state_of`` returned before, or a file has kept of it."""
    for key, owner, name in _flower_s(strategy):
        if key in state:
            setattr(owner, name, state[key])
    for key, layer in _own(strategy).items():
        if key in state:
            layer.restore(state[key])


def warn_of_what_is_lost(strategy: Strategy) -> None:
    """Warn, before a saved run begins, of state that a resumed run will not have."""
    for layer in wrapped(strategy):
        kind = type(layer)
        if kind.__module__.partition(".")[0] not in LIBRARIES and not isinstance(layer, Stateful):
            logger.warning(NOT_SAVED, kind.__name__, kind.__name__)


def check_resumable(strategy: Strategy, kept: Mapping[str, Any]) -> None:
    """Refuse to resume with a strategy whose state was not saved, or cannot be restored.

    Args:
        strategy: the strategy of this start.
        kept: the state that an earlier start saved.
    """
    own = _own(strategy)
    for key in kept.keys() - own.keys():
        if key.endswith(STATE):
            raise RunDiffersError(
                "the folder holds the state() of a strategy, but no strategy in its place has a "
                "restore() to take it back; resume with the strategy that began the run",
                name="state()",
                saved=sorted(kept[key]),
                given=None,
            )
    for key in own.keys() - kept.keys():
        logger.warning(NOT_KEPT, type(own[key]).__name__)
    if any(getattr(layer, "accountant", None) is not None for layer in wrapped(strategy)):
        raise ConfigurationError(
            "a run with a privacy accountant cannot be resumed: the accountant would forget the "
            "privacy loss of earlier rounds; start a new run in another folder"
        )


def reached(strategy: Strategy) -> tuple[float, int]:
    """Return the part of the nodes that a strategy trains in a round, and the least number.

    If it does not say, assume all: it may train every node that it sees.
    """
    for layer in wrapped(strategy):
        share = getattr(layer, "fraction_train", None)
        if share is None:
            continue
        if not 0 < share <= 1:
            raise ConfigurationError(
                f"{type(layer).__name__} has fraction_train = {share}, so no node trains; set a "
                "fraction above 0 and at most 1"
            )
        return share, getattr(layer, "min_train_nodes", 1)
    return 1.0, 1


def check_enough_nodes(strategy: Strategy, grid: Grid) -> None:
    """Refuse a strategy that waits for more nodes than this process will ever have.

    There is no such wait without any nodes; and on other grids, any number of nodes may join.
    """
    nodes = grid.num_nodes if isinstance(grid, LocalGrid) else 0
    for layer in wrapped(strategy) if nodes else ():
        wanted = {"min_available_nodes": getattr(layer, "min_available_nodes", 0)}
        for kind in ("train", "evaluate"):
            if getattr(layer, f"fraction_{kind}", 0):
                wanted[f"min_{kind}_nodes"] = getattr(layer, f"min_{kind}_nodes", 0)
        name = max(wanted, key=wanted.__getitem__)
        if wanted[name] > nodes:
            raise ConfigurationError(
                f"{type(layer).__name__} waits for {name} = {wanted[name]} nodes, but this process "
                f"has only {nodes}: give LocalGrid {wanted[name]} node_configs (tidegate run: "
                f"--clients {wanted[name]}), or lower "
                f"{' and '.join(key for key in wanted if wanted[key] > nodes)}"
            )


def check_start(strategy: Strategy, model: ArrayRecord, num_rounds: int) -> None:
    """Refuse a run that cannot learn, before clients spend anything on it."""
    check_whole_number("num_rounds", num_rounds, remedy="no round was run")
    example = "such as ArrayRecord(model.state_dict()) or ArrayRecord([array])"
    check_kind("initial_arrays", model, ArrayRecord, example)
    check_model(model)
    for layer in wrapped(strategy):
        both = ("state", "restore")
        missing = [name for name in both if not callable(getattr(layer, name, None))]
        if len(missing) == 1:
            (defined,) = {*both} - {*missing}
            raise ConfigurationError(
                f"{type(layer).__name__} defines {defined}() without {missing[0]}(): its state can "
                "be saved and restored only if it has both"
            )
    floats_only = [layer for layer in wrapped(strategy) if isinstance(layer, FLOATS_ONLY)]
    for name, array in model.items() if floats_only else ():
        if np.dtype(array.dtype).kind != "f":
            raise ConfigurationError(
                f"{type(floats_only[0]).__name__} only works with floats, but the model's array "
                f"{name!r} is {array.dtype}: send it as a float, or use another strategy"
            )


def weight_key(strategy: Strategy) -> str:
    """Return the metric by which a strategy weighs replies."""
    keys = [getattr(layer, "weighted_by_key", "") for layer in wrapped(strategy)]
    return next(filter(None, keys), NUM_EXAMPLES)
