"""Names for the kinds of arrays that Tidegate passes around."""

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]
CountArray = NDArray[np.int32]
"""Samples held or admitted by each client: 4 bytes a client, up to 2,147,483,647 samples."""
Members = IntArray | slice
"""Clients by number: those of a cohort, or ``EVERYONE``. Any array of a fleet can be indexed by it,
and only a cohort is copied."""
EVERYONE = slice(None)
