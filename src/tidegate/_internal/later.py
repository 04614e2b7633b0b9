"""Packages whose parts are imported only when somebody asks for them."""

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def imported_later(package: str, homes: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """Return a package's ``__getattr__``: a name's module is imported when the name is first used.

    Args:
        package: the package's ``__name__``.
        homes: the package's public names, by the module that each is in.
    """
    home_of = {name: module for module, names in homes.items() for name in names}

    def look_up(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(home_of[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return look_up
