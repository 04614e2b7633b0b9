"""``tidegate sweep``: what a device that nobody asks has held for too long is deleted."""

import json
import random
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest
from histories import DAY, Device, found

from tidegate._internal import sqlite_file
from tidegate.cli import main
from tidegate.client.device_file import DeviceFile
from tidegate.client.store import Store
from tidegate.integrations.mqtt import Spool


def tell(capfd: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> tuple[str, str]:
    with pytest.raises(SystemExit) as stopped:
        main(["buffers", *arguments, "--sweep"])
    assert (stopped.value.code or 0) == code
    return capfd.readouterr()


def kind_of(number: int) -> tuple[str, bool]:
    """Of a generated device: how it buys, and whether it has a spool."""
    draw = random.Random(number)  # noqa: S311
    return draw.choice(["plain", "selection", "supplier", "both"]), draw.random() < 0.4


def idle(folder: Path, *, days: float) -> Device:
    """A device with a full buffer that was asked last some days ago."""
    number = next(n for n in range(99) if kind_of(n) == ("plain", False))
    device = Device(folder, number, keep=30, now=time.time() - days * DAY)
    while len(device.came) < 5:
        device.order()
    return device


def test_samples_past_their_limit_are_deleted_and_counted(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    device = idle(tmp_path, days=31)
    held = len(found(tmp_path, device.came))
    assert held > 0
    out, _ = tell(capfd, str(tmp_path), "--json")
    (swept,) = json.loads(out)["swept"]
    assert (swept["deleted"], swept["held"], swept["kind"]) == (held, 0, "buffer")
    assert found(tmp_path, device.came) == []
    assert "0 deleted in 1 file" in tell(capfd, str(tmp_path))[0]


def test_what_is_not_over_stays(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    device = idle(tmp_path, days=29)
    held = found(tmp_path, device.came)
    assert "0 deleted in 1 file" in tell(capfd, str(tmp_path))[0]
    assert found(tmp_path, device.came) == held


def test_a_buffer_without_a_limit_is_told(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    idle(tmp_path, days=29)
    (file,) = tmp_path.glob("*.sqlite")
    assert "no limit is set" not in tell(capfd, str(tmp_path))[0]
    with DeviceFile(file) as opened:
        for store in Store.of_each(opened):
            store.keep_at_most(0)
    assert "held; no limit is set (ClientGate(keep_at_most=...))" in tell(capfd, str(tmp_path))[0]


def test_content_that_is_still_there_because_of_a_reader_is_told(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_file, "BUSY_SECONDS", 0.05)
    device = idle(tmp_path, days=31)
    held = found(tmp_path, device.came)
    reader = sqlite3.connect(tmp_path / "buffer.sqlite", isolation_level=None)
    with closing(reader):
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM samples").fetchall()
        _, error = tell(capfd, str(tmp_path), code=1)
        assert "log still has deleted content; end that program" in error
        assert found(tmp_path, device.came) == held
    tell(capfd, str(tmp_path))
    assert found(tmp_path, device.came) == []


def test_a_damaged_spool_is_named_and_the_others_are_swept(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "0.sqlite"
    Spool(path).close()
    with closing(sqlite3.connect(path)) as file:
        of = "SELECT rootpage FROM sqlite_master WHERE name = 'messages'"
        ((page,),) = file.execute(of).fetchall()
        ((size,),) = file.execute("PRAGMA page_size").fetchall()
    data = bytearray(path.read_bytes())
    data[(page - 1) * size : (page - 1) * size + 64] = b"\xff" * 64
    path.write_bytes(data)
    device = idle(tmp_path, days=31)
    _, error = tell(capfd, str(tmp_path), code=1)
    assert "0.sqlite was not swept (database disk image is malformed)" in error
    assert found(tmp_path, device.came) == []
