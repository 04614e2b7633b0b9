"""Frozen features of images, so that a linear model can compare policies in seconds.

Filters are learned without labels, from images that are taken out of the training part: the centres
of spherical k-means on whitened patches of 6x6 pixels. An image's features are the filters'
responses, rectified both ways and averaged over each quarter of the image (Coates, Lee and Ng, "An
analysis of single-layer networks in unsupervised feature learning", 2011).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from datasets import ClassLabel, Dataset, DatasetDict, Features, Sequence, Value
from numpy.typing import NDArray

from tidegate._internal.randomness import generator

PATCH = 6
FILTERS = 128
HELD_OUT = 2000
"""The most images that filters are learned from; no client trains on them."""
HELD_OUT_SHARE = 1 / 25
"""The part of the training images that filters are learned from, up to ``HELD_OUT``."""
FEWEST_HELD_OUT = 100
"""The fewest such images, or half of the training images if that is less."""
PATCHES = 60_000
REGULARISATION = 0.1
"""Added to the eigenvalues of whitening."""
CONTRAST = 10.0
"""Added to the variance of a patch, in units of bytes, so that flat patches stay flat."""
STEPS = 10
"""The iterations of k-means."""
THRESHOLD = 0.25
BATCH = 100
SEED = 0

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Filters:
    """Filters that turn images into features."""

    mean: Floats
    weights: Floats
    """Whitening and filters in one: one column a filter."""
    centre: Floats
    """The mean of each feature over the images that filters were learned from."""
    spread: Floats

    def __call__(self, images: NDArray[np.uint8]) -> Floats:
        """Return features of images, one row each, with mean about 0 and deviation about 1."""
        rows = np.concatenate([_pooled(part, self.mean, self.weights) for part in _parts(images)])
        return (rows - self.centre) / self.spread


def learn_filters(images: NDArray[np.uint8]) -> Filters:
    """Learn filters from images without labels, of height x width x channels."""
    draw = generator(SEED)
    each = max(PATCHES // len(images), 1)
    patches = np.concatenate([_some(part, each, draw) for part in _parts(images)])
    mean = patches.mean(axis=0)
    values, vectors = np.linalg.eigh(np.cov((patches - mean).T))
    whitening = (vectors / np.sqrt(values + REGULARISATION)) @ vectors.T
    white = (patches - mean) @ whitening.astype(np.float32)
    centres = draw.standard_normal((FILTERS, white.shape[1]), dtype=np.float32)
    for _ in range(STEPS):
        centres /= np.linalg.norm(centres, axis=1, keepdims=True) + 1e-10
        likeness = white @ centres.T
        nearest = np.abs(likeness).argmax(axis=1)
        centres = centres.copy()
        for number in range(FILTERS):
            mine = nearest == number
            if mine.any():
                centres[number] = likeness[mine, number] @ white[mine]
    centres /= np.linalg.norm(centres, axis=1, keepdims=True) + 1e-10
    weights = (whitening @ centres.T).astype(np.float32)
    rows = np.concatenate([_pooled(part, mean, weights) for part in _parts(images)])
    return Filters(mean, weights, rows.mean(axis=0), rows.std(axis=0) + 1e-6)


def with_features(data: DatasetDict) -> DatasetDict:
    """Return the samples with features in place of images, without those for the filters."""
    train = data["train"].shuffle(seed=SEED)
    some = max(int(HELD_OUT_SHARE * len(train)), FEWEST_HELD_OUT)
    held_out = min(HELD_OUT, some, len(train) // 2)
    filters = learn_filters(_images(train.select(range(held_out))))
    parts = {"train": train.select(range(held_out, len(train))), "test": data["test"]}
    return DatasetDict({split: _with_features(rows, filters) for split, rows in parts.items()})


def _with_features(rows: Dataset, filters: Filters) -> Dataset:
    made = filters(_images(rows))
    names: ClassLabel = rows.features["label"]
    features = Features({"features": Sequence(Value("float32"), made.shape[1]), "label": names})
    return Dataset.from_dict({"features": made, "label": rows["label"]}, features=features)


def _images(rows: Dataset) -> NDArray[np.uint8]:
    images = np.stack([np.asarray(one) for one in rows["image"]])
    return images if images.ndim == 4 else images[..., None]


def _parts(images: NDArray[np.uint8]) -> Iterator[NDArray[np.uint8]]:
    for start in range(0, len(images), BATCH):
        yield images[start : start + BATCH]


def _size(images: NDArray[np.uint8]) -> int:
    return PATCH * PATCH * int(images.shape[-1])


def _patches(images: NDArray[np.uint8]) -> Floats:
    """Return every patch of some images, by image, row and column, with mean 0 and deviation 1."""
    values = images.astype(np.float32)
    windows: Any = np.lib.stride_tricks.sliding_window_view(values, (PATCH, PATCH), axis=(1, 2))
    flat = windows.reshape(*windows.shape[:3], _size(images))
    flat = flat - flat.mean(axis=-1, keepdims=True)
    made: Floats = flat / np.sqrt(flat.var(axis=-1, keepdims=True) + CONTRAST)
    return made


def _some(images: NDArray[np.uint8], each: int, draw: np.random.Generator) -> Floats:
    """Return ``each`` random patches of each image."""
    patches = _patches(images).reshape(len(images), -1, _size(images))
    places = draw.integers(patches.shape[1], size=(len(images), each))
    return np.take_along_axis(patches, places[..., None], axis=1).reshape(-1, _size(images))


def _pooled(images: NDArray[np.uint8], mean: Floats, weights: Floats) -> Floats:
    """Return both signs of every filter's response, averaged over the quarters of each image."""
    responses = (_patches(images) - mean) @ weights
    rows, columns = responses.shape[1] // 2, responses.shape[2] // 2
    both = np.concatenate(
        [np.maximum(responses - THRESHOLD, 0), np.maximum(-responses - THRESHOLD, 0)], axis=-1
    )
    quarters = [
        both[:, down, across].mean(axis=(1, 2))
        for down in (slice(None, rows), slice(rows, None))
        for across in (slice(None, columns), slice(columns, None))
    ]
    made: Floats = np.concatenate(quarters, axis=1)
    return made
