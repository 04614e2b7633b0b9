"""Labels that come rounds later on a real deployment, with a killed node and a killed server."""

import json
import math
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from books import client_files, discrepancies, rows
from deployment import Deployment, wait_for
from undisturbed import FAULTY

ROUNDS = 30
NODES = 2
KILLED_IN = 8
BUDGET = 16.5


def check_bill(bill: dict[str, dict[str, Any]], own: dict[str, Any]) -> None:
    """What the supplier charged against what its client has in its file."""
    ended = {kind: [one["price"] for one in bill.values() if one["ended"] == kind]
             for kind in ("", "delivered", "refunded", "lost")}  # fmt: skip
    assert len(ended["delivered"]) == own["admitted"]
    assert len(ended["refunded"]) + len(ended["lost"]) == own["refused"]
    assert len(ended[""]) == own["bought"] - own["admitted"] - own["refused"]
    assert math.isclose(math.fsum(ended["refunded"]), own["refunded"])
    assert math.isclose(math.fsum(one["price"] for one in bill.values()), own["spent"])


@pytest.mark.full
@pytest.mark.deployment
def test_books_agree_where_labels_come_late_and_a_node_and_the_server_are_killed(
    tmp_path: Path,
) -> None:
    run, name = tmp_path / "run", "late"
    config = {
        "num-server-rounds": ROUNDS, "policy": "tide", "run": name, "folder": str(run),
        "signals": str(tmp_path), "late": True, "await-nodes": NODES,
    }  # fmt: skip
    pauses = {"pause-client": 1, "pause-round": KILLED_IN, "pause-server": ROUNDS // 2}
    (tmp_path / "link").mkdir()
    database = "--database", str(tmp_path / "superlink.db")
    with Deployment(tmp_path / "link", *database) as deployment:
        deployment.start_nodes(NODES)
        deployment.run(FAULTY, {**config, **pauses})
        noted = wait_for(lambda: note(tmp_path / "client"), "the client's pause in its round", 900)
        os.killpg(deployment.nodes[1].pid, signal.SIGKILL)
        deployment.nodes[1].wait()
        gone = Path("/proc") / str(noted)
        wait_for(lambda: not gone.exists() or None, "the end of its ClientApp, too")
        wait_for(lambda: len(rows(run)) >= KILLED_IN or None, "a round without it", 900)
        assert rows(run)[KILLED_IN - 1]["answered"] == NODES - 1
        deployment.restart_node(1, NODES)
        noted = wait_for(lambda: note(tmp_path / "server"), "the server's pause", 1800)
        os.kill(noted, signal.SIGKILL)
        run_id = deployment.run(FAULTY, config)
        assert deployment.finished(run_id, 1800) == "finished:completed", deployment.log(run_id)
        files = client_files(name, *(deployment.buffers(number) for number in range(NODES)))
    played = rows(run)
    assert len(played) == ROUNDS
    assert discrepancies(run, files) == []
    for number in range(NODES):
        bill = json.loads((tmp_path / f"bill-{number}.json").read_text())["bill"]
        check_bill(bill, files[f"partition-{number}"])
    spent = 0.0
    for now, row in enumerate(played, start=1):
        spent += row["spent"]
        assert spent + row["exposure"] <= BUDGET * now + 1e-9
    own = files.values()
    print(
        f"{ROUNDS} rounds: {sum(one['admitted'] for one in own)} came, "
        f"{sum(one['refused'] for one in own)} refused, "
        f"{sum(one['bought'] - one['admitted'] - one['refused'] for one in own)} under way; "
        f"{sum(one['spent'] for one in own):.2f} committed, "
        f"{sum(one['refunded'] for one in own):.2f} back"
    )


def note(path: Path) -> int | None:
    """A process that has left its number; none while it is being written."""
    text = path.read_text() if path.exists() else ""
    return int(text) if text else None
