"""Model and training: nothing in this file knows Flower or Tidegate."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from showcase.data import ACTIVITIES, Readings

Floats = NDArray[np.float64]
Sample = tuple[Readings, int]
"""A window, and the number of its activity."""
Weights = dict[str, Floats]

BANDS = 8
BAND = 4
"""Frequencies in a band: a step of 0.39 Hz each."""


def features(windows: Readings) -> Floats:
    """Sixty numbers a window: mean, spread, and strength in eight bands up to 12.5 Hz, a channel.

    Args:
        windows: one or more, (windows, channels, steps).
    """
    values = windows.astype(np.float64)
    mean = values.mean(axis=2)
    spectrum = np.abs(np.fft.rfft(values - mean[:, :, None], axis=2))[:, :, 1 : 1 + BANDS * BAND]
    bands = np.log1p(spectrum.reshape(*mean.shape, BANDS, BAND).mean(axis=3))
    return np.concatenate([mean, values.std(axis=2), bands.reshape(len(values), -1)], axis=1)


def new_model(channels: int = 6) -> Weights:
    """A softmax regression that knows nothing yet."""
    return {
        "weight": np.zeros((channels * (2 + BANDS), len(ACTIVITIES))),
        "bias": np.zeros(len(ACTIVITIES)),
    }


def probabilities(model: Weights, values: Floats) -> Floats:
    """How likely each activity is; one row for each row of features."""
    scores = values @ model["weight"] + model["bias"]
    grown = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares: Floats = grown / grown.sum(axis=1, keepdims=True)
    return shares


def train(
    model: Weights, samples: Sequence[Sample], steps: int, learning_rate: float
) -> tuple[Weights, float]:
    """Gradient steps on all samples; the model after them, and the last loss."""
    values = features(np.stack([window for window, _ in samples]))
    labels = np.array([label for _, label in samples])
    weight, bias = model["weight"].copy(), model["bias"].copy()
    loss = 0.0
    for _ in range(steps):
        likely = probabilities({"weight": weight, "bias": bias}, values)
        loss = -float(np.log(likely[range(len(labels)), labels]).mean())
        likely[range(len(labels)), labels] -= 1
        weight -= learning_rate * values.T @ likely / len(labels)
        bias -= learning_rate * likely.mean(axis=0)
    return {"weight": weight, "bias": bias}, loss


def accuracy(model: Weights, values: Floats, labels: NDArray[np.int64]) -> float:
    """The part of the windows whose activity the model names correctly."""
    return float((probabilities(model, values).argmax(axis=1) == labels).mean())
