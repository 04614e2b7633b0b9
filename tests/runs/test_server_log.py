"""The log that stays with a run."""

import logging
from pathlib import Path

import pytest
from recorded_run import ALL, recorded_run

from tidegate.runs.server_log import LARGEST, LOG, last_lines, logged


def test_it_has_what_the_server_logged_and_why_it_stopped(tmp_path: Path) -> None:
    recorded_run(tmp_path, failing=ALL, until=4)
    text = (tmp_path / LOG).read_text("utf-8")
    assert "WARNING no client's model was used in round 3" in text
    assert last_lines(tmp_path, 1)[0].endswith("ERROR the server stops: ServerStopsError: ")
    assert "INFO round 2: 4 of 4 orders answered" in text
    assert "Final results" not in text  # Flower's own, without news
    assert len(last_lines(tmp_path, 3)) == 3
    assert not logging.getLogger("flwr").handlers[1:]  # Flower's own alone


def test_a_client_cannot_move_the_cursor(tmp_path: Path) -> None:
    with logged(tmp_path):
        logging.getLogger("tidegate").warning("\x1b[2Jsite-\t0")
    (line,) = last_lines(tmp_path, 5)
    assert line.endswith("WARNING  [2Jsite- 0")


def test_it_grows_to_a_limit_and_is_not_there_at_first(tmp_path: Path) -> None:
    assert last_lines(tmp_path, 5) == []
    with logged(tmp_path):
        for _ in range(25):
            logging.getLogger("flwr").warning("x" * (LARGEST // 10))
    sizes = [path.stat().st_size for path in tmp_path.iterdir()]
    assert len(sizes) == 2
    assert max(sizes) <= LARGEST


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
def test_what_ends_a_run_is_passed_on(tmp_path: Path, kind: type[BaseException]) -> None:
    with pytest.raises(kind), logged(tmp_path):
        raise kind("no price")
    told = last_lines(tmp_path, 1)
    reason = (
        "ValueError: no price" if kind is ValueError else "somebody interrupted the run (Ctrl-C)"
    )
    assert [line.partition("ERROR ")[2] for line in told] == [f"the server stops: {reason}"]
