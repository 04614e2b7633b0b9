"""``tidegate export``: other tools read the same samples, and nobody else's."""

import json
import os
import signal
import sqlite3
import stat
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from datasets import load_dataset
from histories import RUN, content
from PIL import Image
from pyarrow import parquet

from tidegate.cli import main
from tidegate.client.codec import SampleCodec
from tidegate.client.exporting import HeldSamples
from tidegate.client.forgotten import Forgotten
from tidegate.client.gate import Gate
from tidegate.client.samples import BYTES_AT_ONCE
from tidegate.client.store import Store
from tidegate.client.streams import IndexedStream
from tidegate.errors import ConfigurationError
from tidegate.wire import Order

NAME = "patient-4711"
JPEG = b"\xff\xd8\xff\xe0 and the rest"
RNG = np.random.default_rng(0)
ROWS = [
    {
        "image": Image.fromarray(RNG.integers(0, 256, (4, 5, 3), dtype=np.uint8)),
        "photo": JPEG,
        "volume": RNG.normal(size=(2, 3 + number, 4)).astype(np.float32),
        "half": torch.arange(3, dtype=torch.float16),
        "brain": torch.tensor([0.5, 3.0], dtype=torch.bfloat16),
        "big-endian": np.arange(2, dtype=">i4"),
        "loss": np.float32(0.1),
        "label": None if number == 1 else number,
        "share": number / 3 if number else 1,
        "is_new": number % 2 == 0,
        "name": f"sample {number}, of {content(number)}",
        "report": "line\n" * number,
        "words": ["a", "b"][:number],
        "found": {"boxes": np.eye(2)[:number], "kinds": (number, "cat")},
        "key": f"theirs {number}",
    }
    for number in range(3)
]


