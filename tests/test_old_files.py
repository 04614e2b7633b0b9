"""What an older version wrote, this one reads and goes on with."""

import contextlib
import json
import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gated_apps import MODEL
from late_supplier import LateSupplier
from old_files import DIES_IN, ROUNDS, RUNS, control, grid, outcome

from tidegate.cli import main
from tidegate.client.gate import Gate
from tidegate.client.sqlite_store import SqliteStore
from tidegate.client.store import Purchase, StoredSample
from tidegate.client.streams import IndexedStream
from tidegate.client.supplier import Delivered
from tidegate.runs.reader import read_run, saved_content
from tidegate.selection import Selection
from tidegate.wire import Order, Receipt, cursor_digest

FIXTURES = Path(__file__).parent / "fixtures"
VERSIONS = sorted(folder.name for folder in FIXTURES.glob("version_*"))


def copy_of(folder: Path, into: Path) -> Path:
    """Reading may change a file; what is kept stays as it was."""
    return Path(shutil.copytree(folder, into / folder.name))


def with_newer_fields(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of an older version, with what they are read as."""
    new = {"under_way": 0, "under_way_spent": 0.0, "refunded": 0.0, "oldest_under_way": 0}
    new |= {"failing_suppliers": 0, "full_spools": 0, "spool_dropped": 0, "empty_clients": 0}
    return [{"set_aside": 0, "pause": 0, "retired": 0, **new, **row} for row in rows]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", RUNS)
def test_an_interrupted_run_goes_on_as_if_nothing_had_happened(
    tmp_path: Path, version: str, name: str
) -> None:
    folder = copy_of(FIXTURES / version / name / "interrupted", tmp_path)
    resumed = control(name, folder)
    result = resumed.start(grid(), MODEL, ROUNDS)
    expected = json.loads((FIXTURES / version / name / "outcome.json").read_text())
    told = outcome(resumed, (array.numpy() for array in result.arrays.values()))
    assert told["rounds"] == with_newer_fields(expected["rounds"])
    for mine, theirs in zip(told["weights"], expected["weights"], strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-12)  # BLAS may differ by machine


def told_to_older(folder: Path) -> dict[str, Any]:
    """What programs up to format 6 read first."""
    with np.load(folder / "control.npz") as archive:
        content: dict[str, Any] = json.loads(archive["control"].tobytes())
    return content


def fields_of(content: dict[str, Any], folder: Path) -> set[str]:
    """Names that a program must know to read a run's folder."""
    controller = content["controller"]
    (account, *_) = controller["ledger"]["accounts"].values()
    (row, *_) = (folder / "rounds.jsonl").read_text().splitlines()
    return {*controller, *controller["terms"], *controller["ledger"], *account, *json.loads(row)}


@pytest.mark.parametrize("version", VERSIONS)
def test_an_older_program_is_told_of_a_newer_file_by_its_format(
    tmp_path: Path, version: str
) -> None:
    """It does not know fields that were added since, and would take the file for damaged."""
    folder = FIXTURES / version / "tide" / "finished"
    control("tide", tmp_path).start(grid(), MODEL, ROUNDS)
    (_, before), (_, now) = saved_content(folder), saved_content(tmp_path)
    if fields_of(before, folder) != fields_of(now, tmp_path):
        assert told_to_older(tmp_path)["version"] == now["version"] > before["version"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", RUNS)
def test_a_run_folder_is_read(tmp_path: Path, version: str, name: str) -> None:
    expected = json.loads((FIXTURES / version / name / "outcome.json").read_text())
    over = read_run(copy_of(FIXTURES / version / name / "finished", tmp_path))
    assert [vars(row) for row in over.rounds] == with_newer_fields(expected["rounds"])
    assert (over.ending, over.num_rounds, len(over.clients)) == ("over", ROUNDS, 3)
    under_way = read_run(copy_of(FIXTURES / version / name / "interrupted", tmp_path))
    assert (under_way.ending, len(under_way.rounds)) == ("failed", DIES_IN - 1)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_prices_of_an_old_run_are_replayed(
    tmp_path: Path, version: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = copy_of(FIXTURES / version / "acdpp" / "finished", tmp_path)
    with pytest.raises(SystemExit) as stopped:
        main(["whatif", str(folder), "--policy", "acdpp", "--json"])
    assert not stopped.value.code
    assert json.loads(capsys.readouterr().out)["rounds"] == ROUNDS


def test_a_buffer_of_version_0_1_0_goes_on(tmp_path: Path) -> None:
    """Round 1 admitted two samples and round 3 two more; orders up to round 4 are void."""
    path = Path(shutil.copy(FIXTURES / "version_0_1_0" / "client.sqlite", tmp_path))
    store = SqliteStore(path, "r", "a-client", 5)
    books = store.books()
    assert (books.last_round, books.void_round, books.cursor) == (3, 4, "4")
    assert (books.total_admitted, books.total_spent) == (4, 7.0)
    assert store.stored() == [
        *(StoredSample(0, 1, 2), StoredSample(1, 1, 2)),
        *(StoredSample(2, 3, 1), StoredSample(3, 3, 1)),
    ]
    image, labelled, named, mixed = store.samples()
    np.testing.assert_array_equal(image, np.arange(6, dtype=np.float32).reshape(2, 3))
    np.testing.assert_array_equal(labelled[0], [1.5, 2.5])
    assert (labelled[1], named) == (7, {"text": "Äpfel", "bytes": b"\x00\x01"})
    assert mixed == [True, None, 0.25]
    answer = store.answer(3)
    assert answer is not None
    assert (answer[1].admitted, answer[1].set_aside, answer[1].last_taken) == (2, 0, "")
    gate = Gate(store, IndexedStream([*"abcd", "only text", "another"]))
    order = Order(run="r", round_number=5, price=3.0, count=2, retention="oldest_first")
    answered = gate.apply(order)
    assert len(answered.record) == 64  # its record begins with what was there
    assert replace(answered, record="") == Receipt(
        run="r",
        round_number=5,
        admitted=2,
        spent=6.0,
        occupancy=5,
        expiring=0,
        prior_uses=4,
        total_admitted=6,
        total_spent=13.0,
        exhausted=False,
        set_aside=0,
        last_taken=cursor_digest("r", "a-client", "6"),
    )
    assert store.failures() == []
    assert store.samples()[-2:] == ["only text", "another"]
    store.close()


def test_a_buffer_of_schema_3_goes_on_and_buys_samples_that_come_later(tmp_path: Path) -> None:
    """Round 2 chose e and could not pay for it; a and d wait. Schema 4 knows purchases."""
    path = Path(shutil.copy(FIXTURES / "schema_3" / "client.sqlite", tmp_path))
    with contextlib.closing(sqlite3.connect(path)) as file:
        assert file.execute("PRAGMA user_version").fetchone() == (3,)
    store = SqliteStore(path, "r", "a-client", 4)
    books = store.books()
    assert (books.total_admitted, books.total_spent, books.candidates) == (3, 6.0, 3)
    assert (books.under_way, books.total_refused, store.purchases()) == (0, 0, [])
    assert store.samples() == ["C", "B", "F"]
    assert [(one.key, one.tries) for one in store.failures()] == [("r/a-client/5", 1)]
    supplier = LateSupplier(number=1, longest_delay=0)
    gate = Gate(store, IndexedStream("abcdefghijkl"), None, Selection(3, 3), supplier=supplier)
    order = Order(run="r", round_number=3, price=2.0, retention_horizon=9, count=1)
    receipt = gate.apply(order)
    assert (receipt.asked, receipt.total_spent, list(supplier.bill)) == (1, 8.0, ["r/a-client/5"])
    assert store.purchases() == [Purchase("r/a-client/5", 2.0, 3, asked=True)]
    supplier.outcomes["r/a-client/5"] = Delivered("r/a-client/5", "label")
    receipt = gate.apply(replace(order, round_number=4, count=0))
    assert (receipt.arrived, receipt.under_way, gate.samples()[-1]) == (1, 0, "e")
    store.close()


def test_a_buffer_of_schema_4_goes_on_with_candidates_and_purchases(tmp_path: Path) -> None:
    """Two samples trained once, two purchases are under way, five candidates wait."""
    path = Path(shutil.copy(FIXTURES / "schema_4" / "client.sqlite", tmp_path))
    days = [1_800_000_000.0]
    with SqliteStore(path, "r", "site", 6, clock=lambda: days[0]) as store:
        assert store.stored() == [StoredSample(0, 2, 1), StoredSample(1, 2, 1)]
        assert store.samples() == ["person 4, labelled", "person 0, labelled"]
        assert [one.key for one in store.purchases()] == ["r/site/11", "r/site/12"]
        assert store.unpack(store.purchased("r/site/11").packed) == "person 10"
        assert [store.unpack(one.packed) for one in store.candidates()] == [
            f"person {number}" for number in range(5, 10)
        ]
        # Nobody knows since when: they count from the first opening.
        store.keep_at_most(24 * 3600 * 1000)
        store.let_go()
        assert store.held() == 9
        days[0] += 24 * 3600
        store.let_go()
        assert (store.held(), store.unheard(), store.books().candidates) == (0, {1: 2}, 0)
        assert [one.is_void for one in store.purchases()] == [True, True]
