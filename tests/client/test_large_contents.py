"""Large contents are files beside the buffer, with the promises of its rows."""

import os
import sqlite3
import stat
from pathlib import Path

import numpy as np
import pytest

from tidegate.client import device_file
from tidegate.client.auditing import audit_file
from tidegate.client.buffer_files import find_buffers, remove_buffer
from tidegate.client.device_file import contents_folder
from tidegate.client.forgotten import Forgotten
from tidegate.client.gate import Gate
from tidegate.client.store import Store
from tidegate.client.streams import IndexedStream
from tidegate.client.sweeping import sweep, sweep_file
from tidegate.errors import DamagedFileError, SampleGoneError
from tidegate.wire import Order

PEOPLE = ["ann", "bob", "cid"]


@pytest.fixture(autouse=True)
def _small_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_file, "LARGE", 2000)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "b.sqlite"


def scan(number: int) -> tuple[str, bytes]:
    """One in two is large; each begins with whom it is about."""
    name = PEOPLE[number % 3]
    return name, f"{name} {number} ".encode() * (5 if number % 2 else 500)


def gate_of(path: Path, capacity: int = 6) -> Gate:
    stream = IndexedStream([scan(number) for number in range(100)])
    store = Store(path, "r", "site", capacity)
    return Gate(store, stream, subject=lambda sample: sample[0])


def apply(gate: Gate, round_number: int, count: int, horizon: int = 1000) -> None:
    gate.apply(
        Order(run="r", round_number=round_number, price=1.0, retention_horizon=horizon, count=count)
    )


def files(path: Path) -> list[Path]:
    return sorted(contents_folder(path).iterdir())


def test_large_contents_are_files_and_come_back(path: Path) -> None:
    gate = gate_of(path)
    apply(gate, 1, 6)
    assert list(gate.samples()) == [scan(number) for number in range(6)]
    assert len(files(path)) == 3
    for file in files(path):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(contents_folder(path).stat().st_mode) == 0o700
    assert path.stat().st_size < 200_000
    ((buffer,), _) = find_buffers(path.parent)
    assert buffer.size > sum(file.stat().st_size for file in files(path))


@pytest.mark.parametrize("end", ["replaced", "forgotten", "removed"])
def test_a_file_is_overwritten_when_its_sample_leaves(path: Path, end: str) -> None:
    gate = gate_of(path)
    apply(gate, 1, 6)
    links = []
    for file in files(path):  # another name of the same bytes on the disk
        links.append(path.parent / f"link {file.name}")
        os.link(file, links[-1])
    if end == "replaced":
        apply(gate, 2, 5, horizon=1)
        assert len(files(path)) == 3
        assert list(gate.samples()) == [scan(number) for number in range(6, 11)]
    elif end == "forgotten":
        for name in PEOPLE:
            Forgotten(path.parent).add(name)
        sweep_file(path)
        assert files(path) == []
    else:
        gate._store.close()
        ((buffer,), _) = find_buffers(path.parent)
        assert remove_buffer(buffer, buffer.used_at)
        assert not contents_folder(path).exists()
    for link in links:
        content = link.read_bytes()
        assert content == bytes(len(content))
        assert content


def test_what_a_crash_leaves_goes_when_the_buffer_is_opened(path: Path) -> None:
    gate = gate_of(path)
    apply(gate, 1, 6)
    stray = contents_folder(path) / ("0" * 32)
    stray.write_bytes(b"of a change that was never made")
    os.link(stray, path.parent / "link")
    with Store(path, "r", "site", 6) as store:
        assert list(store.samples()) == [scan(number) for number in range(6)]
    assert not stray.exists()
    assert len(files(path)) == 3
    assert set((path.parent / "link").read_bytes()) == {0}


def test_a_change_that_is_not_made_leaves_no_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = gate_of(path)
    apply(gate, 1, 2)
    before = files(path)
    with monkeypatch.context() as patch:
        patch.setattr("tidegate.client.store.Change.answer", _raise)
        with pytest.raises(OSError, match="no room"):
            apply(gate, 2, 4)
    assert len(files(path)) > len(before)
    apply(gate, 2, 4)
    assert len(files(path)) == 3
    assert list(gate.samples()) == [scan(number) for number in range(6)]


def _raise(*_: object) -> None:
    raise OSError("no room")


def test_a_file_that_is_missing_or_changed_is_named(path: Path) -> None:
    gate = gate_of(path)
    apply(gate, 1, 6)
    assert audit_file(path)[0].is_right
    first = files(path)[0]
    content = first.read_bytes()
    first.write_bytes(content[:-1] + b"?")
    assert "1 of 6 samples are not as they were stored" in audit_file(path)[0].problems
    first.unlink()
    assert not audit_file(path)[0].is_right
    with pytest.raises(DamagedFileError, match=f"{first.name} is missing"):
        list(gate.samples())


def test_names_and_links_of_somebody_else_lead_nowhere(path: Path) -> None:
    gate = gate_of(path)
    apply(gate, 1, 6)
    gate._store.close()
    treasure = path.parent / "treasure"
    treasure.write_text("of somebody else")
    (contents_folder(path) / "link").symlink_to(treasure)
    with Store(path, "r", "site", 6):
        assert not (contents_folder(path) / "link").is_symlink()
    with sqlite3.connect(path) as file:
        file.execute("UPDATE contents SET file = ? WHERE file != ''", (str(treasure),))
    file.close()
    assert not audit_file(path)[0].is_right
    with (
        Store(path, "r", "site", 6) as store,
        pytest.raises(DamagedFileError, match="as a content's file"),
    ):
        list(store.samples())
    assert treasure.read_text() == "of somebody else"


def test_what_cannot_be_overwritten_waits_and_stops_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    gate = gate_of(path)
    apply(gate, 1, 6)
    with monkeypatch.context() as patch:
        patch.setattr(device_file, "overwrite", _raise)
        apply(gate, 2, 5, horizon=1)
        assert "are not overwritten yet" in caplog.text
        with pytest.raises(DamagedFileError):
            sweep_file(path)
    assert len(files(path)) == 6
    apply(gate, 3, 1)
    assert len(files(path)) == 3


def test_a_batch_of_which_a_file_is_deleted_meanwhile_is_no_damage(path: Path) -> None:
    gate = gate_of(path)
    apply(gate, 1, 6)
    samples = gate.samples()
    with Store(path, "r", "site", 6) as other:
        reads = other.file.contents.read(list(other.numbers("stored")))
        next(reads)
        apply(gate, 2, 0, horizon=1)
        assert len(list(reads)) < 5
    with pytest.raises(SampleGoneError):
        samples[0]


def test_contents_without_their_buffer_are_named(path: Path) -> None:
    gate = gate_of(path)
    apply(gate, 1, 6)
    gate._store.close()
    path.unlink()
    _, wrong = sweep(path.parent)
    assert "holds large contents of a buffer that is gone" in str(wrong[0])


def test_a_sample_may_be_larger_than_a_row(path: Path) -> None:
    volume = np.zeros(2**20, np.uint8)
    with Store(path, "r", "site", 2) as store:
        store.file._connection.setlimit(0, 500_000)  # SQLITE_LIMIT_LENGTH: 1 GB elsewhere
        gate = Gate(store, IndexedStream([volume, volume + 1]))
        apply(gate, 1, 2)
        assert [int(sample[-1]) for sample in gate.samples()] == [0, 1]
