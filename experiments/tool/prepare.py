"""Convert the original files of data sets into folders that ``datasets`` reads.

Nothing is downloaded: with a network, name a data set of the hub instead.
"""

import gzip
import io
import lzma
import pickle
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from datasets import (
    Array2D,
    ClassLabel,
    Dataset,
    DatasetDict,
    Features,
    Image,
    Value,
    disable_progress_bars,
    load_dataset,
)

from tidegate.errors import ConfigurationError

disable_progress_bars()

Array = np.ndarray[Any, np.dtype[Any]]

CIFAR10 = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
FASHION_MNIST = [
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
]
IMAGENETTE = {
    "n01440764": "tench",
    "n02102040": "English springer",
    "n02979186": "cassette player",
    "n03000684": "chain saw",
    "n03028079": "church",
    "n03394916": "French horn",
    "n03417042": "garbage truck",
    "n03425413": "gas pump",
    "n03445777": "golf ball",
    "n03888257": "parachute",
}
HAPT_BASIC = 6
"""The first six labels are activities; the others are transitions between two of them."""
HAPT_WINDOW = 128


def mnist(source: Path, size: int | None) -> DatasetDict:
    """Read the four ``*-ubyte.gz`` files."""
    return _idx_images(source, "MNIST/raw", [str(digit) for digit in range(10)], size)


def fashion_mnist(source: Path, size: int | None) -> DatasetDict:
    """Read four files with the names of MNIST's."""
    return _idx_images(source, "fashion-mnist", FASHION_MNIST, size)


def _idx_images(source: Path, usual: str, names: list[str], size: int | None) -> DatasetDict:
    folder = _find(source, usual, "train-images-idx3-ubyte.gz")
    return DatasetDict(
        {
            split: _images(
                _idx(folder / f"{part}-images-idx3-ubyte.gz").reshape(-1, 28, 28),
                _idx(folder / f"{part}-labels-idx1-ubyte.gz"),
                names,
                size,
            )
            for split, part in (("train", "train"), ("test", "t10k"))
        }
    )


def cifar10(source: Path, size: int | None) -> DatasetDict:
    """Read the six pickles, plain or packed with xz."""
    folder = _find(source, "cifar-10-batches-py", "data_batch_1*")
    parts = {"train": [f"data_batch_{number}" for number in range(1, 6)], "test": ["test_batch"]}
    made = {}
    for split, names in parts.items():
        batches = [_pickled(folder, name) for name in names]
        pixels = np.concatenate([one[b"data"] for one in batches]).reshape(-1, 3, 32, 32)
        labels = np.concatenate([one[b"labels"] for one in batches])
        made[split] = _images(np.moveaxis(pixels, 1, -1), labels, CIFAR10, size)
    return DatasetDict(made)


def extract(tar: tarfile.TarFile, folder: str) -> None:
    """Unpack files below a folder; Python before 3.11.4 has no filter for this."""
    if hasattr(tarfile, "data_filter"):
        tar.extractall(folder, filter="data")
        return
    root = Path(folder).resolve()
    for one in tar:
        if not (one.isdir() or one.isreg()) or not (root / one.name).resolve().is_relative_to(root):
            told = f"{tar.name!r} holds {one.name!r}, which is not a file inside its folder"
            raise ConfigurationError(f"{told}; use the archive of ImageNette as it is published")
        tar.extract(one, root)


def imagenette(source: Path, size: int | None) -> DatasetDict:
    """Read its tar file, or its folders ``train`` and ``val`` of JPEG files."""
    folder = _find(source, "imagenette", "imagenette*.t*", "train")
    with tempfile.TemporaryDirectory() as scratch:
        if (folder / "train").is_dir():
            root = folder
        else:
            packed, *more = sorted(folder.glob("imagenette*.t*"))
            if more:
                raise ConfigurationError(
                    f"{folder} holds {', '.join(one.name for one in (packed, *more))}; keep one"
                )
            with tarfile.open(packed) as tar:
                extract(tar, scratch)
            (root,) = Path(scratch).iterdir()
        loaded = load_dataset(
            "imagefolder", data_dir=str(root), cache_dir=str(Path(scratch) / "cache")
        )
        made = {}
        for split, part in (("train", "train"), ("test", "validation")):
            rows = loaded[part]
            names = [IMAGENETTE[name] for name in rows.features["label"].names]
            images = [_resized(row["image"].convert("RGB"), size) for row in rows]
            shapes = {image.shape for image in images}
            if len(shapes) > 1:
                raise ConfigurationError(
                    f"images have {len(shapes)} sizes; bring them to one with --size"
                )
            made[split] = _images(np.stack(images), np.array(rows["label"]), names, None)
    return DatasetDict(made)


