"""The laws of a stream: each sample once, in one order, from any cursor on."""

import itertools
from collections.abc import Callable, Mapping

from tidegate.client.codec import ArrayCodec, SampleCodec
from tidegate.client.streams import Stream
from tidegate.testing.law import Trial

MOST = 60
"""Samples that are looked at; a stream may have fewer, or more, or no end."""
BATCHES = (1, 4, 2, 7)
"""Samples that are asked for at once, in turn."""
LONGEST_CURSOR = 10_000
"""Characters: a cursor is written to disk with every order."""

MakeStream = Callable[[], Stream]


class Encoded:
    """A stream whose samples come as they would be stored, so that arrays can be compared."""

    def __init__(self, stream: Stream, codec: SampleCodec) -> None:
        self._stream = stream
        self._codec = codec

    @property
    def cursor(self) -> str:
        """That of the stream."""
        return self._stream.cursor

    def seek(self, cursor: str) -> None:
        """Go on from a cursor."""
        self._stream.seek(cursor)

    def take(self, count: int) -> list[bytes]:
        """The next samples as bytes."""
        return [self._codec.encode(sample) for sample in self._stream.take(count)]


MakeEncoded = Callable[[], Encoded]
Law = Callable[[MakeEncoded, Trial], None]


def _read(stream: Encoded, most: int = MOST) -> list[bytes]:
    """The next samples, one at a time."""
    seen: list[bytes] = []
    while len(seen) < most and (taken := stream.take(1)):
        seen += taken
    return seen


def has_a_sample_to_try_the_laws_on(make: MakeEncoded, trial: Trial) -> None:
    """A stream that gives nothing obeys every other law, and nothing is known of it."""
    found = (
        "a new stream returned no sample, so nothing could be checked; open it where it has some"
    )
    trial.expect(make().take(1), found)


def gives_the_same_samples_however_many_are_asked_for(make: MakeEncoded, trial: Trial) -> None:
    """Asked for one by one or several at once, the samples and their order are the same."""
    expected = _read(make())
    stream, seen = make(), list[bytes]()
    for count in itertools.cycle(BATCHES):
        taken = stream.take(count)
        trial.expect(len(taken) <= count, f"take({count}) returned {len(taken)} samples")
        seen += taken
        if not taken or len(seen) >= MOST:
            break
    found = "asked for samples one by one, and several at once, it returned different ones"
    trial.expect(seen[: len(expected)] == expected[: len(seen)], found)
    trial.expect(len(seen) >= len(expected), f"{found}: {len(seen)}, not {len(expected)}")


def asked_for_none_it_stays_where_it_is(make: MakeEncoded, trial: Trial) -> None:
    """``take(0)`` and a look at the cursor change nothing."""
    stream = make()
    stream.take(2)
    before = stream.cursor
    trial.expect(len(stream.take(0)) == 0, "take(0) returned samples")
    trial.expect(stream.cursor == before, f"take(0) moved it from {before!r} to {stream.cursor!r}")


def a_cursor_is_a_short_text_that_moves(make: MakeEncoded, trial: Trial) -> None:
    """Two places have two cursors; each is a text that a database can keep."""
    stream, cursors = make(), list[str]()
    while len(cursors) < MOST:
        cursor: object = stream.cursor
        trial.expect(isinstance(cursor, str), f"its cursor is {cursor!r}, which is not a text")
        text = str(cursor)
        trial.expect(len(text) <= LONGEST_CURSOR, f"its cursor has {len(text)} characters")
        trial.expect(
            text not in cursors, f"after {len(cursors)} samples its cursor is {text!r} again"
        )
        cursors.append(text)
        if not stream.take(1):
            break


def goes_on_from_a_cursor_in_a_new_process(make: MakeEncoded, trial: Trial) -> None:
    """A new stream that seeks to a cursor gives what the old one would have given next."""
    expected = _read(make())
    for place in sorted({0, 1, len(expected) // 2, len(expected)}):
        old = make()
        if place:
            _read(old, place)
        cursor = old.cursor
        new = make()
        new.seek(cursor)
        rest = _read(new, MOST - place)
        trial.expect(
            rest == expected[place:],
            f"a new stream at the cursor {cursor!r}, after {place} samples, continued with others",
        )


def goes_back_to_a_cursor(make: MakeEncoded, trial: Trial) -> None:
    """A stream that seeks back gives the same samples again: nothing is lost after a failure."""
    stream = make()
    stream.take(1)
    cursor = stream.cursor
    first = _read(stream, 3)
    stream.seek(cursor)
    trial.expect(
        _read(stream, 3) == first, f"back at the cursor {cursor!r}, it returned other samples"
    )


STREAM_LAWS: Mapping[str, Law] = {
    law.__name__: law
    for law in (
        has_a_sample_to_try_the_laws_on,
        gives_the_same_samples_however_many_are_asked_for,
        asked_for_none_it_stays_where_it_is,
        a_cursor_is_a_short_text_that_moves,
        goes_on_from_a_cursor_in_a_new_process,
        goes_back_to_a_cursor,
    )
}


def check_stream(make_stream: MakeStream, *, codec: SampleCodec | None = None) -> None:
    """Try every law of streams; the first that is broken is a ``LawBrokenError``.

    Args:
        make_stream: opens the stream at its beginning, as a new process would; called often. It
            needs at least one sample.
        codec: how samples are stored, as ``ClientGate`` is given it; the default codec by default.

    >>> from tidegate.client.streams import IndexedStream
    >>> check_stream(lambda: IndexedStream("abcdef"))
    """
    stored = ArrayCodec() if codec is None else codec
    for name, law in STREAM_LAWS.items():
        trial = Trial(name, f"the first {MOST} samples of the stream")
        with trial.raises_nothing():
            law(lambda: Encoded(make_stream(), stored), trial)
