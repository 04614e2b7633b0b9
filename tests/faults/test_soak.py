"""Long runs: nothing grows but the history, and the books stay right."""

from pathlib import Path

import pytest

from soak import CAPACITY, CLIENTS, soak
from tidegate.client import record, store


@pytest.mark.no_cover
@pytest.mark.long
def test_nothing_grows_once_old_answers_are_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "KEPT_ANSWERS", 20)
    monkeypatch.setattr(record, "KEPT_ENTRIES", 20)
    rows = soak(tmp_path, 200, "acdpp")
    assert [row.round_number for row in rows] == list(range(20, 201, 20))
    settled = rows[3:]
    assert max(row.buffer_file for row in settled) <= 1.1 * min(row.buffer_file for row in settled)
    assert max(row.checkpoint for row in settled) <= 1.2 * min(row.checkpoint for row in settled)
    assert not any(row.discrepancies for row in rows)


@pytest.mark.timing
@pytest.mark.full
@pytest.mark.parametrize("policy", ["tide", "acdpp"])
def test_ten_thousand_rounds(tmp_path: Path, policy: str) -> None:
    rows = soak(tmp_path, 10_000, policy)
    first, last = rows[1], rows[-1]
    assert not any(row.discrepancies for row in rows)
    assert last.buffer_file <= 1.25 * first.buffer_file  # pages that are not quite full
    assert last.checkpoint <= 1.2 * first.checkpoint
    assert last.memory - first.memory <= 5e-3 * 8000  # MB: what a round leaves in the history
    assert last.milliseconds <= 1.5 * first.milliseconds
    assert max(row.cost_debt for row in rows) <= 10 * CAPACITY * CLIENTS * 5.5
