"""The record of a buffer: whoever changes it, or what is stored, is noticed."""

import json
import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from check_size import at_size
from histories import CLIENT, DAY, Device

from tidegate.client import sealing
from tidegate.client.auditing import Audit, audit_file, compare
from tidegate.client.gate import Gate
from tidegate.client.record import FIRST, Entry, Replay, next_digest
from tidegate.client.sqlite_store import SqliteStore
from tidegate.client.streams import IndexedStream
from tidegate.errors import DamagedFileError
from tidegate.selection import Selection
from tidegate.wire import Order

HISTORIES = at_size(4, 50)
TAMPERINGS = at_size(200, 12_000)

Tamper = Callable[[sqlite3.Connection, random.Random, sqlite3.Connection], None]


def audited(folder: Path, device: Device) -> Audit:
    return audit_file(folder / "buffer.sqlite", device.clock)


def against(audit: Audit, device: Device) -> list[str]:
    """What the server's books add."""
    before = len(audit.problems)
    account = json.loads(json.dumps(asdict(device.ledger.account(CLIENT))))
    compare(audit, account)
    return audit.problems[before:]


def any_row(file: sqlite3.Connection, draw: random.Random, table: str, column: str) -> Any:
    rows = [one for (one,) in file.execute(f"SELECT {column} FROM {table}")]  # noqa: S608
    return draw.choice(rows) if rows else None


def remove_entry(file: sqlite3.Connection, draw: random.Random, _: object) -> None:
    number = any_row(file, draw, "record", "number")
    file.execute("DELETE FROM record WHERE number = ?", (number,))
    if draw.random() < 0.5:
        file.execute("UPDATE record SET number = -number + 1 WHERE number > ?", (number,))
        file.execute("UPDATE record SET number = -number WHERE number < 0")


def cut_off(file: sqlite3.Connection, draw: random.Random, _: object) -> None:
    number = any_row(file, draw, "record", "number")
    file.execute("DELETE FROM record WHERE number >= ?", (number,))


def reorder(file: sqlite3.Connection, draw: random.Random, _: object) -> None:
    one, two = (any_row(file, draw, "record", "number") for _ in range(2))
    texts = dict(file.execute("SELECT number, content FROM record").fetchall())
    for number, text in ((one, texts[two]), (two, texts[one])):
        file.execute("UPDATE record SET content = ? WHERE number = ?", (text, number))


def edit_text(text: str, draw: random.Random) -> str:
    """One character is another."""
    place = draw.randrange(len(text))
    return text[:place] + draw.choice('0123456789abcX"') + text[place + 1 :]


def edit_entry(file: sqlite3.Connection, draw: random.Random, _: object) -> None:
    number = any_row(file, draw, "record", "number")
    ((text,),) = file.execute("SELECT content FROM record WHERE number = ?", (number,))
    row = edit_text(text, draw), number
    file.execute("UPDATE record SET content = ? WHERE number = ?", row)


def edit_seal(file: sqlite3.Connection, draw: random.Random, _: object) -> None:
    column = draw.choice(["digest", "content"])
    for (text,) in file.execute(f"SELECT {column} FROM seal").fetchall():  # noqa: S608
        file.execute(f"UPDATE seal SET {column} = ?", (edit_text(text, draw),))  # noqa: S608


def contents_of(draw: random.Random) -> tuple[str, str]:
    return draw.choice(
        [
            ("contents", "position"),
            ("candidate_contents", "number"),
            ("purchase_contents", "number"),
        ]
    )


def edit_content(file: sqlite3.Connection, draw: random.Random, _: object) -> None:
    table, column = contents_of(draw)
    number = any_row(file, draw, table, column)
    for (old,) in file.execute(f"SELECT content FROM {table} WHERE {column} = ?", (number,)):  # noqa: S608
        place = draw.randrange(len(old))
        new = old[:place] + bytes([draw.randrange(256)]) + old[place + 1 :]
        file.execute(f"UPDATE {table} SET content = ? WHERE {column} = ?", (new, number))  # noqa: S608


def remove_content(file: sqlite3.Connection, draw: random.Random, _: object) -> None:
    table, column = contents_of(draw)
    number = any_row(file, draw, table, column)
    file.execute(f"DELETE FROM {table} WHERE {column} = ?", (number,))  # noqa: S608


def remove_sample(file: sqlite3.Connection, draw: random.Random, _: object) -> None:
    number = any_row(file, draw, "samples", "position")
    file.execute("DELETE FROM samples WHERE position = ?", (number,))
    file.execute("DELETE FROM contents WHERE position = ?", (number,))
    file.execute("DELETE FROM origins WHERE kind = 'sample' AND number = ?", (number,))


