"""A short drill on a real deployment; scripts/chaos is the long one."""

import errno
import socket
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from books import client_files, discrepancies, rows
from breakable import Disk, Proxy, can_mount
from breaker import CLIENTS, CUT_NODE, DISK_NODE, KINDS, Fault, schedule
from chaos import RUN, drilled

ROUNDS = 6
DISK = can_mount()
needs_disk = pytest.mark.skipif(not DISK, reason="only root can mount a disk that is full")


def test_a_run_survives_kills_stops_a_full_disk_and_a_cut_network(tmp_path: Path) -> None:
    faults = [
        # Two seconds later all orders are out; nodes wait for the rest of one for 45 s.
        Fault("server app killed", after_round=1, delay=2.0),
        Fault("node stopped", 0, after_round=2, until_missed=1),
        Fault("network cut", CUT_NODE, after_round=2, until_missed=1),
        Fault("SuperLink killed", after_round=3),
    ]
    if DISK:
        faults.insert(0, Fault("disk full", DISK_NODE, after_round=2, until_missed=1))
    with drilled(tmp_path, faults, ROUNDS, disk=DISK, timeout=10) as drill:
        drill.play(600)
        drill.fleet.stop()
        assert drill.reconciled() == []
        files = client_files(RUN, *map(drill.fleet.buffers, range(CLIENTS)))
    assert len(rows(drill.folder)) == ROUNDS
    assert len(drill.happened) == len(faults)
    assert all(one.recovery for one in drill.happened)
    assert all(one.missed for one in drill.happened if one.fault.node >= 0)
    assert drill.supervisor.launches == 3  # once, and again after each kill on the server's side
    assert "Connection attempt failed" in drill.fleet.output(f"node-{CUT_NODE}")
    if DISK:
        told = drill.fleet.output(f"node-{DISK_NODE}")
        assert "disk I/O error" in told or "disk is full" in told
    for corrupt, word in corruptions(files):
        assert any(word in one for one in discrepancies(drill.folder, corrupt)), word


def corruptions(files: dict[str, dict[str, Any]]) -> Iterator[tuple[dict[str, Any], str]]:
    """Books that are wrong in one place, and what must be said of each."""
    for figure, wrong, word in (
        ("total_spent", 1e6, "total_spent"),
        ("total_admitted", 10**6, "total_admitted"),
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
    yield corrupt, "price x admitted"
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


def test_a_cut_network_drops_refuses_and_heals() -> None:
    with socket.create_server(("127.0.0.1", 0)) as far, Proxy(far.getsockname()[1]) as proxy:

        def talk() -> tuple[socket.socket, socket.socket]:
            near = socket.create_connection(("127.0.0.1", proxy.port), timeout=5)
            other, _ = far.accept()
            near.sendall(b"hello")
            assert other.recv(5) == b"hello"
            return near, other

        near, other = talk()
        proxy.cut()
        assert proxy.dropped == 1
        with near, other, suppress(ConnectionResetError):
            assert near.recv(1) == b""
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", proxy.port), timeout=5)
        proxy.cut()
        proxy.heal()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", proxy.port), timeout=5)
        proxy.heal()
        for end in talk():
            end.close()


@needs_disk
def test_a_full_disk_takes_nothing_until_it_is_freed(tmp_path: Path) -> None:
    with Disk(tmp_path / "disk", kilobytes=64) as disk:
        disk.fill()
        with pytest.raises(OSError, match="No space") as full:
            (tmp_path / "disk" / "more").write_bytes(b"x")
        assert full.value.errno == errno.ENOSPC
        disk.free()
        (tmp_path / "disk" / "more").write_bytes(b"x")
    assert not (tmp_path / "disk" / "more").exists()
