"""Updates are judged alike, whether their numbers are read or looked at where they lie."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, RecordDict

from tidegate.errors import WireError
from tidegate.flower.updates import UpdateCheck, check_array

MODEL = {
    "w": np.arange(6, dtype=np.float32).reshape(2, 3),
    "f": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "n": np.array(3, dtype=np.int64),
    "b": np.array([True, False]),
    "u": np.frombuffer(b"trees", dtype=np.uint8),
    "e": np.zeros((0, 4)),
}
INFINITE = np.array([[0, 1, 2], [3, np.inf, 5]], dtype=np.float32)
NO_NUMBER = np.array([[0, 1, 2], [3, np.nan, 5]], dtype=np.float32)
CASES = [
    *MODEL.items(),
    *(("w", INFINITE), ("w", NO_NUMBER), ("w", INFINITE.T), ("w", MODEL["w"].astype(np.float64))),
    *(("w", np.full((2, 3), 3e38, np.float32)), ("w", np.full((2, 3), -np.inf, np.float32))),
    *(("w", np.zeros((2, 4), np.float32)), ("w", MODEL["w"].astype(complex)), ("w", MODEL["n"])),
    *(("f", np.ascontiguousarray(MODEL["f"])), ("f", np.full((2, 3), np.nan, order="F"))),
    *(("n", np.array(2.5)), ("u", np.frombuffer(b"more trees", dtype=np.uint8))),
    *(("e", np.zeros((0, 5))), ("other", INFINITE), ("other", MODEL["w"])),
]


def verdict(check: UpdateCheck | None, name: str, array: Array) -> str:
    try:
        if check is not None:
            check.check(RecordDict({"arrays": ArrayRecord({name: array})}))
        else:
            check_array(name, array, Array(MODEL[name]) if name in MODEL else None)
    except WireError as refused:
        return str(refused)
    return "usable"


@pytest.mark.parametrize(("name", "values"), CASES)
def test_the_quick_look_and_the_slow_one_agree(name: str, values: np.ndarray) -> None:
    quick = UpdateCheck(ArrayRecord({key: Array(one) for key, one in MODEL.items()}))
    assert verdict(quick, name, Array(values)) == verdict(None, name, Array(values))


def test_bytes_that_are_cut_are_refused() -> None:
    quick = UpdateCheck(ArrayRecord({"w": Array(MODEL["w"])}))
    whole = Array(MODEL["w"])
    cut = Array(dtype=whole.dtype, shape=whole.shape, stype=whole.stype, data=whole.data[:-4])
    assert "cannot be read" in verdict(quick, "w", cut)


def test_a_model_that_numpy_did_not_write_is_read_array_by_array() -> None:
    odd = Array(dtype="float32", shape=(2, 3), stype="torch.tensor", data=b"something")
    quick = UpdateCheck(ArrayRecord({"w": odd}))
    assert verdict(quick, "w", Array(MODEL["w"])) == "usable"
    assert "not finite" in verdict(quick, "w", Array(INFINITE))


def test_numbers_whose_squares_are_too_large_are_finite() -> None:
    model = {
        "w": np.full((2, 3), 3e38, np.float32),
        "d": np.full(3, -1e300),
        "h": np.full(1, 6e4, np.float16),
    }
    arrays = ArrayRecord({name: Array(np.asarray(one)) for name, one in model.items()})
    UpdateCheck(arrays).check(RecordDict({"arrays": arrays}))
    for name, one in model.items():
        for wrong in (np.nan, np.inf, -np.inf):
            spoiled = np.array(one)
            spoiled[..., -1] = wrong
            reply = RecordDict({"arrays": ArrayRecord({name: Array(spoiled)})})
            with pytest.raises(WireError, match="not finite"):
                UpdateCheck(arrays).check(reply)