def swap_samples(file: sqlite3.Connection, draw: random.Random, _: object) -> None:
    one, two = (any_row(file, draw, "samples", "position") for _ in range(2))
    for table, column in (("contents", "position"), ("origins", "number")):
        both = f"UPDATE {table} SET {column} = ? WHERE {column} = ?"  # noqa: S608
        kind = " AND kind = 'sample'" if table == "origins" else ""
        for move in ((-1, one), (one, two), (two, -1)):
            file.execute(both + kind, move)


def add_sample(file: sqlite3.Connection, draw: random.Random, _: object) -> None:
    place = 10_000
    file.execute("INSERT INTO samples VALUES (?, 1, 1, 1)", (place,))
    file.execute("INSERT INTO contents VALUES (?, ?)", (place, b"another"))
    if draw.random() < 0.5:
        row = "sample", place, 1, b"secret", "mark", ""
        file.execute("INSERT INTO origins VALUES (?, ?, ?, ?, ?, ?)", row)


def edit_count(file: sqlite3.Connection, draw: random.Random, _: object) -> None:
    table, column, key = draw.choice(
        [
            ("samples", "uses", "position"),
            ("samples", "admitted_round", "position"),
            ("samples", "position", "position"),
            ("origins", "held_at", "number"),
            ("own_time", "keep", "only"),
            ("record", "number", "number"),
            ("seal", "number", "only"),
        ]
    )
    number = any_row(file, draw, table, key)
    by = draw.choice([-100_000, -1, 1, 100_000])
    file.execute(f"UPDATE {table} SET {column} = {column} + ? WHERE {key} = ?", (by, number))  # noqa: S608


def edit_subject(file: sqlite3.Connection, draw: random.Random, _: object) -> None:
    file.execute("UPDATE origins SET subject = subject || 'x'")


def turn_clock_back(file: sqlite3.Connection, draw: random.Random, _: object) -> None:
    ((at,),) = file.execute("SELECT max(own) FROM own_time").fetchall()
    file.execute("UPDATE own_time SET own = ?", (at - draw.randint(1, 10**9),))


def edit_books(file: sqlite3.Connection, draw: random.Random, _: object) -> None:
    ((text,),) = file.execute("SELECT content FROM books").fetchall()
    books = json.loads(text)
    names = ["last_round", "total_admitted", "total_expired", "candidates", "record_number"]
    books[draw.choice(names)] += 1
    file.execute("UPDATE books SET content = ?", (json.dumps(books),))


def roll_back(file: sqlite3.Connection, draw: random.Random, old: sqlite3.Connection) -> None:
    """Some tables are taken from an older copy."""
    groups = [["record"], ["books"], ["record", "books", "seal"]]
    groups += [["samples", "contents", "origins"], ["contents", "origins"], ["contents"]]
    for table in draw.choice(groups):
        file.execute(f"DELETE FROM {table}")  # noqa: S608
        for row in old.execute(f"SELECT * FROM {table}"):  # noqa: S608
            marks = ", ".join("?" * len(row))
            file.execute(f"INSERT INTO {table} VALUES ({marks})", row)  # noqa: S608


TAMPERS: list[Tamper] = [
    remove_entry, cut_off, reorder, edit_entry, edit_seal, edit_content, remove_content,
    remove_sample, swap_samples, add_sample, edit_count, edit_subject, turn_clock_back, edit_books,
    roll_back,
]  # fmt: skip


