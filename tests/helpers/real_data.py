"""Where real data lie: in the folder that ``TIDEGATE_DATA`` names, or in ``../shared/data``."""

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
}

needs_mnist = pytest.mark.skipif(
    not (DATA / WHERE["mnist"]).is_dir(),
    reason=f"no MNIST: {DATA / WHERE['mnist']} is missing; set TIDEGATE_DATA",
)
