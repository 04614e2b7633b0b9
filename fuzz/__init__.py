"""Fuzz targets: everything that reads bytes from outside, and what it may raise.

A target is a module with ``target(data)``, which returns quietly or raises what must never happen,
and ``seeds()``, inputs made from real records and files. ``scripts/fuzz`` drives them with atheris;
the tests replay seeds and some mutations of them without it.
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass

NAMES = {
    "records": "orders, receipts, addresses and introductions in a Flower message: WireError",
    "booking": "a ledger that is told anything: WireError, or what its orders allow",
    "fleet": "a server whose clients say anything: WireError for them, and rounds that go on",
    "checkpoint": "a server's checkpoint, one of its files damaged: ValueError, OSError",
    "state": "a simulation's saved state: ValueError, OSError",
    "buffer": "a client's buffer file: ValueError, OSError",
    "sample": "a stored sample: ValueError",
    "setting": "flags and files of the command line: ValueError, OSError",
    "experiment": "an experiment's TOML file: ValueError, OSError",
    "prices": "price laws and recorded prices: ValueError, OSError",
}
"""All targets, each a module of this package, and what each may raise."""


@dataclass(frozen=True)
class Target:
    """One parser under attack."""

    name: str
    run: Callable[[bytes], None]
    seeds: Callable[[], list[bytes]]


def load(name: str) -> Target:
    """A target by its name."""
    if name not in NAMES:
        raise ValueError(f"unknown target {name!r}; choose from {', '.join(NAMES)}")
    module = importlib.import_module(f"fuzz.{name}")
    return Target(name, module.target, module.seeds)
