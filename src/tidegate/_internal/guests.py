"""Guests that are found by name: what installed packages offer as entry points."""

from importlib.metadata import entry_points
from typing import Any

from tidegate._internal.suggestion import suggestion
from tidegate.errors import ConfigurationError


def guest(group: str, name: str) -> Any:
    """Return what a package offers by a name."""
    offered = entry_points(group=group)
    if name not in offered.names:
        known = ", ".join(sorted(offered.names)) or "none"
        hint = suggestion(name, offered.names, otherwise=f"there are {known}")
        raise ConfigurationError(
            f"no installed package offers {name!r} among its {group!r}; {hint}"
        )
    return offered[name].load()


def guests(group: str) -> list[Any]:
    """Return everything that packages offer for a purpose."""
    return [offered.load() for offered in entry_points(group=group)]
