"""``tidegate forget``: what an operator sees who erases somebody."""

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from histories import CLIENT, RUN, content

from tidegate.cli import main
from tidegate.client.gate import Gate
from tidegate.client.store import Store
from tidegate.client.streams import IndexedStream
from tidegate.errors import DamagedFileError
from tidegate.integrations.mqtt import Spool, SpooledStream
from tidegate.integrations.mqtt.spool import Delivery, Message
from tidegate.wire import Order

NAME = "patient-4711"


def tell(capfd: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> tuple[str, str]:
    with pytest.raises(SystemExit) as stopped:
        main(["forget", *arguments])
    assert (stopped.value.code or 0) == code
    return capfd.readouterr()


def fill(folder: Path) -> None:
    samples = [(NAME if number % 2 else "another", content(number)) for number in range(6)]
    with Store(folder / "a.sqlite", RUN, CLIENT, 9) as store:
        gate = Gate(store, IndexedStream(samples), subject=lambda sample: sample[0])
        gate.apply(Order(run=RUN, round_number=1, price=1.0, retention_horizon=9, count=4))


def test_a_name_is_erased_and_never_written_down(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path)
    assert content(1).encode() in (tmp_path / "a.sqlite").read_bytes()
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{NAME}\n"))
    out, _ = tell(capfd, str(tmp_path), "--subject", "-", "--json")
    assert json.loads(out)["erased"] == 2
    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert (NAME.encode() in kept, content(1).encode() in kept) == (False, False)
    assert content(0).encode() in kept
    assert (tmp_path / "forgotten.json").stat().st_mode & 0o077 == 0
    assert "0 erased in 1 file" in tell(capfd, str(tmp_path), "--subject", NAME)[0]


def test_samples_of_which_nobody_said_whose_they_are_are_told(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Those that an app without a subject function took in; not those that are about nobody."""
    samples = [NAME, NAME, "", NAME, "another"]
    with Store(tmp_path / "a.sqlite", RUN, CLIENT, 9) as store:
        before = Gate(store, IndexedStream(samples))
        before.apply(Order(run=RUN, round_number=1, price=1.0, retention_horizon=9, count=2))
        gate = Gate(store, IndexedStream(samples), subject=lambda sample: sample)
        gate.apply(Order(run=RUN, round_number=2, price=1.0, retention_horizon=9, count=3))
    out, error = tell(capfd, str(tmp_path), "--subject", NAME, code=1)
    assert "1 erased in 1 file;" in out
    assert "2 samples in buffers have no subject, because " in error
    assert f"{tmp_path / 'a.sqlite'}: 2" in error


def test_another_key_is_not_made_where_one_is_lost(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fill(tmp_path)
    (tmp_path / "forgotten.json").unlink()
    for flags in ([], ["--admit-again"]):
        out, error = tell(capfd, str(tmp_path), "--subject", NAME, *flags, code=1)
        assert "forgotten.json is missing, but a.sqlite needs its key" in " ".join(error.split())
        assert "If there is none, stop the app, delete the folder's" in " ".join(error.split())
        assert not out  # nothing was done, and nothing is promised
    with Store(tmp_path / "a.sqlite", RUN, CLIENT, 9) as store:
        with pytest.raises(DamagedFileError, match="restore a copy of it"):
            Gate(store, IndexedStream([]), subject=lambda sample: sample[0])
        Gate(store, IndexedStream([]))  # an app that names nobody needs no key
    assert not (tmp_path / "forgotten.json").exists()


@pytest.mark.parametrize("text", [None, "{"])
def test_the_way_out_without_a_copy_of_the_list_works(
    text: str | None, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fill(tmp_path)
    (tmp_path / "forgotten.json").unlink()
    if text is not None:
        (tmp_path / "forgotten.json").write_text(text)
    assert "If there is none, " in tell(capfd, str(tmp_path), "--subject", NAME, code=1)[1]
    for path in (*tmp_path.glob("*.sqlite*"), *tmp_path.glob("forgotten.json")):
        path.unlink()
    tell(capfd, str(tmp_path), "--subject", NAME)
    fill(tmp_path)
    with Store(tmp_path / "a.sqlite", RUN, CLIENT, 9) as store:
        assert {sample[0] for sample in store.samples()} == {"another"}


def lose_key(folder: Path) -> None:
    (folder / "forgotten.json").unlink()


def replace_by_a_folder(folder: Path) -> None:
    lose_key(folder)
    (folder / "forgotten.json").mkdir()


@pytest.mark.parametrize("damage", [lose_key, replace_by_a_folder])
def test_the_folders_after_one_that_fails_are_not_left_out(
    damage: Callable[[Path], None], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folders = [tmp_path / name for name in ("first", "second", "third")]
    for folder in folders:
        folder.mkdir()
        fill(folder)
    damage(folders[1])
    asked = [*map(str, folders), "--subject", NAME]
    out, error = tell(capfd, *asked, code=1)
    assert "4 erased in 2 files; later samples of this subject will be refused in 2 of 3" in out
    assert f"{folders[1]} was left as it is: " in error
    assert content(1).encode() not in (folders[2] / "a.sqlite").read_bytes()
    out, error = tell(capfd, *asked, "--admit-again", code=1)
    assert "may be admitted again; it was taken off the list of 2 of 3 folders" in out
    assert f"{folders[1]} was left as it is: " in error
    told = json.loads(tell(capfd, *asked, "--admit-again", "--json", code=1)[0])
    assert (told["admitted_again"], len(told["failed"]), told["left_out"]) == ([], 1, [])


def test_a_name_that_was_misspelt_or_consents_again_is_admitted_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        folder.mkdir()
        fill(folder)
    tell(capfd, str(one), "--subject", NAME)
    tell(capfd, str(one), "--subject", "another")
    again = [str(one), str(other), "--subject", NAME, "--admit-again"]
    assert json.loads(tell(capfd, *again, "--json")[0])["admitted_again"] == [str(one)]
    out, error = tell(capfd, *again)
    assert (out, error) == ("", "no folder has this subject on its list; is the name right?\n")
    samples = [("another", "x"), (NAME, "old")] * 2 + [("another", "x"), (NAME, "new")]

    def taken(run: str, round_number: int) -> list[tuple[str, ...]]:
        with Store(one / f"{run}.sqlite", run, CLIENT, 9) as store:
            gate = Gate(store, IndexedStream(samples), subject=lambda sample: sample[0])
            order = Order(
                run=run, round_number=round_number, price=1.0, retention_horizon=9, count=2
            )
            gate.apply(order)
            return [tuple(sample) for sample in store.samples()]

    (one / "a.sqlite").rename(one / f"{RUN}.sqlite")
    assert taken(RUN, 2) == [(NAME, "new")]  # what was erased does not come back in this run
    assert taken("later", 1) == [(NAME, "old"), (NAME, "old")]


def test_messages_of_which_nobody_said_whose_they_are_are_told(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    spool = Spool(tmp_path / "site-0.spool")
    for number in range(3):
        name = NAME if number == 1 else "another"
        message = Message("t", f"{name} {content(number)}".encode())
        spool.put(message, None, Delivery(number, again=False))
    _, error = tell(capfd, str(tmp_path), "--subject", NAME, code=1)
    assert "3 messages in spools have no subject." in error
    stream = SpooledStream(spool, lambda payload, topic: payload.decode())
    stream.name_subjects(lambda text: text.split()[0])
    assert "1 erased in 1 file" in tell(capfd, str(tmp_path), "--subject", NAME)[0]
    assert NAME.encode() not in b"".join(path.read_bytes() for path in tmp_path.iterdir())
    late = Message("t", f"{NAME} {content(9)}".encode())
    assert spool.put(late, None, Delivery(9, again=False)) == "stored"
    health = spool.health()
    assert (health.waiting, health.erased) == (2, 2)
    spool.close()


def test_samples_past_their_limit_are_not_counted_as_forgotten(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fill(tmp_path)
    with Store(tmp_path / "a.sqlite", RUN, CLIENT, 9) as store:
        held = store.count("stored", "candidate", "chosen", "under way")
        store.keep_at_most(1)
    out, error = tell(capfd, str(tmp_path), "--subject", "nobody")
    assert "0 erased in 1 file;" in out
    assert f"{held} others were past their limit in days and were deleted, too" in out
    assert "no sample of this subject was found here" in error


def test_copies_below_a_folder_do_not_stop_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fill(tmp_path)
    kept = tmp_path / "damaged"
    kept.mkdir()
    shutil.copy(tmp_path / "a.sqlite", kept)
    before = (kept / "a.sqlite").read_bytes()
    out, error = tell(capfd, str(tmp_path), "--subject", NAME, code=1)
    assert "erased in 1 file;" in out
    told = f"{tmp_path} also has folders with buffers in it, which were left out"
    assert told in " ".join(error.split())
    assert (kept / "a.sqlite").read_bytes() == before
    out, _ = tell(capfd, str(tmp_path), "--subject", NAME, "--json", code=1)
    assert json.loads(out)["left_out"] == [str(kept)]
    shutil.copy(tmp_path / "forgotten.json", kept)
    tell(capfd, str(tmp_path), str(kept), "--subject", NAME)
    assert (kept / "a.sqlite").read_bytes() != before


def test_a_parent_folder_and_a_runs_folder_are_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    device = tmp_path / "device"
    device.mkdir()
    fill(device)
    _, error = tell(capfd, str(tmp_path), "--subject", NAME, code=2)
    told = " ".join(error.split())
    assert (
        f"{tmp_path} has folders with buffers in it; give each of them by itself: {device}" in told
    )
    (tmp_path / "books.sqlite").touch()
    _, error = tell(capfd, str(tmp_path), "--subject", NAME, code=2)
    assert "its books.sqlite is the server's ledger: keep it." in " ".join(error.split())
    assert not (tmp_path / "forgotten.json").exists()
    (tmp_path / "books.sqlite").unlink()
    (device / "a.sqlite").write_bytes(b"of another program")
    assert "0 erased in 0 files" in tell(capfd, str(tmp_path), "--subject", NAME)[0]


def test_a_name_of_which_nothing_is_found_is_questioned(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fill(tmp_path)
    out, error = tell(capfd, str(tmp_path), "--subject", "patient-47ll")
    assert "0 erased in 1 file;" in out
    assert "no sample of this subject was found here; is the name right?" in error
    out, error = tell(capfd, str(tmp_path), "--subject", NAME)
    assert "2 erased in 1 file;" in out
    assert not error
