"""The record of a buffer: whoever changes it, or what is stored, is noticed."""

import json
import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from check_size import at_size
from histories import CLIENT, DAY, Device

from tidegate.client import record
from tidegate.client.auditing import Audit, audit_file, compare
from tidegate.client.record import Entry, Item, Sums, followed, held_by, next_digest, sums_text
from tidegate.errors import DamagedFileError
from tidegate.selection import Selection

HISTORIES = at_size(4, 50)
TAMPERINGS = at_size(200, 12_000)

Tamper = Callable[[sqlite3.Connection, random.Random, sqlite3.Connection], None]


def audited(folder: Path, device: Device) -> Audit:
    (audit,) = audit_file(folder / "buffer.sqlite", device.clock)
    return audit


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
    texts = dict(file.execute("SELECT number, entry FROM record").fetchall())
    for number, text in ((one, texts[two]), (two, texts[one])):
        file.execute("UPDATE record SET entry = ? WHERE number = ?", (text, number))


def edit_text(text: str, draw: random.Random) -> str:
    """One character is another."""
    place = draw.randrange(len(text))
    return text[:place] + draw.choice('0123456789abcX"') + text[place + 1 :]


def edit_entry(file: sqlite3.Connection, draw: random.Random, _: object) -> None:
    number, column = any_row(file, draw, "record", "number"), draw.choice(["entry", "before"])
    ((text,),) = file.execute(f"SELECT {column} FROM record WHERE number = ?", (number,))  # noqa: S608
    row = edit_text(text, draw), number
    file.execute(f"UPDATE record SET {column} = ? WHERE number = ?", row)  # noqa: S608


def edit_sums(file: sqlite3.Connection, draw: random.Random, _: object) -> None:
    ((text,),) = file.execute("SELECT sums FROM clients")
    file.execute("UPDATE clients SET sums = ?", (edit_text(text, draw),))


def edit_content(file: sqlite3.Connection, draw: random.Random, _: object) -> None:
    number = any_row(file, draw, "contents", "number")
    for (old,) in file.execute("SELECT content FROM contents WHERE number = ?", (number,)):
        place = draw.randrange(len(old))
        new = old[:place] + bytes([draw.randrange(256)]) + old[place + 1 :]
        file.execute("UPDATE contents SET content = ? WHERE number = ?", (new, number))


def remove_content(file: sqlite3.Connection, draw: random.Random, _: object) -> None:
    number = any_row(file, draw, "contents", "number")
    file.execute("DELETE FROM contents WHERE number = ?", (number,))


def remove_sample(file: sqlite3.Connection, draw: random.Random, _: object) -> None:
    number = any_row(file, draw, "samples", "number")
    file.execute("DELETE FROM samples WHERE number = ?", (number,))
    file.execute("DELETE FROM contents WHERE number = ?", (number,))


def swap_contents(file: sqlite3.Connection, draw: random.Random, _: object) -> None:
    one, two = (any_row(file, draw, "contents", "number") for _ in range(2))
    for move in ((-1, one), (one, two), (two, -1)):
        file.execute("UPDATE contents SET number = ? WHERE number = ?", move)


def add_sample(file: sqlite3.Connection, draw: random.Random, _: object) -> None:
    """One that nobody bought, with a mark that fits or with none."""
    names = [name for _, name, *_ in file.execute("PRAGMA table_info(samples)") if name != "number"]
    columns = ", ".join(names)
    file.execute(
        f"INSERT INTO samples (number, {columns}) SELECT 10000, {columns} FROM samples LIMIT 1"  # noqa: S608
    )
    mark = draw.choice([record.mark_of(b"secret", "", b"another"), "mark", ""])
    row = b"secret", "", mark, draw.choice(["stored", "candidate", "other"])
    file.execute(
        "UPDATE samples SET secret = ?, subject = ?, mark = ?, state = ? WHERE number = 10000", row
    )
    file.execute("INSERT INTO contents VALUES (10000, '', ?)", (b"another",))


def edit_count(file: sqlite3.Connection, draw: random.Random, _: object) -> None:
    table, column = draw.choice(
        [
            ("samples", "since"),
            ("samples", "bought_in"),
            ("samples", "held_at"),
            ("clients", "keep"),
            ("record", "number"),
        ]
    )
    where, values = "", ()
    if table == "samples":
        stored = file.execute("SELECT number FROM samples WHERE state = 'stored'").fetchall()
        where, values = " WHERE number = ?", draw.choice([*stored, (0,)])
    by = draw.choice([-100_000, -1, 1, 100_000])
    file.execute(f"UPDATE {table} SET {column} = {column} + ?{where}", (by, *values))  # noqa: S608


def edit_subject(file: sqlite3.Connection, draw: random.Random, _: object) -> None:
    file.execute("UPDATE samples SET subject = subject || 'x' WHERE mark != ''")


def turn_clock_back(file: sqlite3.Connection, draw: random.Random, _: object) -> None:
    file.execute("UPDATE clients SET own_time = own_time - ?", (draw.randint(1, 10**9),))


def edit_books(file: sqlite3.Connection, draw: random.Random, _: object) -> None:
    names = "last_round", "admitted", "expired", "erased", "bought", "spent", "record_number"
    name = draw.choice(names)
    file.execute(f"UPDATE clients SET {name} = {name} + 1")  # noqa: S608