def dump(file: sqlite3.Connection) -> list[Any]:
    """All rows, to see whether anything is another."""
    tables = [name for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type='table'")]
    return [file.execute(f"SELECT * FROM {name}").fetchall() for name in tables]  # noqa: S608


@pytest.mark.long
@pytest.mark.parametrize("mode", ["plain", "selection", "supplier", "both"])
def test_whatever_a_gate_does_its_record_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """Candidates that are read and dropped in one choice were never held."""
    monkeypatch.setattr(sealing, "KEPT_ENTRIES", 8)
    monkeypatch.setattr(sealing, "SEALED_AT_ONCE", 4)
    for number in range(at_size(2, 40)):
        folder = tmp_path / str(number)
        folder.mkdir()
        device = Device(folder, number, selection=Selection(candidates=6, backlog=1))
        device.mode = mode
        for step in range(24):
            device.step()
            if step % 5 == 4:
                device.forget(step // 5)
            if (folder / "buffer.sqlite").exists() and device.round_number:
                audit = audited(folder, device)
                assert (audit.problems, audit.broken, against(audit, device)) == ([], [], [])
        for _ in range(8):
            device.order()
        audit = audited(folder, device)
        assert audit.is_right
        assert audit.sealed > 8
        assert audit.entries - audit.sealed < 8 + 5 * 4
        device.close()


def test_a_record_that_cannot_be_followed_stops_no_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sealing, "KEPT_ENTRIES", 2)
    monkeypatch.setattr(sealing, "SEALED_AT_ONCE", 2)
    with SqliteStore(tmp_path / "a.sqlite", "r", "c", 10) as store:
        gate = Gate(store, IndexedStream(range(100)))
        for now in range(1, 12):
            gate.apply(Order(run="r", round_number=now, price=1.0, retention_horizon=9, count=1))
            if now == 1:
                wrong = json.dumps({"event": "choice", "at": 1, "gone": ["x"]})
                store._connection.execute("UPDATE record SET content = ?", (wrong,))
        assert len(gate.samples()) == 9
    assert caplog.text.count("its old entries stay") == 1
    assert not audit_file(tmp_path / "a.sqlite").is_right


def forge_seal(path: Path) -> None:
    """An owner sums up all before the newest order: every sample is of that moment."""
    with closing(sqlite3.connect(path)) as file:
        rows = file.execute("SELECT number, content FROM record ORDER BY number").fetchall()
        last = max(place for place, (_, text) in enumerate(rows) if '"event":"order"' in text)
        seal = file.execute("SELECT digest, content FROM seal").fetchone()
        digest, replay = (FIRST, Replay()) if seal is None else (seal[0], Replay(seal[1]))
        for _, text in rows[:last]:
            replay.follow(Entry.read(text))
            digest = next_digest(digest, text)
        for mark, one in replay.items.items():
            one.held_at = replay.at
            file.execute("UPDATE origins SET held_at = ? WHERE mark = ?", (replay.at, mark))
        replay.longest, replay.broken = 0, []
        sums = rows[last - 1][0], digest, replay.seal()
        file.execute("INSERT OR REPLACE INTO seal VALUES (1, ?, ?, ?)", sums)
        file.execute("DELETE FROM record WHERE number <= ?", (sums[0],))
        file.commit()


def bind_seal(path: Path) -> None:
    """And adds the entry that binds the sums; every digest fits."""
    with closing(sqlite3.connect(path)) as file:
        ((text,),) = file.execute("SELECT content FROM books").fetchall()
        books = json.loads(text)
        (sums,) = file.execute("SELECT number, digest, content FROM seal").fetchall()
        at = Replay(sums[2]).at + 365 * 24 * 3_600_000
        file.execute("UPDATE own_time SET own = ?", (at,))
        entry = Entry(event="sealed", at=at, note=sealing.binding(*sums)).text()
        books["record_number"] += 1
        books["record_digest"] = next_digest(books["record_digest"], entry)
        file.execute("INSERT INTO record VALUES (?, ?)", (books["record_number"], entry))
        file.execute("UPDATE books SET content = ?", (json.dumps(books),))
        file.commit()


@pytest.mark.parametrize("sealed_before", [False, True])
def test_sums_that_were_made_up_are_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sealed_before: bool
) -> None:
    if sealed_before:
        monkeypatch.setattr(sealing, "KEPT_ENTRIES", 4)
        monkeypatch.setattr(sealing, "SEALED_AT_ONCE", 2)
    device = Device(tmp_path, 0)
    device.mode = "plain"
    for _ in range(12):
        device.order()
        device.now += 0.3 * DAY
    honest = audited(tmp_path, device)
    assert (honest.problems, against(honest, device)) == ([], [])
    assert bool(honest.sealed) == sealed_before
    forge_seal(tmp_path / "buffer.sqlite")
    assert "not the one that the record names" in audited(tmp_path, device).problems[0]
    bind_seal(tmp_path / "buffer.sqlite")
    bound = audited(tmp_path, device)
    assert bound.problems == []  # in itself; the server knows better
    assert "does not cover the sums" in against(bound, device)[0]
    device.close()


