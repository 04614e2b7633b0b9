"""A convolutional network with BatchNorm, on handwritten digits."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader

torch.set_num_threads(1)  # sums of floats are then the same in every process

Sample = tuple[Any, int]
HELD_BACK = 297
"""Images that no client sees."""


def new_network() -> nn.Module:
    """The same at every call."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(),
        nn.Linear(256, 10),
    )  # fmt: skip


def _digits() -> list[Sample]:
    images, labels = load_digits(return_X_y=True)
    pictures = (images / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    return [(picture, int(label)) for picture, label in zip(pictures, labels, strict=True)]


def load_data(partition: int, partitions: int) -> list[Sample]:
    """A node's own images with their labels."""
    return _digits()[HELD_BACK + partition :: partitions]


def train(network: nn.Module, loader: Any, epochs: int, rate: float) -> float:
    """Gradient steps on batches."""
    network.train()
    optimizer = torch.optim.SGD(network.parameters(), lr=rate)
    for _ in range(epochs):
        for images, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(network(images), labels)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return float(loss.detach())


def shuffled(samples: Sequence[Sample], seed: int) -> "DataLoader[Sample]":
    """Batches in an order that the seed gives."""
    order = torch.Generator().manual_seed(seed)
    return DataLoader(samples, batch_size=32, shuffle=True, generator=order)  # type: ignore[arg-type]


def accuracy(network: nn.Module) -> float:
    """The part of images that no client sees which is named correctly."""
    network.eval()
    images, labels = zip(*_digits()[:HELD_BACK], strict=True)
    with torch.no_grad():
        named = network(torch.from_numpy(np.stack(images))).argmax(dim=1)
    return float((named == torch.tensor(labels)).float().mean())
