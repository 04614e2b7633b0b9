"""A deployment on this machine in one command, a crash in it, and what is left afterwards."""

import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from check_size import at_size
from undisturbed import FAULTY

from tidegate.cli import main
from tidegate.rehearsal.processes import wait_for
from tidegate.runs.reader import read_run


def processes_of(folder: Path) -> list[int]:
    """What lives and was started for the rehearsal in a folder."""
    mark, found = f"FLWR_HOME={folder / 'home'}".encode(), []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (place / "environ").read_bytes().split(b"\0"):
                found.append(int(place.name))
        except OSError:  # somebody else's, or gone
            continue
    return found


def call(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stopped:
        main(["rehearse", *arguments])
    out, error = capsys.readouterr()
    return int(stopped.value.code or 0), out, error


@pytest.mark.deployment
@pytest.mark.share(at_size(240, 600))  # a node that was killed is let in again after a minute
def test_after_a_crash_in_mid_round_the_books_are_equal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "crash"
    asked = [str(FAULTY), "--nodes", "2", "--rounds", "2", "--kill", "--out", str(folder), "--json"]
    changes = ["train-seconds=1", "run=crash", f"signals={tmp_path}"]  # where the app leaves notes
    code, out, error = call([*asked, *(f"--set={one}" for one in changes)], capsys)
    told = json.loads(out)
    assert (code, told["problems"]) == (0, []), error
    assert told["books_are_equal"]
    assert told["books"]["paid"] == pytest.approx(told["books"]["booked"])
    assert told["books"]["by_rounds"] == pytest.approx(told["books"]["booked"])
    assert told["books"]["paid"] > 0
    (crash,) = [one for one in told["events"] if "SIGKILL in round 2: SuperNode" in one["what"]]
    paid, known = map(float, re.findall(r"\d+\.?\d*(?= so far|$)", crash["meaning"]))
    assert paid > known  # it had paid, and nobody knew
    assert sum("SIGKILL" in one["what"] for one in told["events"]) == 2
    assert told["refused_seconds"] > 1
    first, second = told["run_ids"]
    logs = {path.name for path in (folder / "logs").iterdir()}
    assert logs == {
        "superlink.log", "site-0.log", "site-1.log", f"run-{first}.log", f"run-{second}.log",
    }  # fmt: skip
    assert "resuming run crash after round 1" in (folder / f"logs/run-{second}.log").read_text()
    view = read_run(folder / "run")
    assert [one.name for one in view.clients] == ["site-0", "site-1"]
    assert (len(view.rounds), len(view.starts)) == (2, 2)
    assert all(row.answered == 2 for row in view.rounds)
    assert "flwr run faulty_app fleet" in (folder / "commands.txt").read_text()
    assert processes_of(folder) == []
    assert (folder / "keys/site-0").stat().st_mode & 0o077 == 0
    with pytest.raises(SystemExit) as audited:  # what it says is what the command says
        main(["audit", *map(str, (folder / "buffers").iterdir()), "--against", str(folder / "run")])
    assert not audited.value.code


@pytest.mark.deployment
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_everything_ends_with_the_command(tmp_path: Path, number: signal.Signals) -> None:
    folder = tmp_path / "stopped"
    command = [sys.executable, "-m", "tidegate", "rehearse", str(FAULTY), "--out", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as one:
        wait_for(lambda: (folder / "logs" / "superlink.log").exists() or None, "the SuperLink")
        wait_for(lambda: len(processes_of(folder)) > 0 or None, "its process")
        one.send_signal(number)
        _, error = one.communicate(timeout=120)
    assert one.returncode == 130
    assert error.decode() == (
        f"stopped; all processes have ended, and their files are in {folder}\n"
    )
    assert processes_of(folder) == []


@pytest.mark.full
@pytest.mark.deployment
def test_an_app_that_fails_is_told_with_the_end_of_its_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "failed"
    asked = [str(FAULTY), "--nodes", "1", "--out", str(folder), "--set", "policy=none"]
    code, out, _ = call(asked, capsys)
    assert code == 1
    assert "WRONG" in out
    assert "finished:failed" in out
    assert "policy" in out
    assert processes_of(folder) == []


@pytest.mark.full
@pytest.mark.deployment
def test_a_strategy_that_waits_for_more_nodes_than_there_are_ends_the_rehearsal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, app = tmp_path / "few", tmp_path / "app"
    with pytest.raises(SystemExit):
        main(["new", str(app)])  # FedAvg waits for two nodes by default
    capsys.readouterr()
    code, out, error = call([str(app), "--nodes", "1", "--out", str(folder), "--json"], capsys)
    told = json.loads(out)
    assert code == 1, error
    assert "waits for 2 nodes, and the rehearsal has 1: give --nodes 2 or more" in (
        " ".join(told["problems"])
    )
    assert "1 SuperNode is online: site-0" in [one["what"] for one in told["events"]]
    assert processes_of(folder) == []


def test_what_cannot_be_rehearsed_is_said_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    app, there = tmp_path / "app", tmp_path / "there"
    shutil.copytree(FAULTY, app)
    there.mkdir()
    (there / "file").touch()
    project = (app / "pyproject.toml").read_text("utf-8")
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "pyproject.toml").write_text(project.replace('folder = ""', "", 1))
    for arguments, words in (
        ([str(app), "--kill", "--rounds", "1"], "--kill needs 2 rounds or more"),
        ([str(app), "--out", str(there)], "already exists; give --out a new folder"),
        ([str(app), "--out", str(app / "new")], "is inside the app's own folder"),
        ([str(tmp_path / "bare")], "has no 'folder' in [tool.flwr.app.config]"),
        ([str(tmp_path / "none")], "there is no folder"),
        ([str(app), "--set", "polcy=x"], "did you mean"),
        ([str(app), "--set", "late=7"], "must be true or false"),
    ):
        code, _, error = call(arguments, capsys)
        assert code == 2, arguments
        assert words in error.replace("\n", " "), error
    assert not (tmp_path / "rehearsal").exists()
