"""Short drills on the shared deployment; scripts/chaos is the long one."""

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from books import discrepancies, rows
from breakable import Disk, can_mount
from breaker import KINDS, Fault, schedule
from chaos import Drill
from fleet import CUT_NODE, DISK_NODE, Fleet
from flwr.app import ArrayRecord
from flwr.serverapp.strategy import FedAvg
from gated_apps import MODEL, gated_app
from undisturbed import undisturbed

from tidegate.errors import ConfigurationError
from tidegate.flower import AdmissionControl, LocalGrid

needs_disk = pytest.mark.skipif(not can_mount(), reason="only root can mount a disk that is full")


@pytest.mark.deployment
@pytest.mark.share(800)  # a node that was killed is let in again after a minute
def test_what_is_killed_stopped_cut_or_full_loses_no_decision_and_no_money(
    fleet: Fleet, tmp_path: Path
) -> None:
    """Until round 2 the run is the one that nothing disturbs, and in round 3 everybody is missed.

    The server app dies while the orders of round 2 are out, and a node stops for some seconds;
    nobody is given up. Then one node is killed between its commit and its reply, the disk of
    another is full and the network of the third is cut, and then the SuperLink is killed.
    """
    faults = [
        # Two seconds later all orders are out; nodes wait for the rest of one for 45 s.
        Fault("server app killed", after_round=1, delay=2.0),
        Fault("node stopped", CUT_NODE, after_round=1, delay=2.0, seconds=5.0),
        Fault("node killed", 0, after_round=2, note="client"),
        Fault("network cut", CUT_NODE, after_round=2, until_missed=1),
        Fault("SuperLink killed", after_round=3),
    ]
    if fleet.disk is not None:
        faults.append(Fault("disk full", DISK_NODE, after_round=2, until_missed=1))
    pause = {"policy": "tide", "rough-round": 3, "pause-client": 0, "pause-round": 3}
    drill = Drill(fleet, tmp_path / "drill", faults, 4, last_rounds=1, tell=print, run_config=pause)
    drill.play(380)
    assert drill.reconciled() == []
    played, files = rows(drill.folder), drill.client_files()
    (tmp_path / "here").mkdir()
    whole = undisturbed(tmp_path / "here" / "drill", 4, "tide")
    assert played[:2] == whole.rows[:2]
    for name, own in files.items():
        assert own["answers"][:2] == whole.files[name]["answers"][:2]  # orders and receipts
    assert [row["answered"] for row in played[2:]] == [0 if fleet.disk else 1, 3]
    # It had paid before it was killed, and its file was there when it came back.
    assert files["partition-0"]["answers"][:3] == whole.files["partition-0"]["answers"][:3]
    assert len(files["partition-0"]["answers"]) == 4
    check_faults(drill, faults)
    _, second, third = drill.supervisor.run_ids
    assert fleet.finished(third) == "finished:completed", fleet.log(third)
    assert "resuming run drill after round 1" in fleet.log(second)
    for corrupt, word in corruptions(files):
        assert any(word in one for one in discrepancies(drill.folder, corrupt)), word


def check_faults(drill: Drill, faults: list[Fault]) -> None:
    """All came, all are over, and who was away until it was missed was missed."""
    fleet = drill.fleet
    assert len(drill.happened) == len(faults)
    assert all(one.recovery for one in drill.happened)
    assert all(one.missed for one in drill.happened if one.fault.until_missed)
    assert len(drill.supervisor.run_ids) == 3  # once, and again after each kill at the server
    assert "Connection attempt failed" in fleet.output(f"partition-{CUT_NODE}")
    if fleet.disk is not None:
        told = fleet.output(f"partition-{DISK_NODE}")
        assert "disk I/O error" in told or "disk is full" in told


@pytest.mark.full
@pytest.mark.deployment
def test_a_run_survives_kills_stops_a_full_disk_and_a_cut_network(
    fleet: Fleet, tmp_path: Path
) -> None:
    faults = [
        Fault("server app killed", after_round=1, delay=2.0),
        Fault("node stopped", 0, after_round=2, until_missed=1),
        Fault("network cut", CUT_NODE, after_round=2, until_missed=1),
        Fault("SuperLink killed", after_round=3),
    ]
    if fleet.disk is not None:
        faults.insert(0, Fault("disk full", DISK_NODE, after_round=2, until_missed=1))
    drill = Drill(fleet, tmp_path / "chaos", faults, 6, timeout=10, tell=print)
    drill.play(600)
    assert drill.reconciled() == []
    assert len(rows(drill.folder)) == 6
    check_faults(drill, faults)


def corruptions(files: dict[str, dict[str, Any]]) -> Iterator[tuple[dict[str, Any], str]]:
    """Books that are wrong in one place, and what must be said of each."""
    for figure, wrong, word in (
        ("spent", 1e6, "spent"),
        ("admitted", 10**6, "admitted"),
        ("last_round", 99, "last_round"),
        ("cursor", "1000000", "stream"),
        ("stored", 11, "stored"),
        ("buffer_capacity", 0, "at most"),
    ):
        corrupt = deepcopy(files)
        corrupt["partition-0"][figure] = wrong
        yield corrupt, word
    corrupt = deepcopy(files)
    corrupt["partition-0"]["answers"].pop(0)
    yield corrupt, "price x bought"
    corrupt = deepcopy(files)
    del corrupt["partition-0"]
    yield corrupt, "with an account"


def test_the_seed_decides_the_faults() -> None:
    one = schedule(1, 20, 30)
    assert one == schedule(1, 20, 30) != schedule(2, 20, 30)
    assert {fault.kind for fault in one} == set(KINDS)
    assert all(1 <= fault.after_round <= 20 for fault in one)
    assert "disk full" not in {fault.kind for fault in schedule(1, 20, 30, disk=False)}
    assert len(schedule(1, 20, 4)) == 4


@needs_disk
@pytest.mark.process
def test_a_server_with_a_full_disk_says_so_in_a_line_and_goes_on_when_it_is_freed(
    tmp_path: Path,
) -> None:
    """Full when the run begins, and full in its third round."""
    folder = tmp_path / "disk" / "run"

    def fills_in_round_three(now: int, arrays: ArrayRecord) -> None:
        if now == 2:
            disk.fill()

    def start(**more: Any) -> AdmissionControl:
        strategy = AdmissionControl(
            FedAvg(fraction_evaluate=0.0, min_available_nodes=1, min_train_nodes=1),
            "tide",
            budget=33.0,
            prices=3.0,
            folder=folder,
        )
        nodes: list[dict[str, Any]] = [
            {"partition-id": 0, "tidegate-folder": f"{tmp_path}/buffers"}
        ]
        strategy.start(LocalGrid(gated_app(), nodes), MODEL, 4, **more)
        return strategy

    with Disk(tmp_path / "disk", kilobytes=2000) as disk:
        for more in ({}, {"evaluate_fn": fills_in_round_three}):
            if not more:
                disk.fill()
            with pytest.raises(ConfigurationError, match="free disk space") as full:
                start(**more)
            assert str(folder) in str(full.value)
            disk.free()
        assert [row.answered for row in start().rounds] == [1, 1, 1, 1]
