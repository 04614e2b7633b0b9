"""The laws of streams: ours obey them, and a stream that does not is caught."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tidegate.client.streams import FolderStream, IndexedStream, IterableStream, Stream
from tidegate.testing import STREAM_LAWS, LawBrokenError, check_stream


@pytest.mark.parametrize("length", [1, 5, 200])
def test_ours_obey(length: int, tmp_path: Path) -> None:
    arrays = [np.full(3, number) for number in range(length)]
    check_stream(lambda: IndexedStream(arrays))
    check_stream(lambda: IndexedStream(arrays, order=list(reversed(range(length)))))
    check_stream(lambda: IterableStream(lambda: iter(arrays)))
    for number in range(length):
        (tmp_path / f"{number:04}.bin").write_bytes(bytes([number]))
    check_stream(lambda: FolderStream(tmp_path))


def test_a_stream_without_samples_was_not_checked() -> None:
    with pytest.raises(LawBrokenError, match="nothing could be checked; open it where it has some"):
        check_stream(lambda: IndexedStream([]))


class Patient:
    """A sample that the default codec cannot store."""

    def __init__(self, age: int) -> None:
        self.age = age


class PatientCodec:
    def encode(self, sample: Patient) -> bytes:
        return bytes([sample.age])

    def decode(self, data: bytes) -> Patient:
        return Patient(data[0])


def test_samples_are_compared_as_the_users_codec_stores_them() -> None:
    patients = [Patient(age) for age in range(20, 40)]
    check_stream(lambda: IndexedStream(patients), codec=PatientCodec())
    with pytest.raises(LawBrokenError):
        check_stream(lambda: IndexedStream(patients))
    with pytest.raises(LawBrokenError, match="continued with others"):
        check_stream(lambda: ForgetsItsPlace(patients), codec=PatientCodec())


class Repeats(IndexedStream):
    """Gives the last sample once more where several are asked for."""

    def take(self, count: int) -> list[Any]:
        taken = super().take(count)
        return [*taken[:-1], taken[0]] if len(taken) > 1 else taken


class GivesTooMany(IndexedStream):
    def take(self, count: int) -> list[Any]:
        return super().take(count + 1) if count > 1 else super().take(count)


class TakesUnasked(IndexedStream):
    def take(self, count: int) -> list[Any]:
        return super().take(max(count, 1))


class ForgetsItsPlace(IndexedStream):
    def seek(self, cursor: str) -> None:
        """Begin again."""
        self._position = 0


class StandsStill(IndexedStream):
    @property
    def cursor(self) -> str:
        return str(self._position // 2)


class CountsInNumbers(IndexedStream):
    @property
    def cursor(self) -> str:
        return self._position  # type: ignore[return-value]


class NeverGoesBack(IndexedStream):
    def seek(self, cursor: str) -> None:
        """Only forwards."""
        self._position = max(self._position, int(cursor))


class Throws(IndexedStream):
    def take(self, count: int) -> list[Any]:
        raise OSError("unplugged")


@pytest.mark.parametrize(
    ("make", "law", "found"),
    [
        (
            Repeats,
            "gives_the_same_samples_however_many_are_asked_for",
            "it returned different ones",
        ),
        (GivesTooMany, "gives_the_same_samples_however_many_are_asked_for", "take(4) returned 5"),
        (TakesUnasked, "asked_for_none_it_stays_where_it_is", "take(0) returned samples"),
        (StandsStill, "a_cursor_is_a_short_text_that_moves", "its cursor is '0' again"),
        (CountsInNumbers, "a_cursor_is_a_short_text_that_moves", "0, which is not a text"),
        (ForgetsItsPlace, "goes_on_from_a_cursor_in_a_new_process", "continued with others"),
        (NeverGoesBack, "goes_back_to_a_cursor", "back at the cursor '1'"),
        (Throws, "has_a_sample_to_try_the_laws_on", "raised OSError: unplugged"),
    ],
)
def test_a_broken_stream_is_caught_by_law_and_input(
    make: Callable[[str], Stream], law: str, found: str
) -> None:
    assert law in STREAM_LAWS
    with pytest.raises(LawBrokenError) as broken:
        check_stream(lambda: make("abcdefghijkl"))
    assert broken.value.law == law
    assert found in broken.value.found
    assert "the first 60 samples" in str(broken.value)
