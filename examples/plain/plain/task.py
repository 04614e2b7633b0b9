"""A softmax regression on handwritten digits."""

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

Weights = list[NDArray[np.float64]]
Dataset = list[tuple[NDArray[np.float64], int]]


def load_data(partition: int, partitions: int) -> Dataset:
    """A node's own images with their labels."""
    images, labels = load_digits(return_X_y=True)
    mine = range(partition, len(labels), partitions)
    return [(images[one] / 16, int(labels[one])) for one in mine]


def train(weights: Weights, data: Dataset, steps: int, rate: float) -> tuple[Weights, float]:
    """Gradient steps on all of a data set."""
    weight, bias = (one.copy() for one in weights)
    images = np.stack([image for image, _ in data])
    labels = np.array([label for _, label in data])
    loss = 0.0
    for _ in range(steps):
        scores = images @ weight + bias
        likely = np.exp(scores - scores.max(axis=1, keepdims=True))
        likely /= likely.sum(axis=1, keepdims=True)
        loss = -float(np.log(likely[range(len(labels)), labels]).mean())
        likely[range(len(labels)), labels] -= 1
        weight -= rate * images.T @ likely / len(labels)
        bias -= rate * likely.mean(axis=0)
    return [weight, bias], loss
