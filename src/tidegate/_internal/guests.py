"""Guests that a command finds by itself: what packages offer by an entry point."""

from importlib.metadata import entry_points
from typing import Any

from tidegate.errors import ConfigurationError


def guest(group: str, name: str) -> Any:
    """Return what a package offers by this name."""
    for offered in entry_points(group=group, name=name):
        return offered.load()
    raise ConfigurationError(
        f"no installed package offers {name!r} as an entry point of {group!r}; install the one "
        "that does, or Tidegate again"
    )


def guests(group: str) -> list[Any]:
    """Return everything that packages offer for a purpose."""
    return [offered.load() for offered in entry_points(group=group)]
