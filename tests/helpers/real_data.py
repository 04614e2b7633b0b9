"""Where real data lie: in the folder that ``TIDEGATE_DATA`` names, or in ``../shared/data``."""

import os
from pathlib import Path

import pytest

DATA = Path(
    os.environ.get("TIDEGATE_DATA", Path(__file__).parents[3] / "shared" / "data")
).absolute()

needs_mnist = pytest.mark.skipif(
    not (DATA / "MNIST" / "raw").is_dir(),
    reason=f"no MNIST: {DATA / 'MNIST' / 'raw'} is missing; set TIDEGATE_DATA",
)
