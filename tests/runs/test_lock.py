"""Whether a server lives is told by its lock, at once, without taking it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tidegate.rehearsal.processes import wait_for
from tidegate.runs.journal import Journal, ServerMark, this_boot, this_machine
from tidegate.runs.lock import read_watched, server_process
from tidegate.runs.reader import read_run

SERVER = """
import signal, sys
from pathlib import Path
sys.path[:0] = {path!r}
import recorded_run
def pause(self, *given):
    print("asked", flush=True)
    signal.pause()
recorded_run.LocalGrid.send_and_receive = pause
recorded_run.recorded_run(Path({folder!r}))
"""
"""A server whose clients never answer."""


@contextmanager
def serving(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A server in a process of its own that waits for answers."""
    text = SERVER.format(path=sys.path, folder=str(folder))
    with subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True) as one:
        try:
            assert one.stdout is not None
            assert "asked\n" in iter(one.stdout.readline, "")
            yield one
        finally:
            one.kill()


def begun_here(folder: Path) -> bool | None:
    return (folder / "lock").exists() or None


@pytest.mark.process
def test_a_server_is_alive_until_it_is_killed_and_dead_at_once(tmp_path: Path) -> None:
    assert server_process(tmp_path) is None  # there is no lock yet
    with serving(tmp_path) as server:
        for _ in range(3):  # to look changes nothing
            assert server_process(tmp_path) == server.pid
        assert read_watched(tmp_path).is_served is True
        assert not read_watched(tmp_path).is_gone
        os.kill(server.pid, signal.SIGKILL)
        os.waitid(os.P_PID, server.pid, os.WEXITED | os.WNOWAIT)  # it stays a zombie
        view = read_watched(tmp_path)
        assert (view.is_served, view.is_gone) == (False, True)
        assert read_run(tmp_path).is_gone  # by its number alone, too
    assert read_watched(tmp_path).is_gone


@pytest.mark.process
def test_who_looks_keeps_no_server_out(tmp_path: Path) -> None:
    """A server that starts while somebody looks all the time gets the lock at its first try."""
    looker = (
        "import sys\nfrom pathlib import Path\nfrom tidegate.runs.lock import server_process\n"
        "print('looks', flush=True)\nwhile True: server_process(Path(sys.argv[1]))"
    )
    (tmp_path / "lock").touch()
    command = [sys.executable, "-c", looker, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as one:
        try:
            assert one.stdout is not None
            assert one.stdout.readline() == "looks\n"
            with serving(tmp_path) as server:
                assert server_process(tmp_path) == server.pid
        finally:
            one.kill()


@pytest.mark.process
def test_a_server_elsewhere_is_judged_by_what_can_be_known(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        wait_for(lambda: begun_here(tmp_path), "the lock")
        view = read_run(tmp_path)
        assert view.server == ServerMark(server.pid, this_machine(), this_boot())
        mark = view.server
        assert mark is not None
    container = replace(mark, machine="box pid:[1]")
    assert (container.is_near, container.is_numbered_here, container.is_gone) == (
        True,
        False,
        False,
    )
    other = replace(container, boot="another")
    assert (other.is_near, other.is_gone) == (False, False)
    restarted = replace(mark, pid=os.getpid(), boot="another")
    assert (restarted.is_near, restarted.is_gone) == (False, True)  # the machine was, since
    unknown = ServerMark(os.getpid(), this_machine(), "")  # the system names no boot
    assert (unknown.is_near, unknown.is_gone) == (True, False)


def test_a_server_that_takes_a_run_up_again_is_no_dead_one(tmp_path: Path) -> None:
    from recorded_run import recorded_run

    recorded_run(tmp_path, until=3)
    view = read_watched(tmp_path)
    assert (view.ending, view.is_served, view.is_gone) == ("failed", False, False)
    Journal(tmp_path).begin()  # this process lives, and has not the lock
    view = read_watched(tmp_path)
    assert (view.ending, view.is_served, view.is_gone) == ("", False, False)
