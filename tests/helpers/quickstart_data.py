"""Stands in for what Flower's quickstarts would download: their data sets, and torchvision."""

import sys
from types import ModuleType
from typing import Any

import datasets
import flwr_datasets
import numpy as np
import pytest
from sklearn.datasets import load_iris

CLASSES = 10


def _pictures(name: str, shape: tuple[int, ...], count: int, seed: int) -> datasets.Dataset:
    from PIL import Image

    draw = np.random.default_rng(seed)
    pixels = draw.integers(0, 256, size=(count, *shape), dtype=np.uint8)
    columns = {
        name: [Image.fromarray(one) for one in pixels],
        "label": draw.integers(0, CLASSES, count).tolist(),
    }
    features = datasets.Features({name: datasets.Image(), "label": datasets.Value("int64")})
    return datasets.Dataset.from_dict(columns, features=features)


def _flowers(count: int, seed: int) -> datasets.Dataset:
    found = load_iris()
    mine = np.random.default_rng(seed).permutation(len(found.target))[:count]
    names = ["sepal_length", "sepal_width", "petal_length", "petal_width"]
    columns = {name: found.data[mine, place] for place, name in enumerate(names)}
    return datasets.Dataset.from_dict({**columns, "species": found.target[mine]})


def _events(count: int, seed: int) -> datasets.Dataset:
    draw = np.random.default_rng(seed)
    inputs = draw.normal(size=(count, 28)).astype(np.float32)
    return datasets.Dataset.from_dict(
        {"inputs": inputs.tolist(), "label": (inputs[:, 0] > 0).astype(float).tolist()}
    )


def local(name: str, seed: int) -> datasets.Dataset:
    """A partition of a data set that is on a hub, in its form."""
    if name == "uoft-cs/cifar10":
        return _pictures("img", (32, 32, 3), 40, seed)
    if name == "ylecun/mnist":
        return _pictures("image", (28, 28), 40, seed)
    if name == "hitorilabs/iris":
        return _flowers(60, seed)
    assert name == "jxie/higgs", name
    return _events(50, seed)


class LocalPartitions:
    """In place of ``FederatedDataset``."""

    def __init__(self, dataset: str, partitioners: Any) -> None:
        self._name = dataset

    def load_partition(self, partition_id: int, split: str = "train") -> datasets.Dataset:
        return local(self._name, seed=partition_id)


def _torchvision() -> dict[str, ModuleType]:
    """As much of ``torchvision.transforms`` as a quickstart imports."""
    import torch

    class Compose:
        def __init__(self, steps: list[Any]) -> None:
            self._steps = steps

        def __call__(self, value: Any) -> Any:
            for step in self._steps:
                value = step(value)
            return value

    class ToTensor:
        def __call__(self, picture: Any) -> Any:
            return torch.from_numpy(np.array(picture)).permute(2, 0, 1).float() / 255

    class Normalize:
        def __init__(self, mean: Any, deviation: Any) -> None:
            self._mean, self._deviation = (
                torch.tensor(one).view(-1, 1, 1) for one in (mean, deviation)
            )

        def __call__(self, tensor: Any) -> Any:
            return (tensor - self._mean) / self._deviation

    package, transforms = ModuleType("torchvision"), ModuleType("torchvision.transforms")
    vars(transforms).update(Compose=Compose, ToTensor=ToTensor, Normalize=Normalize)
    return {"torchvision": package, "torchvision.transforms": transforms}


def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the apps find their data here."""
    monkeypatch.setattr(flwr_datasets, "FederatedDataset", LocalPartitions)
    split = datasets.Dataset.train_test_split

    def split_alike(self: datasets.Dataset, **named: Any) -> Any:
        return split(self, **{"seed": 0, **named})  # also where an app splits anew in every round

    monkeypatch.setattr(datasets.Dataset, "train_test_split", split_alike)
    batch = datasets.Dataset.batch

    def batch_here(self: datasets.Dataset, *given: Any, num_proc: int = 1, **named: Any) -> Any:
        return batch(self, *given, **named)  # not in other processes, for a handful of samples

    monkeypatch.setattr(datasets.Dataset, "batch", batch_here)
    monkeypatch.setattr(datasets, "load_dataset", lambda name, split: local(name, seed=99))
    for name, module in _torchvision().items():
        monkeypatch.setitem(sys.modules, name, module)
