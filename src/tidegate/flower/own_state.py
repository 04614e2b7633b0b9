"""State that a user's strategy carries from round to round, given by two methods of its own.

``state_dict()`` returns it and ``load_state_dict(state)`` restores it, as in torch. It is saved
with the model that it led to, as JSON and NumPy arrays, without pickles.
"""

import ast
import copy
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from flwr.serverapp.strategy import Strategy
from numpy.typing import NDArray

from tidegate.errors import ConfigurationError

SAVE, LOAD = "state_dict", "load_state_dict"
LIBRARIES = ("flwr.", "tidegate.")
"""Packages whose strategies are known here."""
CHANGING = ("append", "extend", "insert", "add", "update", "setdefault", "pop", "clear", "fill")
"""Methods of lists, dicts, sets and arrays that change them."""
ALLOWED = (
    "NumPy arrays, numbers, text, None, and lists, tuples and dicts (with text as keys) of these"
)


@runtime_checkable
class Stateful(Protocol):
    """A strategy whose own state is saved with a run."""

    def state_dict(self) -> Mapping[str, Any]:
        """Return everything that the strategy changes from round to round."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what ``state_dict`` returned, in another process."""
        ...


@dataclass(frozen=True)
class OwnState:
    """What ``state_dict`` returned."""

    values: dict[str, Any]


def own_state(strategy: Stateful) -> OwnState:
    """Return a copy of a strategy's state, which the strategy may change in place later."""
    state = strategy.state_dict()
    if not isinstance(state, Mapping):
        raise ConfigurationError(
            f"{type(strategy).__name__}.{SAVE}() must return a dict, got a {type(state).__name__}"
        )
    return OwnState(copy.deepcopy(dict(state)))


def to_tree(value: Any, place: Callable[[NDArray[Any]], int], where: str = SAVE) -> Any:
    """Convert a state to JSON; arrays go to a list of their own, and only their places stay."""
    if isinstance(value, np.ndarray | np.generic) and not value.dtype.hasobject:
        kind = "array" if isinstance(value, np.ndarray) else "scalar"
        return {kind: place(np.asarray(value))}
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, list | tuple):
        items = [to_tree(one, place, f"{where}[{n}]") for n, one in enumerate(value)]
        return {"tuple": items} if isinstance(value, tuple) else items
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        parts = {key: to_tree(one, place, f"{where}[{key!r}]") for key, one in value.items()}
        return {"dict": parts}
    raise ConfigurationError(
        f"{where} of the strategy is a {type(value).__name__}, which cannot be saved; use {ALLOWED}"
    )


def from_tree(tree: Any, array: Callable[[int], NDArray[Any]]) -> Any:
    """Return the state that ``to_tree`` was given."""
    if isinstance(tree, list):
        return [from_tree(one, array) for one in tree]
    if not isinstance(tree, dict):
        return tree
    if "array" in tree:
        return array(tree["array"])
    if "scalar" in tree:
        return array(tree["scalar"])[()]
    if "tuple" in tree:
        return tuple(from_tree(one, array) for one in tree["tuple"])
    return {key: from_tree(one, array) for key, one in tree["dict"].items()}


def check_methods(strategy: Strategy) -> None:
    """Refuse a strategy that has only one of the two methods."""
    found = [name for name in (SAVE, LOAD) if callable(getattr(strategy, name, None))]
    if len(found) == 1:
        missing = LOAD if found == [SAVE] else SAVE
        raise ConfigurationError(
            f"{type(strategy).__name__} defines {found[0]}() without {missing}(): its state can "
            "be saved and restored only if it has both"
        )


def unsaved(strategy: Strategy) -> list[str]:
    """Return attributes that a user's strategy changes from round to round and that are not saved.

    They are found in the source of its methods: what these assign to ``self``, or change in place.
    """
    if isinstance(strategy, Stateful):
        return []
    changed = set[str]()
    for kind in type(strategy).__mro__:
        if not f"{kind.__module__}.".startswith((*LIBRARIES, "builtins.", "abc.", "typing.")):
            changed.update(_changed_by(kind))
    return sorted(changed)


def _changed_by(kind: type) -> Iterator[str]:
    """Return the attributes that methods of a class change after ``__init__``."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    except (OSError, TypeError, SyntaxError):  # typed at a prompt, or generated
        return
    body = tree.body[0]
    for method in body.body if isinstance(body, ast.ClassDef) else ():
        if not isinstance(method, ast.FunctionDef) or method.name == "__init__":
            continue
        if not method.args.args:
            continue
        me = method.args.args[0].arg
        for node in ast.walk(method):
            for target in _targets(node):
                name = _attribute_of(target, me)
                if name:
                    yield name


def _targets(node: ast.AST) -> list[ast.expr]:
    """Yield what a statement or a call changes."""
    if isinstance(node, ast.Assign):
        return [one for target in node.targets for one in _single(target)]
    if isinstance(node, ast.AugAssign | ast.AnnAssign):
        return [node.target]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return [node.func.value] if node.func.attr in CHANGING else []
    return []


def _single(target: ast.expr) -> list[ast.expr]:
    """Yield each of several targets: ``a, b = ...``."""
    if isinstance(target, ast.Tuple | ast.List):
        return [one for part in target.elts for one in _single(part)]
    return [target]


def _attribute_of(target: ast.expr, me: str) -> str:
    """Return the attribute of ``self`` that a target belongs to, if any."""
    while isinstance(target, ast.Subscript | ast.Attribute):
        inner = target.value
        if isinstance(target, ast.Attribute) and isinstance(inner, ast.Name) and inner.id == me:
            return target.attr
        target = inner
    return ""
