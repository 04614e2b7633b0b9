"""Model, data and training: nothing in this file knows Flower or Tidegate."""

import functools
import gzip
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import nn

Sample = tuple[np.ndarray, int]


class LeNet(nn.Module):
    """LeNet-5 for 28x28 images: 61,706 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        )  # fmt: skip
        self.classifier = nn.Sequential(
            nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Ten scores an image."""
        scores: torch.Tensor = self.classifier(self.convolutions(images).flatten(1))
        return scores


def new_model(seed: int) -> LeNet:
    """A model whose first weights belong to a seed."""
    torch.manual_seed(seed)
    return LeNet()


@functools.cache
def load(folder: str, part: str) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels of MNIST's ``train`` or ``t10k`` part, from its four original files."""
    raw = Path(folder or os.environ.get("TIDEGATE_DATA", ".")) / "MNIST" / "raw"
    if not raw.is_dir():
        raise FileNotFoundError(
            f"{raw} is missing: give the folder that holds MNIST/raw/*.gz as `data` in the "
            "run-config, or set TIDEGATE_DATA"
        )
    images = gzip.decompress((raw / f"{part}-images-idx3-ubyte.gz").read_bytes())
    labels = gzip.decompress((raw / f"{part}-labels-idx1-ubyte.gz").read_bytes())
    return (
        np.frombuffer(images, np.uint8, offset=16).reshape(-1, 28, 28),
        np.frombuffer(labels, np.uint8, offset=8),
    )


class Partition:
    """The training images of two neighbouring digits, as one client sees them."""

    def __init__(self, folder: str, number: int, count: int, seed: int) -> None:
        self._images, self._labels = load(folder, "train")
        first = number * 10 // max(count, 1) % 10
        mine = np.flatnonzero(np.isin(self._labels, [first, (first + 1) % 10]))
        self._order = np.random.default_rng([seed, number]).permutation(mine)

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, index: int) -> Sample:
        """One image and its label."""
        chosen = self._order[index]
        return self._images[chosen], int(self._labels[chosen])


def _batch(samples: Sequence[Sample]) -> tuple[torch.Tensor, torch.Tensor]:
    images = np.stack([image for image, _ in samples])
    return _scaled(images), torch.tensor([label for _, label in samples])


def _scaled(images: np.ndarray) -> torch.Tensor:
    return torch.tensor(images, dtype=torch.float32).unsqueeze(1) / 255


def train(model: nn.Module, samples: Sequence[Sample], steps: int, learning_rate: float) -> float:
    """Full-batch gradient steps on all samples; the last loss."""
    images, labels = _batch(samples)
    optimiser = torch.optim.SGD(model.parameters(), lr=learning_rate)
    loss = torch.zeros(())
    for _ in range(steps):
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimiser.step()
    return loss.item()


@torch.no_grad()
def accuracy(model: nn.Module, folder: str) -> float:
    """The part of the 10,000 test images that the model names correctly."""
    images, labels = load(folder, "t10k")
    return float((model(_scaled(images)).argmax(1).numpy() == labels).mean())
