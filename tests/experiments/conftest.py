"""A data set that is learned in seconds."""

import numpy as np
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, Image


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Four classes of 8x8 pictures that are easy to tell apart."""
    draw = np.random.default_rng(0)

    def rows(count: int) -> Dataset:
        labels = np.arange(count) % 4
        images = draw.integers(0, 80, (count, 8, 8))
        for label in range(4):
            corner = (slice(0, 4), slice(4, 8))
            images[labels == label, corner[label // 2], corner[label % 2]] += 120
        features = Features({"image": Image(), "label": ClassLabel(names=list("abcd"))})
        return Dataset.from_dict(
            {"image": list(images.astype(np.uint8)), "label": labels}, features=features
        )

    folder = tmp_path_factory.mktemp("data") / "small"
    DatasetDict({"train": rows(900), "test": rows(80)}).save_to_disk(folder)
    return str(folder)
