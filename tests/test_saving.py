import io
from dataclasses import dataclass

import numpy as np
import pytest

from tidegate import saving
from tidegate.arrays import CountArray
from tidegate.theory.reuse import ReuseTally


@dataclass(frozen=True, eq=False)
class Nested:
    tally: ReuseTally
    cohorts: tuple[CountArray, ...]
    weight: float


def there_and_back(state: Nested, template: Nested) -> Nested:
    file = io.BytesIO()
    saving.save(state, file)
    file.seek(0)
    return saving.restore(template, file)


def test_every_bit_comes_back() -> None:
    # Python integers may outgrow 64 bits, and do in a long run of a large fleet.
    cohorts = np.arange(3, dtype=np.int32), np.arange(2, dtype=np.int32)
    state = Nested(ReuseTally(3, 7, 2**80 + 1), cohorts, 0.1)
    back = there_and_back(state, Nested(ReuseTally(), (), 0.0))
    assert back.tally == state.tally
    assert back.weight == 0.1
    assert [array.tolist() for array in back.cohorts] == [[0, 1, 2], [0, 1]]
    assert all(array.dtype == np.int32 for array in back.cohorts)


def test_a_state_of_another_kind_is_refused() -> None:
    file = io.BytesIO()
    saving.save(ReuseTally(), file)
    file.seek(0)
    with pytest.raises(ValueError, match="saved by another policy or version"):
        saving.restore(Nested(ReuseTally(), (), 0.0), file)


def test_what_cannot_be_saved_is_named() -> None:
    with pytest.raises(TypeError, match="cannot save a set"):
        saving.save({1}, io.BytesIO())


def test_pickles_are_never_read() -> None:
    file = io.BytesIO()
    np.savez(file, tree=np.array([{"a": 1}], dtype=object))
    file.seek(0)
    with pytest.raises(ValueError, match="allow_pickle=False"):
        saving.restore(ReuseTally(), file)
