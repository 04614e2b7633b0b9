"""Model, data and training: nothing in this file knows Flower or Tidegate. Put yours here."""

import functools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

Floats = NDArray[np.float64]
Sample = tuple[Floats, int]
"""An image of 64 pixels, and the digit that it shows."""
Weights = dict[str, Floats]

DIGITS = 10
PIXELS = 64
TEST_IMAGES = 497
RAREST = 30
"""How many times rarer a 9 is than a 0; each digit between them is rarer than the one before."""
RARE = 7
"""The first of the rare digits, which are judged on their own, too."""
IMAGES = 1000
"""What a client comes across, each time anew: a digit by its frequency."""


def new_model() -> Weights:
    """Return a new softmax regression, with all weights 0."""
    return {"weight": np.zeros((PIXELS, DIGITS)), "bias": np.zeros(DIGITS)}


@functools.cache
def load(part: str) -> tuple[Floats, NDArray[np.int64]]:
    """Load images and labels of the ``train`` or ``test`` part of 1,797 digits, 8 x 8 pixels."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    chosen = order[TEST_IMAGES:] if part == "train" else order[:TEST_IMAGES]
    return images[chosen] / 16, labels[chosen]


class Partition:
    """The images that one client comes across, one after another."""

    def __init__(self, number: int, seed: int) -> None:
        self._images, self._labels = load("train")
        frequency = RAREST ** (-np.arange(DIGITS) / (DIGITS - 1))
        chances = (frequency / np.bincount(self._labels))[self._labels]
        draw = np.random.default_rng([seed, number])
        self._order = draw.choice(len(chances), IMAGES, p=chances / chances.sum())

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, index: int) -> Sample:
        """Return one image and its label."""
        chosen = self._order[index]
        return self._images[chosen], int(self._labels[chosen])


def unseen(number: int, count: int) -> list[Sample]:
    """Return one client's share of the test images."""
    images, labels = load("test")
    return [(images[place], int(labels[place])) for place in range(number, len(labels), count)]


def train(
    model: Weights, samples: Sequence[Sample], steps: int, learning_rate: float
) -> tuple[Weights, float]:
    """Take gradient steps on all samples; return the model after them, and the last loss."""
    images = np.stack([image for image, _ in samples])
    labels = np.array([label for _, label in samples])
    weight, bias = model["weight"].copy(), model["bias"].copy()
    loss = 0.0
    for _ in range(steps):
        likely = _softmax(images @ weight + bias)
        loss = -float(np.log(likely[range(len(labels)), labels]).mean())
        likely[range(len(labels)), labels] -= 1
        weight -= learning_rate * images.T @ likely / len(labels)
        bias -= learning_rate * likely.mean(axis=0)
    return {"weight": weight, "bias": bias}, loss


def loss(model: Weights, samples: Sequence[Sample]) -> float:
    """Return the mean logarithmic loss on these samples."""
    labels = [label for _, label in samples]
    likely = probabilities(model, samples)
    return -float(np.log(likely[range(len(labels)), labels]).mean())


def probabilities(model: Weights, samples: Sequence[Sample]) -> Floats:
    """Return how likely each digit is, one row for each image; labels are not used."""
    images = np.stack([image for image, _ in samples])
    return _softmax(images @ model["weight"] + model["bias"])


def score(model: Weights) -> dict[str, float]:
    """Return the part of the test images that the model reads: of all, and of rare digits."""
    images, labels = load("test")
    is_right = (images @ model["weight"] + model["bias"]).argmax(axis=1) == labels
    rare = is_right[labels >= RARE]
    return {"accuracy": float(is_right.mean()), "rare digits read": float(rare.mean())}


def _softmax(scores: Floats) -> Floats:
    """Return the softmax of each row."""
    grown = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares: Floats = grown / grown.sum(axis=1, keepdims=True)
    return shares
