"""What the checks themselves rely on."""

import sys

import pytest


@pytest.mark.no_cover
def test_no_cover_means_that_nothing_is_traced() -> None:
    """Else the long loops that are marked so take twice as long in `scripts/check`."""
    assert "coverage" not in type(sys.gettrace()).__module__
