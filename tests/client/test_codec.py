import collections
import datetime as dt
import enum
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from ml_dtypes import bfloat16
from PIL import Image

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
        np.array(1.5, dtype=np.float32),
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


@pytest.mark.parametrize(
    "number", [np.int64(7), np.float32(1.5), np.bool_(True), np.datetime64("2026-11")]
)
def test_a_number_of_numpy_stays_one(number: Any) -> None:
    back = CODEC.decode(CODEC.encode((number,)))[0]
    assert (type(back), back, hash(back)) == (type(number), number, hash(number))


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(6).reshape(2, 3).t(),
        torch.tensor(0.5),
        torch.zeros(0, 4),
        torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
        torch.tensor([True, False]),
        torch.ones(2, requires_grad=True),
    ],
)
def test_a_tensor_stays_one(tensor: torch.Tensor) -> None:
    back = CODEC.decode(CODEC.encode(tensor))
    assert (type(back), back.dtype, back.shape) == (torch.Tensor, tensor.dtype, tensor.shape)
    assert torch.equal(back, tensor)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA"])
def test_an_image_keeps_its_colours(mode: str) -> None:
    colours = np.arange(3 * 4 * 5, dtype=np.uint8).reshape(4, 5, 3) * 4
    image = Image.fromarray(colours).convert(mode)
    back = CODEC.decode(CODEC.encode({"image": image}))["image"]
    assert (back.mode, back.size, back.tobytes()) == (mode, (5, 4), image.tobytes())
    assert np.array_equal(np.asarray(back.convert("RGB")), np.asarray(image.convert("RGB")))
    if mode != "P":
        codec = ArrayCodec(images="array")
        assert np.array_equal(codec.decode(codec.encode(image)), np.asarray(image))


def test_rows_of_data_sets_come_back() -> None:
    frame = pd.DataFrame({"age": [41, 52], "ward": ["a", "b"]})
    rows = [
        (Image.new("RGB", (8, 8), (1, 2, 3)), 4),  # torchvision
        {"text": "good", "label": None, "tokens": [1, 2], "score": 0.5},  # Hugging Face
        {"x": np.ones((2, 2), np.float16), "y": np.int64(3)},
        frame.iloc[1].to_dict(),
        frame.to_dict("records")[0],
        b"\xff\xd8\xff\xe0 a photograph as its file has it",
        "a sentence",
        None,
    ]
    for row in rows:
        assert row is rows[0] or repr(CODEC.decode(CODEC.encode(row))) == repr(row)
    image, label = CODEC.decode(CODEC.encode(rows[0]))
    assert (image.getpixel((3, 3)), label) == ((1, 2, 3), 4)


class Colour(enum.IntEnum):
    RED = 1


Row = collections.namedtuple("Row", "x y")


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        ({1: "a", "1": "b"}, "keys of a dictionary must be texts"),
        ({1, 2}, "the sample: a set would not come back as it is; store a sorted list"),
        (({"ids": [{1}]}, 3), r"the sample\[0\]\['ids'\]\[0\]: a set"),
        (collections.UserDict(a=1), "UserDict .* store dict"),
        (collections.OrderedDict(a=1), "OrderedDict .* store dict"),
        (np.ma.masked_equal([1, 2], 2), "MaskedArray .* its data and its mask"),
        (np.array([None, 1]), "numpy.ndarray would not come back"),
        (pd.Series({"a": 1, "b": "x"}), r"Series .* row.to_dict\(\)"),
        (np.str_("ja"), r"str_ .* store str\(it\)"),
        (np.bytes_(b"a"), r"bytes_ .* store bytes\(it\)"),
        (np.zeros(2, "i4,f4")[0], r"void .* item\(\)"),
        (np.zeros(2, bfloat16), "numpy.ndarray would not come back"),
        (bfloat16(1), "bfloat16 would not come back"),
        (Row(1, 2), r"Row .* _asdict\(\)"),
        (Image.new("CMYK", (2, 2)), r"mode 'CMYK' .*convert\('RGB'\)"),
        (torch.nn.Parameter(torch.zeros(1)), "Parameter would not come back"),
        (torch.zeros(2).to_sparse(), "Tensor would not come back"),
        (dt.date(2026, 11, 19), "date would not come back"),
        (Colour.RED, "Colour would not come back"),
    ],
)
def test_what_would_not_come_back_is_refused_by_name(sample: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        CODEC.encode(sample)


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
