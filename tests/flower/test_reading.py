"""An array that was looked at reads as Flower's own does, and can take its place anywhere."""

import copy
import pickle

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, RecordDict

from tidegate.flower import flower_internals
from tidegate.flower.updates import UpdateCheck

MODEL = {
    "w": np.arange(6, dtype=np.float32).reshape(2, 3),
    "f": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "n": np.array(3, dtype=np.int64),
    "b": np.array([True, False]),
    "big": np.arange(4, dtype=">f8"),
}


def looked_at(name: str, values: np.ndarray) -> Array:
    """An array of a reply that the check has seen."""
    check = UpdateCheck(ArrayRecord({key: Array(own) for key, own in MODEL.items()}))
    arrays = ArrayRecord({name: Array(values)})
    check.check(RecordDict({"arrays": arrays}))
    return arrays[name]


@pytest.mark.parametrize("name", MODEL)
def test_it_reads_as_flowers_own(name: str) -> None:
    array, plain = looked_at(name, MODEL[name]), Array(MODEL[name])
    assert type(array) is flower_internals.Array
    read, expected = array.numpy(), plain.numpy()
    assert (read.dtype, read.shape) == (expected.dtype, expected.shape)
    assert read.tobytes(order="A") == expected.tobytes(order="A")
    assert read.flags.f_contiguous == expected.flags.f_contiguous
    assert read.flags.writeable
    read[...] = 0  # a copy, which a strategy may change
    assert np.array_equal(array.numpy(), MODEL[name])
    assert array == plain
    assert plain == array


def test_its_copies_read_as_it_does() -> None:
    array = looked_at("f", MODEL["f"])
    for same in (copy.copy(array), copy.deepcopy(array), pickle.loads(pickle.dumps(array))):  # noqa: S301
        assert same == array
        assert np.array_equal(same.numpy(), MODEL["f"])
        same.data = Array(np.ones(7)).data
        assert np.array_equal(same.numpy(), np.ones(7))


def test_it_is_sent_as_flowers_own() -> None:
    array, plain = looked_at("w", MODEL["w"]), Array(MODEL["w"])
    assert array.deflate() == plain.deflate()
    assert array.object_id == plain.object_id
    assert Array.inflate(array.deflate(), array.children) == plain