def test_entries_are_not_removed_before_the_server_can_know_their_sums(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many entries a device adds that nobody asks, here by a clock that falls back."""
    monkeypatch.setattr(sealing, "KEPT_ENTRIES", 4)
    monkeypatch.setattr(sealing, "SEALED_AT_ONCE", 2)
    device = Device(tmp_path, 0)
    for _ in range(6):
        device.order()
    for _ in range(30):
        device.now -= 2 * 3600
        device.sweep()
        audit = audited(tmp_path, device)
        assert (audit.problems, against(audit, device)) == ([], [])
    assert audit.entries > 30
    for _ in range(8):
        device.order()
        audit = audited(tmp_path, device)
        assert (audit.problems, against(audit, device)) == ([], [])
    assert audit.sealed > 30
    device.close()


@pytest.mark.long
def test_every_tampering_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(0)  # noqa: S311
    tried = 0
    for number in range(HISTORIES):
        if number % 2:  # a record of which a part is sealed
            monkeypatch.setattr(sealing, "KEPT_ENTRIES", 8)
            monkeypatch.setattr(sealing, "SEALED_AT_ONCE", 4)
        folder = tmp_path / str(number)
        folder.mkdir()
        device = Device(folder, number)
        for _ in range(8):
            device.step()
        old = Path(shutil.copytree(folder, tmp_path / f"old-{number}"))
        for _ in range(8):
            device.step()
        device.order()
        monkeypatch.undo()
        right = audited(folder, device)
        assert (right.problems, right.broken, against(right, device)) == ([], [], [])
        for _ in range(TAMPERINGS // HISTORIES):
            copy = tmp_path / "copy" / "buffer.sqlite"
            copy.parent.mkdir(exist_ok=True)
            shutil.copy(folder / "buffer.sqlite", copy)
            tamper = draw.choice(TAMPERS)
            earlier = sqlite3.connect(old / "buffer.sqlite")
            with closing(sqlite3.connect(copy)) as file, closing(earlier) as older:
                before = dump(file)
                try:
                    tamper(file, draw, older)
                except sqlite3.IntegrityError:
                    continue  # the database itself does not let it be
                file.commit()
                if dump(file) == before:
                    continue
            tried += 1
            try:
                problems = audit_file(copy, device.clock).problems
            except DamagedFileError:
                continue  # noticed, too
            assert problems, f"{tamper.__name__} in history {number}"
        device.close()
    assert tried > at_size(100, 10_000)


def test_a_sample_that_is_made_older_or_younger_is_noticed(tmp_path: Path) -> None:
    """What a receipt says of ages comes from the orders that bought the samples."""
    device = Device(tmp_path, 0)
    for _ in range(4):
        device.order()
    assert audited(tmp_path, device).is_right
    with closing(sqlite3.connect(tmp_path / "buffer.sqlite")) as file:
        assert file.execute("UPDATE samples SET bought_in = bought_in - 1").rowcount
        file.commit()
    assert audited(tmp_path, device).problems
    device.close()


@pytest.mark.long
def test_a_device_that_is_rolled_back_or_rewritten_is_noticed_by_the_server(tmp_path: Path) -> None:
    for number in range(at_size(4, 60)):
        folder = tmp_path / str(number)
        folder.mkdir()
        device = Device(folder, number)
        for _ in range(5):
            device.order()
            device.now += 0.5 * DAY
        old = Path(shutil.copytree(folder, tmp_path / f"old-{number}"))
        device.order()
        device.order()
        # The whole of an older copy contradicts nothing in itself.
        before = audited(old, device)
        assert before.is_right
        assert "it is an older copy" in against(before, device)[0]
        rewrite(folder / "buffer.sqlite")
        forged = audited(folder, device)
        assert forged.is_right
        assert "this one was rewritten" in against(forged, device)[0]
        device.close()


def rewrite(path: Path) -> None:
    """An owner makes the record up anew: every time is an hour earlier, every digest fits."""
    with closing(sqlite3.connect(path)) as file:
        digest = FIRST
        orders = {}
        texts = file.execute("SELECT number, content FROM record ORDER BY number").fetchall()
        for number, text in texts:
            told = json.loads(text)
            told["at"] -= 3_600_000
            for kind in ("samples", "candidates", "purchases"):
                if kind in told:
                    told[kind] = [[mark, at - 3_600_000] for mark, at in told[kind]]
            forged = json.dumps(told, separators=(",", ":"))
            if told["event"] == "order":
                orders[told["round_number"]] = digest
            digest = next_digest(digest, forged)
            file.execute("UPDATE record SET content = ? WHERE number = ?", (forged, number))
        file.execute("UPDATE origins SET held_at = held_at - 3600000")
        ((text,),) = file.execute("SELECT content FROM books").fetchall()
        books = json.dumps({**json.loads(text), "record_digest": digest})
        file.execute("UPDATE books SET content = ?", (books,))
        for number, text in file.execute("SELECT round_number, receipt FROM answers").fetchall():
            receipt = json.dumps({**json.loads(text), "record": orders[number]})
            row = receipt, number
            file.execute("UPDATE answers SET receipt = ? WHERE round_number = ?", row)
        file.commit()
