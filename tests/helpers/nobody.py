"""Somebody else on the same machine."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

NOBODY = 65534
can_be_nobody = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")


@contextmanager
def as_nobody() -> Iterator[None]:
    """What is done within is done by a user who may not write here."""
    os.setegid(NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
