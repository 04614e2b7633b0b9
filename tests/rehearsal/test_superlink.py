"""What is left of a deployment when it is stopped."""

import subprocess
import sys
from pathlib import Path

import pytest

from tidegate.rehearsal.processes import wait_for
from tidegate.rehearsal.superlink import MARK, SuperLink

BUSY = """
import os, signal
for _ in range(8):
    if os.fork() == 0:
        os.setsid()
        signal.pause()
"""
"""Start processes in sessions of their own, as Flower does; they outlive their parent."""


@pytest.mark.process
def test_stop_ends_what_left_its_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = SuperLink(tmp_path, connection="insecure = true", options=[])
    monkeypatch.setenv(MARK, str(tmp_path))
    subprocess.run([sys.executable, "-c", BUSY], check=True, timeout=60)
    try:
        wait_for(lambda: len(link.processes()) == 8 or None, "eight processes")
    finally:
        left = link.stop()
    assert left == []


@pytest.mark.process
def test_stop_ends_what_starts_while_it_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = SuperLink(tmp_path, connection="insecure = true", options=[])
    first, second = (subprocess.Popen(["sleep", "600"]) for _ in range(2))
    looks = iter([[first.pid], [], [second.pid], [], [], []])
    monkeypatch.setattr(link, "processes", lambda: next(looks))
    monkeypatch.setattr(link, "owns", lambda process: True)
    try:
        link.stop()
        assert (first.wait(60), second.wait(60)) == (-9, -9)
    finally:
        first.kill()
        second.kill()
    assert list(looks) == []
