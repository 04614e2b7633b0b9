"""``tidegate audit``: what an operator and an auditor are told."""

import html
import json
import platform
import re
import shutil
import sqlite3
import sys
import tempfile
import time
from contextlib import closing, suppress
from pathlib import Path

import pytest
from dying_server import ROUNDS, DyingGrid, ServerDiesError, control, grid
from gated_apps import MODEL
from histories import DAY, Device, person
from nobody import as_nobody, can_be_nobody

from tidegate.cli import main
from tidegate.report import audit_page


def tell(capfd: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> tuple[str, str]:
    with pytest.raises(SystemExit) as stopped:
        main(["audit", *arguments])
    assert (stopped.value.code or 0) == code
    return capfd.readouterr()


def test_a_device_is_audited_and_a_page_says_what_that_proves(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "buffers"
    folder.mkdir()
    device = Device(folder, 3, now=time.time() - 7 * DAY)
    for _ in range(4):
        device.order()
    device.close()
    page = tmp_path / "audit.html"
    out, _ = tell(capfd, str(folder), "--page", str(page))
    assert "OK: the record is complete, and what is stored agrees with it" in out
    assert "waits for the next order or sweep" in out
    text = page.read_text("utf-8")
    assert f" UTC on {platform.node()}." in text
    assert "Deletions" not in text
    assert '<th scope="col">uses</th>' in text  # not samples
    assert "Expired samples were past their days when an order came, swept ones when" in text
    for words in ("What this proves", "What it does not prove", "not unlearning", "flash disk"):
        assert words in text
    told = json.loads(tell(capfd, str(folder), "--json")[0])
    (buffer,) = told["buffers"]
    assert buffer["right"]
    assert buffer["keep_at_most"] == "5d"
    assert buffer["rounds"] == 4
    (path,) = folder.glob("buffer.sqlite")
    with closing(sqlite3.connect(path)) as file:
        file.execute("UPDATE samples SET since = since + 1")
        file.execute("UPDATE contents SET content = content || x'00'")
        file.commit()
    out, _ = tell(capfd, str(path), "--page", str(page), code=1)
    assert "WRONG: " in out
    assert "1 contradicts itself" in page.read_text("utf-8")


def test_a_page_dates_deletions_and_names_the_command(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    device = Device(tmp_path, 3, now=1_790_000_000.0)  # 2026-09-21 14:13:20 UTC
    for _ in range(4):
        device.order()
    held = {person(number) for number in device.came}
    device.forget(min(held))
    device.now += 6 * DAY
    device.sweep()
    device.close()
    page = tmp_path / "audit.html"
    given = [str(tmp_path), "--page", str(page)]
    tell(capfd, *given)
    text = page.read_text("utf-8")
    assert f"tidegate audit {tmp_path} --page {page}" in text
    assert "2026-09-21 14:13:20" in text
    assert "2026-09-27 14:13:20" in text
    (buffer,) = json.loads(tell(capfd, str(tmp_path), "--json")[0])["buffers"]
    erased, swept = buffer["deletions"]
    assert (erased["at"], erased["event"]) == ("2026-09-21 14:13:20", "erased")
    assert (swept["at"], swept["event"]) == ("2026-09-27 14:13:20", "swept")
    gone = sum(count for name, count in buffer["counts"].items() if "erased" in name)
    assert erased["count"] == gone > 0
    monkeypatch.setattr(audit_page, "NEWEST", 1)
    tell(capfd, *given)
    text = page.read_text("utf-8")
    assert "1 of 2, --json lists all" in text
    assert "2026-09-21 14:13:20" not in text.split("How to check it again")[0]


def test_a_folder_is_audited_without_copies_below_it_and_each_file_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "buffers"
    (folder / "copies").mkdir(parents=True)
    device = Device(folder, 3)
    device.order()
    device.close()
    shutil.copy(folder / "buffer.sqlite", folder / "copies")
    (folder / "copies" / "damaged.sqlite").write_bytes(b"not a database")
    beside = [folder / f"buffer.sqlite-{kind}" for kind in ("wal", "shm")]  # as `buffer*` finds
    for path in beside:
        path.touch()
    given = [str(folder), str(folder / "buffer.sqlite"), *map(str, beside), "--json"]
    out, error = tell(capfd, *given)
    (buffer,) = json.loads(out)["buffers"]
    assert buffer["right"]
    assert json.loads(out)["left_out"] == [str(folder / "copies")]
    assert "which were left out" in error
    (folder / "emptied.sqlite").touch()
    told = json.loads(tell(capfd, str(folder), "--json", code=1)[0])
    assert (len(told["buffers"]), len(told["failed"])) == (1, 1)
    (folder / "emptied.sqlite").unlink()
    (folder / "buffer.sqlite").unlink()
    told = json.loads(tell(capfd, str(folder), "--json", code=1)[0])
    assert (len(told["buffers"]), len(told["failed"])) == (1, 1)
    (folder / "books.sqlite").write_bytes(b"a server's, and damaged")
    _, error = tell(capfd, str(folder), code=2)
    assert "books.sqlite is damaged" in error
    assert "delete" not in error


def test_without_jinja2_the_audit_is_printed_before_the_remedy(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    device = Device(tmp_path, 3)
    device.order()
    device.close()
    monkeypatch.setitem(sys.modules, "jinja2", None)  # as if it were not installed
    page = tmp_path / "audit.html"
    out, error = tell(capfd, str(tmp_path), "--page", str(page), code=2)
    assert "OK: the record is complete" in out
    assert "could not be written: pages need jinja2: pip install 'tidegate[report]'" in " ".join(
        error.split()
    )
    assert not page.exists()
    (tmp_path / "a.sqlite").write_bytes(b"not a database, certainly" * 100)
    out, error = tell(capfd, str(tmp_path), "--page", str(page), code=1)
    assert "OK: the record is complete" in out
    assert "pages need jinja2" in error
    assert "must end in .html" in tell(capfd, str(tmp_path), "--page", "page.pdf", code=2)[1]


@can_be_nobody
def test_a_copy_that_may_only_be_read_is_audited(capfd: pytest.CaptureFixture[str]) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        device = Device(folder, 3)
        device.order()
        device.close()
        (path,) = folder.glob("buffer.sqlite")
        for one in folder.iterdir():
            one.chmod(0o444)
        with as_nobody():
            out, _ = tell(capfd, str(path))
        assert "OK: the record is complete" in out
        path.chmod(0o400)
        with as_nobody():
            _, error = tell(capfd, str(folder), code=2)
        assert "run the command as the user of the SuperNode" in " ".join(error.split())
        assert "delete" not in error


def test_a_file_that_cannot_be_read_is_named_and_the_others_are_audited(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    device = Device(tmp_path, 3)
    device.order()
    device.close()
    (tmp_path / "a.sqlite").write_bytes(b"not a database, certainly" * 100)
    page = tmp_path / "audit.html"
    out, error = tell(capfd, str(tmp_path), "--page", str(page), code=1)
    assert "OK: the record is complete" in out
    assert "a.sqlite cannot be read as a database" in error
    assert 'class="verdict red"' in page.read_text("utf-8")
    assert "Nothing is wrong" not in page.read_text("utf-8")


@pytest.mark.long
def test_devices_of_a_run_are_compared_with_its_books(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    with suppress(ServerDiesError):
        control("tide", run).start(grid(DyingGrid), MODEL, ROUNDS)
    old = Path(shutil.copytree(run / "buffers", tmp_path / "old"))
    out, _ = tell(capfd, str(run / "buffers"), "--against", str(run))
    assert tell(capfd, str(run))[0] == out  # a run that has its buffers beside its books
    assert re.search(r"(\d+) buffers: \1 OK\n$", out)
    assert out.count("and so do the server's books") == 3
    control("tide", run).start(grid(), MODEL, ROUNDS)
    tell(capfd, str(run / "buffers"), "--against", str(run))
    tell(capfd, str(old))
    out, _ = tell(capfd, str(old), "--against", str(run), code=1)
    assert out.count("it is an older copy") == 3
    one, page = tmp_path / "one.sqlite", tmp_path / "audit.html"
    shutil.copy(run / "buffers" / "clients.sqlite", one)
    with closing(sqlite3.connect(one)) as file:
        file.execute(
            "DELETE FROM contents WHERE number IN (SELECT number FROM samples WHERE client > 1)"
        )
        file.execute("DELETE FROM samples WHERE client > 1")
        file.execute("DELETE FROM clients WHERE number > 1")
        file.commit()
    out, _ = tell(capfd, str(one), "--against", str(run), "--page", str(page))
    assert "The server's books know these clients, too" in out
    shown = html.unescape(page.read_text("utf-8"))
    assert "2 clients in the server's books were not audited." in shown
    assert 'class="verdict yellow"' in shown
    damaged = Path(shutil.copy(one, tmp_path / "damaged.sqlite"))
    damaged.write_bytes(b"not a database" * 100)
    tell(capfd, str(one), str(damaged), "--against", str(run), "--page", str(page), code=1)
    shown = html.unescape(page.read_text("utf-8"))
    assert "NOT READ:" in shown
    assert "NOT AUDITED:</strong> 2 clients" in shown
    assert 'class="verdict red"' in shown


@pytest.mark.long
def test_a_buffer_of_another_run_is_not_compared_and_is_not_wrong(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run, page = tmp_path / "run", tmp_path / "audit.html"
    control("tide", run).start(grid(), MODEL, ROUNDS)
    device = Device(run / "buffers", 3)
    device.order()
    device.close()
    told = [str(run / "buffers"), "--against", str(run)]
    out, _ = tell(capfd, *told, "--page", str(page))
    assert out.count("and so do the server's books") == 3
    assert out.count("not compared: of another run") == 1
    assert "not compared: of another run" in page.read_text("utf-8")
    found = json.loads(tell(capfd, *told, "--json")[0])["buffers"]
    assert all(one["right"] for one in found)
    apart = [one for one in found if one["compared_up_to_round"] is None]
    assert [one["not_covered"].split(":")[0] for one in apart] == ["not compared"]
    alone = tmp_path / "alone"
    alone.mkdir()
    shutil.copy(run / "buffers" / "buffer.sqlite", alone)
    _, error = tell(capfd, str(alone), "--against", str(run), code=2)
    assert "none of the buffers is of that run" in " ".join(error.split())


@pytest.mark.long
def test_books_that_end_before_the_record_are_said_to(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run, page = tmp_path / "run", tmp_path / "audit.html"
    with suppress(ServerDiesError):
        control("tide", run).start(grid(DyingGrid), MODEL, ROUNDS)
    older = Path(shutil.copytree(run, tmp_path / "older"))
    control("tide", run).start(grid(), MODEL, ROUNDS)
    told = [str(run / "buffers"), "--against", str(older)]
    out, _ = tell(capfd, *told, "--page", str(page))
    found = json.loads(tell(capfd, *told, "--json")[0])["buffers"]
    for one in found:
        last = one["compared_up_to_round"]
        assert 0 < last < one["rounds"] == ROUNDS
        words = f"compared up to round {last}; what came later is not covered"
        assert one["not_covered"] == words
        assert words in out
        assert f"{one['client']} in run {one['run']}: {words}" in page.read_text("utf-8")
        assert f"so do the server's books up to round {last}\n" in out
    out, _ = tell(capfd, str(run / "buffers"), "--against", str(run))
    assert "not covered" not in out
