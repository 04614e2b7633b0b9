"""Buffers of runs that are over: listed, and removed without a trace."""

import json
import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest
from late_supplier import LateSupplier

from tidegate.cli import main
from tidegate.client.buffer_files import find_buffers, remove_buffer
from tidegate.client.device_file import LARGE, store_path
from tidegate.client.gate import Gate
from tidegate.client.store import Store
from tidegate.client.streams import IndexedStream
from tidegate.client.sweeping import sweep
from tidegate.selection import Selection
from tidegate.wire import Address, Order

DAY = 24 * 3600.0
NAME = "patient-4711"


def fill(folder: Path, run: str, *, days: float) -> Path:
    """A buffer with samples that was last used some days ago."""
    folder.mkdir(parents=True, exist_ok=True)
    path = store_path(folder, run, "site-0")
    then = time.time() - days * DAY
    store = Store(path, run, "site-0", 50, clock=lambda: then)
    order = Order(run=run, round_number=1, price=1.0, retention_horizon=5, count=40)
    Gate(store, IndexedStream([NAME * 30] * 100)).apply(order, Address(run=run))
    store.close()
    return path


def tell(
    capfd: pytest.CaptureFixture[str], *arguments: str, code: int | None = None
) -> tuple[str, str]:
    with pytest.raises(SystemExit) as stopped:
        main(["buffers", *arguments])
    assert (stopped.value.code or None) == code
    return capfd.readouterr()