def tell(capfd: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> tuple[str, str]:
    with pytest.raises(SystemExit) as stopped:
        main(["export", *map(str, arguments)])
    assert (stopped.value.code or 0) == code
    out, error = capfd.readouterr()
    return out, " ".join(error.split())


def fill(
    path: Path,
    samples: Sequence[Any],
    capacity: int = 99,
    *,
    codec: SampleCodec | None = None,
    days_ago: float = 0.0,
    **arguments: Any,
) -> None:
    """Buy all samples, in as many orders as that takes."""
    path.parent.mkdir(exist_ok=True)
    clock = (lambda: time.time() - days_ago * 24 * 3600) if days_ago else time.time
    with Store(path, RUN, path.stem, capacity, codec, clock=clock) as store:
        gate = Gate(store, IndexedStream(samples), **arguments)
        for number in range(1, 2 + (len(samples) - 1) // capacity):
            count = min(capacity, len(samples) - (number - 1) * capacity)
            order = Order(
                run=RUN, round_number=number, price=2.5, retention="oldest_first", count=count
            )
            gate.apply(order)
        assert store.books().admitted == len(samples)


def as_plain(value: Any) -> Any:
    """Whatever a reader gives, as lists, dictionaries and numbers."""
    if isinstance(value, dict):
        return {name: as_plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim):
        return [as_plain(part) for part in value]
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, np.generic | np.ndarray):
        return value.item()
    if isinstance(value, Image.Image):
        return np.asarray(value).tolist()
    return value


def without_images(row: dict[str, Any]) -> dict[str, Any]:
    """A sample of ``ROWS`` as a table has it, but for its image."""
    plain = as_plain({name: value for name, value in row.items() if name != "image"})
    plain["found"]["kinds"] = dict(
        zip(("field_0", "field_1"), plain["found"]["kinds"], strict=True)
    )
    return {"field_key" if name == "key" else name: value for name, value in plain.items()}


def pixels(png: bytes, tmp_path: Path) -> Any:
    (tmp_path / "x.png").write_bytes(png)
    return as_plain(Image.open(tmp_path / "x.png"))


@pytest.mark.long
def test_pandas_and_datasets_read_the_same_values(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    begun = datetime.now(UTC).replace(microsecond=0)
    fill(tmp_path / "a" / "site-0.sqlite", ROWS, group=lambda row: row["name"][:8])
    out = tmp_path / "out.parquet"
    told, _ = tell(capfd, tmp_path / "a", "--to", out)
    assert "3 samples of 1 buffer in " in told
    assert "forget and limits in days do not" in told
    frame = pd.read_parquet(out).astype(object)
    frame = frame.where(frame.notna(), None)
    rows = load_dataset(
        "parquet", data_files=str(out), split="train", cache_dir=str(tmp_path / "cache")
    )
    for readback in (frame.to_dict("records"), list(rows)):
        for number, (got, row) in enumerate(zip(readback, ROWS, strict=True)):
            assert pixels(got.pop("image"), tmp_path) == as_plain(row["image"])
            ours = [got.pop(name) for name in ("run", "client", "group", "bought_round", "price")]
            assert ours == [RUN, "site-0", f"sample {number}", 1, 2.5]
            assert (got.pop("state"), str(got.pop("key"))[: len(RUN)]) == ("stored", RUN)
            assert begun <= got.pop("held_since") <= datetime.now(UTC)
            assert as_plain(got) == without_images(row)
    assert parquet.read_schema(out).field("volume").type.value_type.value_type.value_type == "float"


def test_a_folder_has_a_table_and_a_file_for_what_has_no_room_in_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fill(tmp_path / "a" / "site-0.sqlite", ROWS)
    out = tmp_path / "out"
    out.mkdir(mode=0o755)  # an empty one may be there
    told = json.loads(tell(capfd, tmp_path / "a", "--to", out, "--json")[0])
    assert told == {"out": str(out), "samples": 3, "buffers": 1, "failed": [], "unreadable": []}
    table = pd.read_csv(out / "samples.csv")
    assert {path.stat().st_mode & 0o077 for path in [out, *out.iterdir()]} == {0}
    for row, got in zip(ROWS, table.to_dict("records"), strict=True):
        for name in ("volume", "half", "brain", "big-endian"):
            assert as_plain(np.load(out / got[name])) == as_plain(row[name])
        assert as_plain(Image.open(out / got["image"])) == as_plain(row["image"])
        assert (out / got["photo"]).read_bytes() == JPEG
        assert got["photo"].endswith(".jpg")
        assert (out / got["report"]).read_text() == row["report"]
        assert json.loads((out / got["found"]).read_text()) == as_plain(row["found"])
        assert json.loads((out / got["words"]).read_text()) == row["words"]
        assert np.float32(got["loss"]) == row["loss"]
        assert (got["share"], got["is_new"]) == (row["share"], row["is_new"])
        assert (got["name"], got["field_key"], got["state"]) == (row["name"], row["key"], "stored")
    assert [None if np.isnan(label) else label for label in table["label"]] == [0, None, 2]


@pytest.mark.parametrize("ending", ["", ".parquet"])
def test_every_buffer_is_exported_with_what_it_keeps_beside_it(
    ending: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pairs = [(np.arange(number), number) for number in range(5)]
    fill(tmp_path / "a" / "first.sqlite", pairs, 2, keep_bought=True)
    fill(tmp_path / "a" / "second.db", [(np.ones(1), 9)])
    out = tmp_path / f"out{ending}"
    tell(capfd, tmp_path / "a", "--to", out)
    table = pd.read_parquet(out) if ending else pd.read_csv(out / "samples.csv")
    first = table[table["client"] == "first"]
    assert [*first["field_1"].astype(int)] == [0, 1, 2, 3, 4]
    assert [*first["bought_round"]] == [1, 1, 2, 2, 3]
    assert [*first["state"]] == ["kept", "kept", "kept", "stored", "stored"]
    assert {*table["client"]} == {"first", "second"}


def test_one_buffer_and_samples_that_are_no_tuples(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fill(tmp_path / "a" / "first.sqlite", [1, 2.5, None])
    fill(tmp_path / "a" / "second.sqlite", ["text"])
    tell(capfd, tmp_path / "a" / "first.sqlite", "--to", tmp_path / "out.parquet")
    assert parquet.read_table(tmp_path / "out.parquet")["field_0"].to_pylist() == [1, 2.5, None]
    error = tell(capfd, tmp_path / "a", "--to", tmp_path / "all.parquet", code=2)[1]
    assert "Field field_0 has incompatible types: double vs string" in error
    assert "export each buffer for itself, or to a folder" in error
    assert not [*tmp_path.glob("all*")]
    tell(capfd, tmp_path / "a", "--to", tmp_path / "all")


@pytest.mark.parametrize("size", [10, 1_000_000], ids=["in the file", "beside it"])
def test_nothing_of_a_forgotten_person_is_left_or_leaves(
    size: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """In buffer, archive and large contents, and in an export that begins afterwards."""
    folder = tmp_path / "a"
    samples = [
        (NAME if number % 2 else "another", content(number), bytes(size)) for number in range(6)
    ]
    samples = [(whose, text, text.encode() + more) for whose, text, more in samples]
    fill(folder / "site.sqlite", samples, 3, keep_bought=True, subject=lambda sample: sample[0])

    def texts(place: Path) -> set[int]:
        """The numbers of the samples whose bytes are somewhere below a folder."""
        stored = b"".join(path.read_bytes() for path in place.rglob("*") if path.is_file())
        return {number for number in range(6) if content(number).encode() in stored}

    tell(capfd, folder, "--to", tmp_path / "before")
    assert texts(folder) == texts(tmp_path / "before") == {*range(6)}
    with pytest.raises(SystemExit):
        main(["forget", str(folder), "--subject", NAME])
    tell(capfd, folder, "--to", tmp_path / "after")
    tell(capfd, folder, "--to", tmp_path / "after.parquet")
    assert texts(folder) == texts(tmp_path / "after") == {0, 2, 4}
    rows = parquet.read_table(tmp_path / "after.parquet")
    assert rows["field_1"].to_pylist() == [content(number) for number in (0, 2, 4)]


def test_what_training_does_not_see_stays_behind(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Samples past their limit, or of somebody on the list, that no sweep has deleted yet."""
    folder = tmp_path / "a"
    whose: dict[str, Any] = {"subject": lambda sample: sample, "keep_at_most": "30d"}
    fill(folder / "old.sqlite", [content(0)], days_ago=40, **whose)
    fill(folder / "young.sqlite", [content(1), NAME], days_ago=20, **whose)
    Forgotten(folder).add(NAME)
    tell(capfd, folder, "--to", tmp_path / "out")
    assert [*pd.read_csv(tmp_path / "out" / "samples.csv")["field_0"]] == [content(1)]
    error = tell(capfd, folder / "old.sqlite", "--to", tmp_path / "none", code=2)[1]
    assert "all samples are past their limit in days, or of somebody who is forgotten" in error
    (folder / "forgotten.json").unlink()
    assert "is missing, but " in tell(capfd, folder, "--to", tmp_path / "none", code=2)[1]
    assert not [*tmp_path.glob("none*")]


def test_an_export_ends_if_somebody_is_forgotten_meanwhile(tmp_path: Path) -> None:
    fill(tmp_path / "site.sqlite", [NAME, "another"], subject=lambda sample: sample)
    with HeldSamples(tmp_path / "site.sqlite") as samples:
        ((first, _),) = samples.groups(lambda held: held.sample)
        samples.check()
        assert first == NAME
        Forgotten(tmp_path).add(NAME)
        with pytest.raises(ConfigurationError, match=r"forgotten in .* meanwhile; export again"):
            samples.check()


class Backwards:
    """A codec that only the app knows."""

    def encode(self, sample: str) -> bytes:
        return sample[::-1].encode()

    def decode(self, data: bytes) -> str:
        return data.decode()[::-1]


def lose_content(path: Path) -> None:
    with sqlite3.connect(path) as file:
        file.execute("DELETE FROM contents WHERE number = 1")
    file.close()


def test_what_cannot_be_read_is_named_and_the_others_are_exported(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "a"
    fill(folder / "own.sqlite", ["one text", "another one"], codec=Backwards())
    alone = tell(capfd, folder, "--to", tmp_path / "none", code=2)[1]
    assert "nothing can be exported: 2 failed; the first, r/own/" in alone
    assert not [*tmp_path.glob("none*")]
    fill(folder / "torn.sqlite", [1.5, 2.5])
    lose_content(folder / "torn.sqlite")
    (folder / "damaged.sqlite").write_bytes(b"no database")
    told, _ = tell(capfd, folder, "--to", tmp_path / "out.parquet", "--json", code=1)
    facts = json.loads(told)
    assert (facts["samples"], facts["buffers"], len(facts["unreadable"])) == (1, 2, 3)
    damaged, own, torn = sorted(facts["failed"])
    assert "damaged.sqlite cannot be read" in damaged
    assert "own.sqlite: 2 of 2 samples cannot be exported; the first, r/own/" in own
    assert own.endswith("or was packed by a codec of the app's own")
    assert "torn.sqlite: 1 of 2 samples cannot" in torn
    assert "its content is missing" in torn
    assert parquet.read_table(tmp_path / "out.parquet")["field_0"].to_pylist() == [2.5]


def test_what_parquet_has_not_is_named_and_a_folder_takes_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fill(tmp_path / "a" / "site.sqlite", [np.array([1j]), np.array([2.0])])
    error = tell(capfd, tmp_path / "a", "--to", tmp_path / "out.parquet", code=1)[1]
    assert "1 of 2 samples cannot be exported; the first, r/site/" in error
    assert "ArrowNotImplementedError: Unsupported numpy type" in error
    tell(capfd, tmp_path / "a", "--to", tmp_path / "out")
    assert np.load(tmp_path / "out" / "000001_0.npy") == [1j]


def test_large_integers_beside_fractions_are_not_rounded(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fill(tmp_path / "a" / "site.sqlite", [2**53 + 1, 0.5])
    error = tell(capfd, tmp_path / "a", "--to", tmp_path / "out.parquet", code=2)[1]
    assert "one table cannot hold all samples (Integer value 9007199254740993" in error
    assert not [*tmp_path.glob("out*")]


def test_a_place_that_is_taken_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fill(tmp_path / "a" / "site.sqlite", ["text"])
    for place, reason in {
        tmp_path / "a": "exists, and is not empty",
        tmp_path / "full.parquet": "exists, and is not empty",
        tmp_path / "empty": "it is a file; end its name in .parquet",
        tmp_path / "folder.parquet": "it is a folder; name a file",
        tmp_path / "no" / "out.parquet": "its folder does not exist",
        tmp_path / "left": "is left of an export that was ended; delete it first",
    }.items():
        (tmp_path / "full.parquet").write_text("x")
        (tmp_path / "empty").touch()
        (tmp_path / "folder.parquet").mkdir(exist_ok=True)
        (tmp_path / "left.part").mkdir(exist_ok=True)
        assert reason in tell(capfd, tmp_path / "a", "--to", place, code=2)[1]
    (tmp_path / "nothing").mkdir()
    error = tell(capfd, tmp_path / "nothing", "--to", tmp_path / "out", code=2)[1]
    assert "nothing holds no complete sample" in error


def test_a_missing_extra_is_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "a" / "site.sqlite", ["text"])
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    error = tell(capfd, tmp_path / "a", "--to", tmp_path / "out.parquet", code=2)[1]
    assert "pip install 'tidegate[export]', or export to a folder" in error
    tell(capfd, tmp_path / "a", "--to", tmp_path / "out")


@pytest.mark.process
@pytest.mark.parametrize("ending", ["", ".parquet"])
def test_a_killed_export_leaves_nothing_under_its_name(
    ending: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All is written, and the next step would give it its name."""
    fill(tmp_path / "a" / "site.sqlite", [content(1)])
    out = tmp_path / f"out{ending}"
    worker = os.fork()
    if not worker:
        for name in ("rename", "replace"):
            monkeypatch.setattr(Path, name, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        main(["export", str(tmp_path / "a"), "--to", str(out)])
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]) == -signal.SIGKILL
    left = out.with_name(f"{out.name}.part")
    assert not out.exists()
    assert stat.S_IMODE(left.stat().st_mode) & 0o077 == 0
    assert "delete it first" in tell(capfd, tmp_path / "a", "--to", out, code=2)[1]


def test_samples_are_read_in_groups(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Of eight megabytes: a table has a group of rows for each."""
    volume = RNG.integers(0, 256, 700_000, dtype=np.uint8)
    fill(tmp_path / "a" / "site.sqlite", [volume] * 30)
    tell(capfd, tmp_path / "a", "--to", tmp_path / "out.parquet")
    about = parquet.ParquetFile(tmp_path / "out.parquet")
    rows = [about.metadata.row_group(n).num_rows for n in range(about.num_row_groups)]
    assert sum(rows) == 30
    assert max(rows) <= BYTES_AT_ONCE // 700_000
    assert about.read_row_group(2)["field_0"][0].as_py() == volume.tolist()
