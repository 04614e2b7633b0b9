"""A real SuperNode with 5,000 images of 150 kB, killed in the first fill and in training."""

import os
import signal
from pathlib import Path

import pytest
from books import client_files, discrepancies, rows
from check_size import at_size
from deployment import Deployment, wait_for

LARGE = Path(__file__).parent.parent / "helpers" / "large_app"
IMAGES = at_size(300, 5000)
ROUNDS = 7
IN_A_BATCH = 8_000_000 // 150_528 + 1
"""Samples that are written down together, and so may be paid for again after a kill."""


def kill_node(deployment: Deployment, run: Path) -> None:
    """With its ClientApp; it comes back when the server no longer waits for its reply."""
    played = len(rows(run))
    os.killpg(deployment.nodes[0].pid, signal.SIGKILL)
    deployment.nodes[0].wait()
    wait_for(lambda: len(rows(run)) > played or None, "a round without it", 900)
    deployment.restart_node(0, 1)


@pytest.mark.full
@pytest.mark.deployment
def test_a_node_with_thousands_of_images_is_killed_and_its_books_are_right(tmp_path: Path) -> None:
    config = {
        "images": IMAGES,
        "num-server-rounds": ROUNDS,
        "run": "large",
        "folder": str(tmp_path / "run"),
        "signals": str(tmp_path),
    }
    bill, trains = tmp_path / "paid", tmp_path / "trains"

    def paid() -> list[str]:
        return bill.read_text().splitlines() if bill.exists() else []

    (tmp_path / "link").mkdir()
    with Deployment(tmp_path / "link") as deployment:
        deployment.start_nodes(1)
        run_id = deployment.run(LARGE, config)
        wait_for(lambda: len(paid()) > IMAGES // 6 or None, "the middle of the first fill", 900)
        kill_node(deployment, tmp_path / "run")
        assert len(paid()) < IMAGES // 3
        wait_for(lambda: (trains.exists() and trains.read_text()) or None, "training", 900)
        kill_node(deployment, tmp_path / "run")
        assert deployment.finished(run_id, 1800) == "finished:completed", deployment.log(run_id)
        files = client_files("large", deployment.buffers(0))
    assert len(rows(tmp_path / "run")) == ROUNDS
    assert discrepancies(tmp_path / "run", files) == []
    (own,) = files.values()
    assert own["stored"] == IMAGES
    assert own["spent"] == own["admitted"] == len(set(paid()))
    assert len(paid()) - len(set(paid())) <= IN_A_BATCH
