"""Silence for tests in which thousands of things are meant to go wrong."""

import logging
from collections.abc import Iterator


def quietly() -> Iterator[None]:
    """A fixture's function: warnings about all of it would only cost time."""
    before = {name: logging.getLogger(name).level for name in ("flwr", "tidegate")}
    for name in before:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    yield
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)