def hapt(source: Path, size: int | None) -> DatasetDict:
    """Read windows of six basic activities, one person a client.

    Each person did all activities twice; the last recording of each is the test part.
    """
    if size is not None:
        raise ConfigurationError("--size is for images; HAPT has windows of sensor readings")
    path = _find(source, "streams", "hapt.npz") / "hapt.npz"
    with np.load(path, allow_pickle=False) as file:
        kept = file["win_label"] <= HAPT_BASIC
        starts, labels = file["win_start"][kept], file["win_label"][kept] - 1
        people, recordings = file["win_subject"][kept], file["experiment"][starts]
        readings = (file["signal"] * file["scale"]).astype(np.float32)
        names = [str(name) for name in file["activity"][1 : HAPT_BASIC + 1]]
    windows = readings[starts[:, None] + np.arange(HAPT_WINDOW)].transpose(0, 2, 1)
    last = {person: recordings[people == person].max() for person in np.unique(people)}
    tested = recordings == np.array([last[person] for person in people])
    features = Features(
        {
            "window": Array2D((readings.shape[1], HAPT_WINDOW), "float32"),
            "label": ClassLabel(names=names),
            "person": Value("int32"),
        }
    )
    made = {}
    for split, chosen in (("train", ~tested), ("test", tested)):
        columns = {"window": windows[chosen], "label": labels[chosen], "person": people[chosen]}
        made[split] = Dataset.from_dict(columns, features=features)
    return DatasetDict(made)


SOURCES: Mapping[str, Callable[[Path, int | None], DatasetDict]] = {
    "mnist": mnist,
    "fashion_mnist": fashion_mnist,
    "cifar10": cifar10,
    "imagenette": imagenette,
    "hapt": hapt,
}


def _find(source: Path, usual: str, *wanted: str) -> Path:
    """Return the folder with one of these files: the given one, or the usual one below it."""
    for folder in (source, source / usual):
        if any(any(folder.glob(one)) for one in wanted):
            return folder
    told = " or ".join(wanted)
    raise ConfigurationError(f"found no {told} in {source} or {source / usual}")


def _idx(path: Path) -> Array:
    """Return the bytes of an idx file after its header of 4 bytes, and 4 for each dimension."""
    content = gzip.decompress(path.read_bytes())
    return np.frombuffer(content, np.uint8, offset=4 + 4 * content[3])


class _ArraysOnly(pickle.Unpickler):
    """An unpickler that accepts only what CIFAR-10 files contain."""

    def find_class(self, module: str, name: str) -> Any:
        if (module.removeprefix("numpy.").replace("_core", "core"), name) in {
            ("core.multiarray", "_reconstruct"),
            ("numpy", "ndarray"),
            ("numpy", "dtype"),
            ("_codecs", "encode"),
        }:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(
            f"a CIFAR-10 file must not contain {module}.{name}; use the archive as it is published"
        )


def _pickled(folder: Path, name: str) -> dict[bytes, Any]:
    packed = folder / f"{name}.xz"
    raw = lzma.decompress(packed.read_bytes()) if packed.exists() else (folder / name).read_bytes()
    content: dict[bytes, Any] = _ArraysOnly(io.BytesIO(raw), encoding="bytes").load()
    return content


def _resized(picture: Any, size: int | None) -> Array:
    return np.asarray(picture if size is None else picture.resize((size, size)))


def _images(pixels: Array, labels: Array, names: list[str], size: int | None) -> Dataset:
    """Return images and labels in the format of the hub."""
    from PIL import Image as Picture  # noqa: PLC0415 - comes with datasets' images

    if size is not None:
        pixels = np.stack([_resized(Picture.fromarray(one), size) for one in pixels])
    features = Features({"image": Image(), "label": ClassLabel(names=names)})
    return Dataset.from_dict(
        {"image": list(pixels), "label": labels.astype(int)}, features=features
    )
