from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.client.codec import ArrayCodec

CODEC = ArrayCodec()
plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
samples = st.recursive(
    plain | st.binary(),
    lambda inner: st.tuples(inner, inner) | st.lists(inner) | st.dictionaries(st.text(), inner),
)


@pytest.mark.long  # structures in structures
@given(sample=samples)
def test_a_sample_comes_back_as_it_was(sample: Any) -> None:
    assert CODEC.decode(CODEC.encode(sample)) == sample


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.uint8).reshape(2, 3),
        np.float32(1.5),
        np.array([], dtype=np.int16),
        np.array(["ja", "nein"]),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(3, dtype=">i4"),
        np.array(["2026-01-01", "2026-01-02"], dtype="datetime64[D]"),
        np.array([(1, 2.0)], dtype=[("count", "i4"), ("value", "f8")]),
    ],
)
def test_arrays_keep_values_kind_and_shape(array: Any) -> None:
    back = CODEC.decode(CODEC.encode({"x": array, "y": 3}))["x"]
    assert back.dtype == np.asarray(array).dtype
    assert back.shape == np.shape(array)
    assert np.array_equal(back, array)
    assert back.flags.writeable


def test_keys_that_are_no_texts_are_refused() -> None:
    with pytest.raises(TypeError, match="keys are not texts"):
        CODEC.encode({1: "a", "1": "b"})


def test_objects_are_refused_not_pickled() -> None:
    with pytest.raises(TypeError, match="cannot store a set"):
        CODEC.encode({1, 2})


@pytest.mark.parametrize(
    "data", [b"", b"\x00" * 7 + b"\x09", (9).to_bytes(8, "big") + b'{"what":1']
)
def test_broken_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"cut short|empty|delimiter|Expecting"):
        CODEC.decode(data)


def test_an_unknown_part_is_refused() -> None:
    head = b'{"code": 1}'
    with pytest.raises(ValueError, match="unknown part 'code'"):
        CODEC.decode(len(head).to_bytes(8, "big") + head)


@pytest.mark.parametrize("kind", ["<i2", "|O"])
def test_an_array_that_does_not_fit_its_bytes_is_refused(kind: str) -> None:
    head, part = b'{"raw": [0, "%s", [2]]}' % kind.encode(), b"\x01" * 16
    data = b"".join(len(one).to_bytes(8, "big") + one for one in (head, part))
    with pytest.raises(ValueError, match=r"cannot reshape|OBJECT array"):
        CODEC.decode(data)