def roll_back(file: sqlite3.Connection, draw: random.Random, old: sqlite3.Connection) -> None:
    """Some tables are taken from an older copy."""
    groups = [["record"], ["clients"], ["record", "clients"], ["samples", "contents"], ["contents"]]
    for table in draw.choice(groups):
        file.execute(f"DELETE FROM {table}")  # noqa: S608
        for row in old.execute(f"SELECT * FROM {table}"):  # noqa: S608
            marks = ", ".join("?" * len(row))
            file.execute(f"INSERT INTO {table} VALUES ({marks})", row)  # noqa: S608


TAMPERS: list[Tamper] = [
    remove_entry, cut_off, reorder, edit_entry, edit_sums, edit_content, remove_content,
    remove_sample, swap_contents, add_sample, edit_count, edit_subject, turn_clock_back, edit_books,
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
    monkeypatch.setattr(record, "KEPT_ENTRIES", 8)
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
        assert audit.removed > 8
        assert audit.entries - audit.removed < 8 + 5 * 4
        device.close()


def played(folder: Path, steps: int) -> Device:
    """A device that has applied some orders, and removed the first entries of its record."""
    device = Device(folder, 0)
    device.mode = "plain"
    for _ in range(steps):
        device.order()
        device.now += 0.3 * DAY
    return device


def make_up_sums(path: Path) -> None:
    """An owner removes all before the newest order, whose sums say: nothing was ever too long."""
    with closing(sqlite3.connect(path)) as file:
        rows = file.execute("SELECT number, entry FROM record ORDER BY number").fetchall()
        number, text = [row for row in rows if '"event":"order"' in row[1]][-1]
        entry = Entry.read(text)
        rows = file.execute("SELECT number, mark, held_at, since FROM samples").fetchall()
        file.execute("UPDATE samples SET held_at = ?", (entry.at,))
        held = held_by([Item(mark, "sample", entry.at, since) for _, mark, _, since in rows])
        entered = tuple(item._replace(held_at=entry.at) for item in entry.entered)
        sums = replace(entry.sums, held=held, longest=0)
        forged = replace(entry, entered=entered, sums=sums).text()
        file.execute("DELETE FROM record WHERE number < ?", (number,))
        ((before,),) = file.execute("SELECT before FROM record WHERE number = ?", (number,))
        file.execute("UPDATE record SET entry = ? WHERE number = ?", (forged, number))
        books = next_digest(before, forged), sums_text(sums), number
        file.execute("UPDATE clients SET record_digest = ?, sums = ?, record_number = ?", books)
        file.execute("DELETE FROM record WHERE number > ?", (number,))
        file.commit()


@pytest.mark.parametrize("kept", [4, 1000])
def test_sums_that_were_made_up_are_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    monkeypatch.setattr(record, "KEPT_ENTRIES", kept)
    device = played(tmp_path, 12)
    honest = audited(tmp_path, device)
    assert (honest.problems, against(honest, device)) == ([], [])
    assert bool(honest.removed) == (kept == 4)
    make_up_sums(tmp_path / "buffer.sqlite")
    forged = audited(tmp_path, device)
    assert forged.problems == []  # in itself; the server knows better
    assert "does not cover the sums" in against(forged, device)[0]
    device.close()


def test_entries_that_the_servers_digest_covers_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many entries a device adds that nobody asks, here by a clock that falls back."""
    monkeypatch.setattr(record, "KEPT_ENTRIES", 4)
    device = played(tmp_path, 6)
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
    assert audit.removed > 30
    device.close()


def test_a_limit_that_was_not_kept_is_reported() -> None:
    entry = Entry(event="order", at=1, round_number=9, most_uses=3, oldest_uses=4, oldest_age=50)
    assert len(entry.breaches(keep=50)) == 2
    assert entry.breaches(keep=51) == ["round 9: a sample trained in 4 rounds, but the limit is 3"]
    assert followed(Sums(keep=50), entry).breaches == 2


@pytest.mark.long
def test_every_tampering_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(0)  # noqa: S311
    tried = 0
    for number in range(HISTORIES):
        if number % 2:  # a record of which a part is sealed
            monkeypatch.setattr(record, "KEPT_ENTRIES", 8)
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
                problems = [
                    problem for one in audit_file(copy, device.clock) for problem in one.problems
                ]
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


HOUR = 3_600_000


def earlier(items: tuple[Item, ...]) -> tuple[Item, ...]:
    return tuple(item._replace(held_at=item.held_at - HOUR) for item in items)


def rewrite(path: Path) -> None:
    """An owner makes the record up anew: every time is an hour earlier, every digest fits."""
    with closing(sqlite3.connect(path)) as file:
        digest, sums, orders = record.FIRST, Sums(), {}
        for number, text in file.execute("SELECT number, entry FROM record").fetchall():
            entry = Entry.read(text)
            entry = replace(
                entry, at=entry.at - HOUR, left=earlier(entry.left), entered=earlier(entry.entered)
            )
            sums = followed(sums, entry)
            forged = replace(entry, sums=sums).text()
            orders[entry.round_number] = digest
            file.execute(
                "UPDATE record SET entry = ?, before = ? WHERE number = ?", (forged, digest, number)
            )
            digest = next_digest(digest, forged)
        file.execute("UPDATE samples SET held_at = held_at - 3600000")
        file.execute("UPDATE clients SET record_digest = ?, sums = ?", (digest, sums_text(sums)))
        for number, text in file.execute("SELECT round_number, receipt FROM answers").fetchall():
            receipt = json.dumps({**json.loads(text), "record": orders[number]})
            row = receipt, number
            file.execute("UPDATE answers SET receipt = ? WHERE round_number = ?", row)
        file.commit()
