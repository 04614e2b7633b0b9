"""Original files -> folders -> each client's samples, on small files made here."""

import gzip
import io
import lzma
import pickle
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, Image, Value
from PIL import Image as Picture
from real_data import DATA, needs_mnist

from experiments.tool.data import FederatedData
from experiments.tool.prepare import SOURCES, extract
from tidegate.errors import ConfigurationError

Array = np.ndarray[Any, np.dtype[Any]]


def idx(values: Array) -> bytes:
    header = bytes([0, 0, 8, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape)
    return gzip.compress(header + values.astype(np.uint8).tobytes())


def mnist_files(folder: Path) -> tuple[Array, Array]:
    raw = folder / "MNIST" / "raw"
    raw.mkdir(parents=True)
    draw = np.random.default_rng(0)
    images, labels = draw.integers(0, 256, (40, 28, 28)), np.arange(40) % 10
    for part in ("train", "t10k"):
        (raw / f"{part}-images-idx3-ubyte.gz").write_bytes(idx(images))
        (raw / f"{part}-labels-idx1-ubyte.gz").write_bytes(idx(labels))
    return images, labels


def test_mnist_is_read_pixel_by_pixel(tmp_path: Path) -> None:
    images, labels = mnist_files(tmp_path)
    SOURCES["mnist"](tmp_path, None).save_to_disk(tmp_path / "made")
    data = FederatedData(str(tmp_path / "made"))
    inputs, found = data.test_arrays()
    np.testing.assert_array_equal(inputs[:, 0], images)
    np.testing.assert_array_equal(found, labels)
    assert (data.num_classes, data.input_shape) == (10, (1, 28, 28))
    some, few = data.test_arrays(10)
    assert some.shape == (10, 1, 28, 28)
    assert few[0] == labels[0]
    assert few[-1] == labels[-1]


@pytest.mark.parametrize("packed", [True, False])
def test_cifar_is_read_pixel_by_pixel(tmp_path: Path, packed: bool) -> None:
    draw = np.random.default_rng(1)
    written = []
    for name in [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]:
        pixels = draw.integers(0, 256, (4, 3072)).astype(np.uint8)
        content = pickle.dumps({b"data": pixels, b"labels": [1, 2, 3, 4]}, protocol=2)
        written.append(pixels)
        path = tmp_path / (f"{name}.xz" if packed else name)
        path.write_bytes(lzma.compress(content) if packed else content)
    found = SOURCES["cifar10"](tmp_path, None)
    assert len(found["train"]) == 20
    shown = np.asarray(found["test"][2]["image"])
    np.testing.assert_array_equal(np.moveaxis(shown, -1, 0).ravel(), written[-1][2])
    assert found["train"].features["label"].names[0] == "airplane"


def test_a_pickle_that_would_run_something_is_refused(tmp_path: Path) -> None:
    class Harmful:
        def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
            return print, ("run",)

    (tmp_path / "data_batch_1").write_bytes(pickle.dumps(Harmful()))
    with pytest.raises(pickle.UnpicklingError, match="must not contain builtins"):
        SOURCES["cifar10"](tmp_path, None)


def test_imagenette_is_unpacked_and_made_smaller(tmp_path: Path) -> None:
    (tmp_path / "imagenette").mkdir()
    with tarfile.open(tmp_path / "imagenette" / "imagenette-small.tar.xz", "w:xz") as tar:
        for split, folder, shade in (
            ("train", "n01440764", 20), ("train", "n03888257", 200), ("val", "n03888257", 210),
        ):  # fmt: skip
            picture = io.BytesIO()
            if shade == 20:
                Picture.new("L", (80, 96), shade).save(picture, "JPEG")
            else:
                Picture.new("RGB", (96, 96), (shade, shade, shade)).save(picture, "JPEG")
            entry = tarfile.TarInfo(f"small/{split}/{folder}/{shade}.JPEG")
            entry.size = len(picture.getvalue())
            tar.addfile(entry, io.BytesIO(picture.getvalue()))
    found = SOURCES["imagenette"](tmp_path, 24)
    assert found["train"].features["label"].names == ["tench", "parachute"]
    assert sorted(found["train"]["label"]) == [0, 1]
    (row,) = found["test"]
    image = np.asarray(row["image"])
    assert image.shape == (24, 24, 3)
    assert abs(int(image.mean()) - 210) <= 2
    with pytest.raises(ValueError, match="images have 2 sizes; bring them to one with --size"):
        SOURCES["imagenette"](tmp_path, None)
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr(tarfile, "data_filter", raising=False)  # as in Python 3.11.2
        with tarfile.open(tmp_path / "imagenette" / "imagenette-small.tar.xz") as tar:
            extract(tar, str(tmp_path))
        with tarfile.open(tmp_path / "hostile.tar", "w") as tar:
            tar.addfile(tarfile.TarInfo("../elsewhere"))
        with (
            tarfile.open(tmp_path / "hostile.tar") as tar,
            pytest.raises(ConfigurationError, match=r"'../elsewhere', which is not a file inside"),
        ):
            extract(tar, str(tmp_path / "small"))
    unpacked = SOURCES["imagenette"](tmp_path / "small", 24)
    assert unpacked["train"]["label"][:] == found["train"]["label"][:]
    (tmp_path / "imagenette" / "imagenette2.tgz").touch()
    with pytest.raises(ValueError, match=r"holds imagenette-small.tar.xz, imagenette2.tgz; keep"):
        SOURCES["imagenette"](tmp_path, 24)


def test_hapt_keeps_basic_activities_and_tests_on_each_persons_last_recording(
    tmp_path: Path,
) -> None:
    length = 128 * 6
    recordings = np.repeat([1, 2, 3], 256)
    np.savez(
        tmp_path / "hapt.npz",
        signal=np.arange(length * 6).reshape(length, 6).astype(np.int16),
        scale=np.full(6, 0.5),
        experiment=recordings.astype(np.int8),
        win_start=np.array([0, 128, 256, 384, 512]),
        win_label=np.array([1, 7, 6, 2, 3]),
        win_subject=np.array([1, 1, 1, 2, 2]),
        activity=np.array(["none", "walk", "up", "down", "sit", "stand", "lie", "turn"]),
    )
    found = SOURCES["hapt"](tmp_path, None)
    # Label 7 is left out; person 1 has recordings 1 and 2, person 2 has 2 and 3.
    assert found["train"]["person"][:] == [1, 2]
    assert found["train"]["label"][:] == [0, 1]
    assert found["test"]["label"][:] == [5, 2]
    window = np.asarray(found["train"][1]["window"])
    assert window.shape == (6, 128)
    assert window[2, 3] == 0.5 * ((384 + 3) * 6 + 2)
    with pytest.raises(ValueError, match="--size is for images"):
        SOURCES["hapt"](tmp_path, 24)


def test_files_that_are_missing_are_named(tmp_path: Path) -> None:
    for name in SOURCES:
        with pytest.raises(ValueError, match=r"found no .* in .* or"):
            SOURCES[name](tmp_path, None)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """400 samples of 4 classes by 5 people; each image shows its own number."""
    numbers = np.arange(400)
    pixels = np.stack([numbers // 20, numbers % 20], axis=1).astype(np.uint8).reshape(-1, 1, 2)
    features = Features(
        {
            "image": Image(),
            "label": ClassLabel(names=list("abcd")),
            "person": Value("int32"),
        }
    )
    rows = {"image": list(pixels), "label": numbers % 4, "person": numbers % 5}
    made = Dataset.from_dict(rows, features=features)
    DatasetDict({"train": made, "test": made.select(range(8))}).save_to_disk(tmp_path / "small")
    return str(tmp_path / "small")


def parts(folder: str, how: str, count: int) -> list[list[tuple[int, int]]]:
    """(number, label) of all samples of each client."""
    found = []
    for client in range(count):
        mine = FederatedData(folder).partition(how, client, count, seed=1)
        samples = [mine[index] for index in range(len(mine))]
        found.append(
            [(20 * int(image[0, 0, 0]) + int(image[0, 0, 1]), label) for image, label in samples]
        )
    return found


@pytest.mark.parametrize("how", ["iid", "classes:2", "shuffled-classes:2", "by:person"])
def test_no_sample_belongs_to_two_clients(folder: str, how: str) -> None:
    count = 5 if how == "by:person" else 4
    numbers = [number for part in parts(folder, how, count) for number, _ in part]
    assert len(numbers) == len(set(numbers))
    if how != "shuffled-classes:2":
        assert len(numbers) == 400


def test_neighbouring_classes_and_people_stay_together(folder: str) -> None:
    for client, part in enumerate(parts(folder, "classes:2", 4)):
        assert {label for _, label in part} == {client, (client + 1) % 4}
    for part in parts(folder, "by:person", 5):
        assert len({number % 5 for number, _ in part}) == 1


@pytest.mark.full
@needs_mnist
def test_the_real_mnist(tmp_path: Path) -> None:
    made = SOURCES["mnist"](DATA, None)
    assert {split: len(rows) for split, rows in made.items()} == {"train": 60_000, "test": 10_000}
    assert np.bincount(made["test"]["label"])[0] == 980