def test_buffers_are_listed_with_size_and_rest(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    old, new = fill(tmp_path, "old", days=40), fill(tmp_path, "new", days=2)
    told = json.loads(tell(capfd, str(tmp_path), "--json")[0])["buffers"]
    assert [(one["run"], one["client"], one["samples"]) for one in told] == [
        ("old", "site-0", 40),
        ("new", "site-0", 40),
    ]
    assert [one["size"] for one in told] == [old.stat().st_size, new.stat().st_size]
    shown, _ = tell(capfd, str(tmp_path))
    assert "2 buffers in" in shown
    assert "40.0" in shown
    again = json.loads(tell(capfd, str(tmp_path), "--json")[0])["buffers"]
    assert again == told  # looking is not using


def test_the_folder_of_this_user_is_the_default(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert f"no buffers in {tmp_path / 'tidegate'}" in tell(capfd)[0].replace("\n", "")
    fill(tmp_path / "tidegate", "mine", days=1)
    assert "mine" in tell(capfd)[0]


def test_only_what_rested_long_enough_is_removed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = fill(tmp_path, "old", days=40), fill(tmp_path, "new", days=2)
    wanted = (str(tmp_path), "--remove-unused", "30")
    shown, _ = tell(capfd, *wanted, "--dry-run")
    assert "old" in shown
    assert "new" not in shown.replace(str(tmp_path), "")
    assert old.exists()
    monkeypatch.setattr("typer.confirm", lambda *_, **__: False)
    tell(capfd, *wanted)
    assert old.exists()
    _, error = tell(capfd, *wanted, "--yes")
    assert "removed 1" in error
    assert not list(tmp_path.glob(f"{old.name}*"))
    assert new.exists()


def test_samples_are_overwritten_before_their_file_is_deleted(tmp_path: Path) -> None:
    path = fill(tmp_path, "old", days=40)
    assert NAME.encode() in path.read_bytes()
    with path.open("rb") as held:  # what is left on disk can be read from here
        (buffer,), _ = find_buffers(tmp_path)
        assert remove_buffer(buffer, time.time() - 30 * DAY)
        assert not path.exists()
        assert NAME.encode() not in held.read()
    assert not list(tmp_path.iterdir())


def test_a_buffer_that_a_process_has_open_or_used_again_stays(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = fill(tmp_path, "old", days=40)
    (buffer,), _ = find_buffers(tmp_path)
    store = Store(path, "old", "site-0", 50)
    _, error = tell(capfd, str(tmp_path), "--remove-unused", "30", "--yes")
    assert "is in use; kept it" in error
    assert len(store.samples()) == 40
    order = Order(run="old", round_number=2, price=1.0, retention_horizon=5, count=1)
    Gate(store, IndexedStream([NAME] * 100)).apply(order, Address(run="old"))
    store.close()
    assert not remove_buffer(buffer, time.time() - 30 * DAY)
    assert len(Store(path, "old", "site-0", 50).samples()) == 41


def test_a_sweep_is_no_use(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = fill(tmp_path, "old", days=40)
    with Store(path, "old", "site-0", 50) as store:
        store.keep_at_most(500 * 24 * 3600 * 1000)
    (swept,), _ = sweep(tmp_path)
    assert swept.held == 40
    assert "removed 1" in tell(capfd, str(tmp_path), "--remove-unused", "30", "--yes")[1]
    assert not path.exists()


def test_what_is_no_buffer_is_named_and_left_alone(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with closing(sqlite3.connect(tmp_path / "theirs.sqlite")) as other:
        other.execute("CREATE TABLE books (content)")
        other.commit()
    (tmp_path / "torn.sqlite").write_bytes(b"not a database, whatever it is called")
    for name in ("theirs.sqlite", "torn.sqlite"):
        os.utime(tmp_path / name, (0, 0))
    _, error = tell(capfd, str(tmp_path), "--remove-unused", "1", "--yes", code=1)
    assert "theirs.sqlite is not a buffer of Tidegate" in error
    assert "torn.sqlite cannot be read as a buffer" in error
    assert len(list(tmp_path.iterdir())) == 2
    (tmp_path / "torn.sqlite").unlink()  # which may have been a buffer, unlike the other
    tell(capfd, str(tmp_path), "--remove-unused", "1", "--yes")


def tear(path: Path) -> None:
    """Overwrite the page at which the samples' contents begin; the books can still be read."""
    with closing(sqlite3.connect(path)) as file:
        ((page,),) = file.execute("SELECT rootpage FROM sqlite_master WHERE name = 'contents'")
        ((size,),) = file.execute("PRAGMA page_size")
    with path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)


def test_one_damaged_file_does_not_keep_others_from_being_removed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    torn, whole = fill(tmp_path, "first", days=50), fill(tmp_path, "second", days=40)
    tear(torn)
    _, error = tell(capfd, str(tmp_path), "--remove-unused", "30", "--yes", code=1)
    assert f"{torn} cannot be removed (database disk image is malformed); check what" in error
    assert "removed 1" in error
    assert torn.exists()
    assert not whole.exists()


def test_json_names_files_that_cannot_be_read(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fill(tmp_path, "fine", days=1)
    (tmp_path / "torn.sqlite").write_bytes(b"not a database, whatever it is called")
    told = json.loads(tell(capfd, str(tmp_path), "--json")[0])
    assert [one["run"] for one in told["buffers"]] == ["fine"]
    (damaged,) = told["unreadable"]
    assert damaged["path"] == str(tmp_path / "torn.sqlite")
    assert damaged["reason"].startswith("cannot be read as a buffer (file is not a database")


def test_the_backlog_is_counted(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    store = Store(store_path(tmp_path, "r", "site-0"), "r", "site-0", 50)
    order = Order(run="r", round_number=1, price=1.0, retention_horizon=5, count=4)
    selection = Selection(candidates=25, backlog=100)
    Gate(store, IndexedStream(range(100)), selection=selection).apply(order, Address(run="r"))
    store.close()
    (told,) = json.loads(tell(capfd, str(tmp_path), "--json")[0])["buffers"]
    assert (told["samples"], told["candidates"]) == (4, 21)
    shown = tell(capfd, str(tmp_path))[0]
    assert "candidates" in shown
    assert "21" in shown


@pytest.mark.parametrize("length", [30, LARGE])  # in the database, or files of their own
def test_what_is_under_way_is_counted_with_its_bytes(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], length: int
) -> None:
    store = Store(store_path(tmp_path, "r", "site-0"), "r", "site-0", 50)
    order = Order(run="r", round_number=1, price=1.0, retention_horizon=5, count=3)
    supplier = LateSupplier(0, longest_delay=0)
    gate = Gate(store, IndexedStream(["x" * length] * 100), supplier=supplier)
    gate.apply(order, Address(run="r"))
    under_way = len(store.held("under way"))
    store.close()
    (told,) = json.loads(tell(capfd, str(tmp_path), "--json")[0])["buffers"]
    assert (told["samples"], told["under_way"]) == (0, under_way) == (0, 3)
    assert 3 * length <= told["under_way_size"] < 3 * (length + 50)
    assert told["under_way_size"] < told["size"]
    shown = tell(capfd, str(tmp_path))[0]
    assert "3 (3.0 MB)" in shown or length < LARGE
