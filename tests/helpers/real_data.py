"""Where real data lie: in the folder that ``TIDEGATE_DATA`` names, or in ``../shared/data``.

A test that reads some says which, ``@pytest.mark.data("mnist")``, and is skipped where they are
missing.
"""

import os
from pathlib import Path

import pytest

DATA = Path(
    os.environ.get("TIDEGATE_DATA", Path(__file__).parents[3] / "shared" / "data")
).absolute()
WHERE = {
    "mnist": "MNIST/raw",
    "cifar10": "cifar-10-batches-py",
    "imagenette": "imagenette",
    "hapt": "streams/hapt.npz",
    "electricity": "streams/elec.csv.xz",
    "flower-apps": "../flower-apps",  # copies of Flower's own quickstarts, beside the data
}

needs_mnist = pytest.mark.data("mnist")


def missing(name: str) -> str:
    """Why a data set cannot be read here; empty if it can."""
    file = DATA / WHERE[name]
    return "" if file.exists() else f"no {name}: {file} is missing; set TIDEGATE_DATA"
