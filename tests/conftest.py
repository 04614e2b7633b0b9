"""What holds for every test."""

import pytest


@pytest.fixture(autouse=True)
def _no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are as wide as where nobody looks, whatever terminal the tests are started from."""
    monkeypatch.delenv("COLUMNS", raising=False)
