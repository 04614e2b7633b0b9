"""The books of nodes and server side by side: equal, and each difference is told."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from recorded_run import recorded_run

from tidegate.rehearsal.books import compare_books, newest_round


@pytest.fixture
def run(tmp_path: Path) -> Path:
    recorded_run(tmp_path / "run")
    return tmp_path / "run"


def buffers(run: Path) -> dict[str, Path]:
    return {f"partition-{number}": run / f"buffers-{number}" for number in range(4)}


def test_books_of_a_run_are_equal(run: Path) -> None:
    both = compare_books(run, buffers(run))
    assert both.problems == []
    assert both.are_equal
    assert both.paid == pytest.approx(both.booked)
    assert both.paid == pytest.approx(both.by_rounds)
    assert both.paid > 0
    assert newest_round(run / "buffers-0")[1] == both.nodes[0].paid > 0
    assert newest_round(run) == (0, 0.0)


def pay_more(folder: Path, spent: float) -> None:
    (path,) = folder.glob("*.sqlite")
    with closing(sqlite3.connect(path)) as file:
        file.execute("UPDATE clients SET spent = ?", (spent,))
        file.commit()


def test_a_payment_that_the_server_does_not_know_is_told(run: Path) -> None:
    before = compare_books(run, buffers(run)).nodes[1].paid
    pay_more(run / "buffers-1", before + 5)
    both = compare_books(run, buffers(run))
    assert not both.are_equal
    assert any("partition-1: it paid" in wrong for wrong in both.problems)
    assert any("rounds spent" in wrong for wrong in both.problems)


def test_a_buffer_that_is_lost_and_a_stranger_are_told(run: Path) -> None:
    for path in (run / "buffers-2").iterdir():
        path.unlink()
    known = buffers(run)
    del known["partition-3"]
    told = compare_books(run, known).problems
    assert "partition-2: it is known to only one side" in told
    assert "partition-3: the server has an account for it, but it is not a node" in told
