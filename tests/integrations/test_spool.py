"""A spool keeps messages once, in order, within its bound, and counts what it cannot keep."""

import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from check_size import at_size
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.client.gate import Gate
from tidegate.client.store import Store
from tidegate.errors import ConfigurationError, DamagedFileError, RunDiffersError
from tidegate.integrations.mqtt import Message, Spool, SpooledStream
from tidegate.integrations.mqtt import spool as spools
from tidegate.integrations.mqtt.spool import (
    KEPT_GAPS,
    NEW_SPOOL,
    NO_SESSION,
    WINDOW,
    Delivery,
    WhenFull,
)
from tidegate.testing import check_stream
from tidegate.wire import Address, Order, cursor_digest

FIRST = Delivery(1, again=False)


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    made = Spool(tmp_path / "a.spool")
    yield made
    made.close()


def put(spool: Spool, *texts: str) -> list[str]:
    """Store messages as a broker would deliver them, one packet after another."""
    first = spool.health().received + 1
    return [
        spool.put(Message("t", text.encode()), None, Delivery(packet, again=False))
        for packet, text in enumerate(texts, first)
    ]


def numbered(spool: Spool, *given: int, source: str = "d") -> list[str]:
    return [
        spool.put(Message("t", str(number).encode()), (source, number), FIRST) for number in given
    ]


def as_text(payload: bytes, topic: str) -> str:
    return payload.decode()


def rest(spool: Spool) -> list[str]:
    return [str(one) for one in SpooledStream(spool, as_text).take(10_000)]


def order(now: int, count: int) -> Order:
    return Order(run="r", round_number=now, price=1.0, retention_horizon=9, count=count)


def test_messages_come_in_the_order_in_which_they_were_stored(spool: Spool) -> None:
    assert put(spool, "a", "b", "c") == ["stored"] * 3
    stream = SpooledStream(spool, as_text)
    assert (stream.take(2), stream.take(2), stream.take(1)) == (["a", "b"], ["c"], [])


def test_a_stream_over_a_spool_obeys_the_laws(tmp_path: Path, spool: Spool) -> None:
    put(spool, *(f"sample {number}" for number in range(70)))
    check_stream(lambda: SpooledStream(spool, as_text))
    opened = []

    def in_a_file_of_its_own() -> SpooledStream:
        opened.append(Spool(tmp_path / "a.spool"))
        return SpooledStream(opened[-1], as_text)

    check_stream(in_a_file_of_its_own)
    for one in opened:
        one.close()


def test_a_new_process_goes_on_with_messages_and_counts(tmp_path: Path) -> None:
    before = Spool(tmp_path / "a.spool")
    numbered(before, 1, 2, 2, 5)
    told = before.health()
    before.close()
    after = Spool(tmp_path / "a.spool")
    assert after.health() == told
    assert (told.received, told.duplicates, told.missing) == (3, 1, {"d": 2})
    assert rest(after) == ["1", "2", "5"]
    after.close()


def test_what_the_books_have_is_gone_from_the_files(tmp_path: Path, spool: Spool) -> None:
    put(spool, "first secret", "second secret", "third")
    stream = SpooledStream(spool, as_text)
    stream.take(2)
    stream.confirm(stream.cursor)
    files = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"secret" not in files
    assert b"third" in files
    assert spool.health().waiting == 1
    assert SpooledStream(spool, as_text).cursor == stream.cursor


def test_only_its_owner_can_read_it(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "folder" / "a.spool")
    put(spool, "a")
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "folder").iterdir()}
    assert modes == {0o600}
    assert stat.S_IMODE((tmp_path / "folder").stat().st_mode) == 0o700
    spool.close()


def test_a_gate_confirms_what_it_has_committed_and_nothing_else(spool: Spool) -> None:
    put(spool, *"abcdef")
    gate = Gate(Store(None, "r", "site", 10), SpooledStream(spool, as_text))
    gate.apply(order(1, 2))
    assert list(gate.samples()) == ["a", "b"]
    assert (spool.health().waiting, rest(spool)) == (4, ["c", "d", "e", "f"])


class Killed(BaseException):
    pass


def test_a_process_that_dies_before_its_commit_finds_its_samples_again(
    tmp_path: Path, spool: Spool
) -> None:
    put(spool, *"abc")
    bought = []

    def dies_once(sample: Any, key: str) -> Any:
        bought.append(key)
        if len(bought) == 2:
            raise Killed
        return sample

    store = Store(tmp_path / "buffer.sqlite", "r", "site", 5)
    with pytest.raises(Killed):
        Gate(store, SpooledStream(spool, as_text), dies_once).apply(order(1, 3))
    assert spool.health().waiting == 3
    gate = Gate(store, SpooledStream(spool, as_text), dies_once)
    gate.apply(order(1, 3))
    assert list(gate.samples()) == ["a", "b", "c"]
    assert bought[:2] == bought[2:4]  # the same keys again
    store.close()


def dies(*_: object) -> None:
    raise Killed


def test_a_process_that_dies_after_its_commit_lets_the_next_one_confirm(
    tmp_path: Path, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(spool, *"abc")
    store = Store(tmp_path / "buffer.sqlite", "r", "site", 5)
    gate = Gate(store, SpooledStream(spool, as_text))
    with monkeypatch.context() as patch:
        patch.setattr(Spool, "confirm", dies)
        with pytest.raises(Killed):
            gate.apply(order(1, 2))
    assert spool.health().waiting == 3
    gate = Gate(store, SpooledStream(spool, as_text))
    gate.apply(order(2, 0))
    assert (spool.health().waiting, list(gate.samples())) == (1, ["a", "b"])
    store.close()


def test_a_stream_that_cannot_forget_fails_no_order(
    spool: Spool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    put(spool, *"abc")
    monkeypatch.setattr(Spool, "confirm", lambda *_: 1 / 0)
    gate = Gate(Store(None, "r", "site", 10), SpooledStream(spool, as_text))
    assert gate.apply(order(1, 2)).admitted == 2
    assert "the stream of r/site could not confirm its samples and keeps them" in caplog.text


def test_a_message_that_cannot_be_decoded_is_set_aside(spool: Spool) -> None:
    put(spool, "1", "no number", "3", "also none")
    stream = SpooledStream(spool, lambda payload, _: int(payload))
    assert stream.take(5) == [1]  # up to the one that fails
    with pytest.raises(ValueError, match="no number"):
        stream.take(5)
    assert stream.take(1) == [3]
    store = Store(None, "r", "site", 10)
    gate = Gate(store, SpooledStream(spool, lambda payload, _: int(payload)))
    gate.apply(order(1, 4))
    assert list(gate.samples()) == [1, 3]
    assert [one.set_aside for one in store.failures()] == [True, False]


def test_a_full_spool_takes_no_more_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "a.spool", most_messages=2)
    assert numbered(spool, 1, 2, 3) == ["stored", "stored", "full"]
    full = [spool.is_full]
    assert numbered(spool, 1) == ["repeated"]  # it can be acknowledged
    stream = SpooledStream(spool, as_text)
    stream.take(1)
    stream.confirm(stream.cursor)
    full.append(spool.is_full)
    assert full == [True, False]
    assert numbered(spool, 3) == ["stored"]  # its number was not noted before
    assert (rest(spool), spool.health().dropped) == (["2", "3"], 0)
    spool.close()


def test_receipts_tell_of_a_spool_that_is_full_and_of_what_it_dropped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rules: tuple[tuple[WhenFull, dict[str, float], dict[str, float]], ...] = (
        ("wait", {"full_spools": 1}, {}),
        ("drop_oldest", {"spool_dropped": 2}, {"spool_dropped": 2}),
    )
    for when_full, health, health_with_room in rules:
        spool = Spool(tmp_path / when_full, most_messages=3, when_full=when_full)
        stream = SpooledStream(spool, lambda payload, topic: payload.decode())
        gate = Gate(Store(None, "r", "a", 4), stream)
        for number in range(5):
            put(spool, str(number))
        receipt = gate.apply(order(1, 0))
        assert receipt.health == health
        assert gate.apply(order(2, 2)).health == health
        after = gate.apply(order(3, 0))  # what was taken is confirmed, and gone
        assert after.health == health_with_room
        spool.close()
    assert gate.apply(order(4, 0)).health == {}  # a closed spool cannot say
    assert "the stream failed to report its overflow" in caplog.text


def test_a_full_spool_drops_the_oldest_that_is_not_being_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spool = Spool(tmp_path / "a.spool", most_messages=3, when_full="drop_oldest")
    put(spool, *"abcde")
    health = spool.health()
    assert (rest(spool), health.dropped, health.received) == (["c", "d", "e"], 2, 5)
    assert caplog.text.count("is full: its oldest") == 1
    stream = SpooledStream(spool, as_text)
    stream.seek(stream.cursor)
    assert stream.take(1) == ["c"]  # not in the books yet
    put(spool, "f")
    assert rest(spool) == ["c", "e", "f"]
    stream.seek(stream.cursor)
    assert stream.take(2) == ["e", "f"]
    assert put(spool, "g") == ["full"]  # all are being read
    stream.confirm(stream.cursor)
    assert put(spool, "g") == ["stored"]
    health = spool.health()
    assert (health.dropped, health.waiting) == (3, 1)
    spool.close()


def test_what_a_broker_delivers_again_is_known_by_packet_and_content(spool: Spool) -> None:
    constant = Message("t", b"20.5")
    assert spool.put(constant, None, Delivery(1, again=False)) == "stored"
    assert spool.put(constant, None, Delivery(2, again=False)) == "stored"  # measured once more
    assert spool.put(constant, None, Delivery(2, again=True)) == "repeated"
    # Under way when the connection broke, and never seen here.
    assert spool.put(constant, None, Delivery(3, again=True)) == "stored"
    assert spool.put(Message("t", b"20.6"), None, Delivery(2, again=True)) == "stored"
    assert spool.put(Message("u", b"20.5"), None, Delivery(2, again=True)) == "stored"
    stream = SpooledStream(spool, as_text)
    stream.take(9)
    stream.confirm(stream.cursor)
    assert spool.put(constant, None, Delivery(3, again=True)) == "repeated"  # though it is gone
    health = spool.health()
    assert (health.received, health.unnumbered, health.duplicates) == (5, 5, 2)


def test_only_what_can_be_unacknowledged_is_remembered(spool: Spool) -> None:
    put(spool, *map(str, range(1, WINDOW + 2)))
    assert spool.put(Message("t", b"2"), None, Delivery(2, again=True)) == "repeated"
    assert spool.put(Message("t", b"1"), None, Delivery(1, again=True)) == "stored"


def test_a_new_session_begins_its_packets_anew(spool: Spool) -> None:
    put(spool, "a")
    spool.has_session(is_old=False, was_asked_for=True)
    assert spool.put(Message("t", b"a"), None, Delivery(1, again=True)) == "stored"


def test_numbers_tell_repetitions_holes_and_what_comes_late(
    spool: Spool, caplog: pytest.LogCaptureFixture
) -> None:
    assert numbered(spool, 7, 8, 8, 7) == ["stored", "stored", "repeated", "repeated"]
    assert caplog.text.count("number 8 of 'd' arrived before") == 1
    assert spool.health().missing == {}  # what was before the first is not known
    assert numbered(spool, 12) == ["stored"]
    assert "3 messages before number 12 of 'd' are missing" in caplog.text
    assert spool.health().missing == {"d": 3}
    assert numbered(spool, 10, 10) == ["stored", "repeated"]
    assert spool.health().missing == {"d": 2}
    assert numbered(spool, 9, 11, 5) == ["stored", "stored", "repeated"]
    assert numbered(spool, 1, 3, source="other") == ["stored", "stored"]
    health = spool.health()
    assert health.missing == {"other": 1}
    assert (health.received, health.duplicates, health.unnumbered) == (8, 4, 0)
    assert rest(spool) == ["7", "8", "12", "10", "9", "11", "1", "3"]


@settings(max_examples=at_size(15, 150))
@given(st.lists(st.tuples(st.sampled_from("xy"), st.integers(0, 30)), max_size=40))
def test_numbers_equal_sets(arrivals: list[tuple[str, int]]) -> None:
    """Counting by brute force: what was seen, and what is missing between first and newest."""
    with TemporaryDirectory() as folder, closing(Spool(Path(folder) / "a.spool")) as spool:
        seen: dict[str, set[int]] = {}
        first: dict[str, int] = {}
        for source, number in arrivals:
            (outcome,) = numbered(spool, number, source=source)
            known = seen.setdefault(source, set())
            first.setdefault(source, number)
            # Below the first that came nothing is known, and all counts as a repetition.
            assert (outcome == "repeated") == (number in known or number < first[source])
            if number >= first[source]:
                known.add(number)
        holes = {
            one: len(set(range(first[one], max(have) + 1)) - have) for one, have in seen.items()
        }
        assert spool.health().missing == {one: count for one, count in holes.items() if count}


def test_strangers_and_holes_do_not_fill_the_disk(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spools, "MOST_SOURCES", 2)
    for source in "abc":
        numbered(spool, 1, source=source)
    assert numbered(spool, 1, source="b") == ["repeated"]
    assert numbered(spool, 1, source="c") == ["stored"]  # one too many: without a number
    assert spool.health().unnumbered == 2
    monkeypatch.setattr(spools, "MOST_HOLES", 2)
    numbered(spool, 3, 5, 7, source="a")
    assert numbered(spool, 4, 6, 2, source="a") == ["stored", "stored", "repeated"]
    assert spool.health().missing == {"a": 1}


def test_a_lost_session_is_a_gap_and_the_first_one_is_not(
    spool: Spool, caplog: pytest.LogCaptureFixture
) -> None:
    assert spool.ask_for_session() is False
    spool.has_session(is_old=False, was_asked_for=False)
    assert spool.ask_for_session() is True
    spool.has_session(is_old=True, was_asked_for=True)
    assert spool.health().gaps == 0
    spool.has_session(is_old=False, was_asked_for=True)
    health = spool.health()
    assert (health.gaps, [one.reason for one in health.newest_gaps]) == (1, [NO_SESSION])
    assert NO_SESSION in caplog.text
    for _ in range(KEPT_GAPS + 5):
        spool.has_session(is_old=False, was_asked_for=True)
    health = spool.health()
    assert (health.gaps, len(health.newest_gaps)) == (KEPT_GAPS + 6, KEPT_GAPS)


def test_a_spool_that_was_lost_is_a_gap(tmp_path: Path) -> None:
    before, after = Spool(tmp_path / "a.spool"), Spool(tmp_path / "b.spool")
    put(before, "a", "b")
    put(after, "c", "d")
    stream = SpooledStream(before, as_text)
    stream.take(1)
    was_asked_for = after.ask_for_session()
    after.has_session(is_old=True, was_asked_for=was_asked_for)
    assert [one.reason for one in after.health().newest_gaps] == [NEW_SPOOL]
    new = SpooledStream(after, as_text)
    new.confirm(stream.cursor)  # of a spool that is no more
    new.seek(stream.cursor)
    assert new.take(2) == ["c", "d"]
    before.close()
    after.close()


@pytest.mark.parametrize(
    ("taken", "after_last", "left"), [(2, 1, "def"), (2, 99, ""), (0, 2, "cdef")]
)
def test_after_a_lost_buffer_it_goes_on_where_the_lost_one_was(
    spool: Spool, taken: int, after_last: int, left: str
) -> None:
    put(spool, *"abcdef")
    cursor = SpooledStream(spool, as_text).cursor
    if taken:
        lost = Gate(Store(None, "r", "site", 10), SpooledStream(spool, as_text))
        lost.apply(order(1, taken))  # the spool no longer has them
        cursor = SpooledStream(spool, as_text).cursor
    address = Address(
        run="r", client="site", skip=taken + after_last, skip_after=after_last,
        last_taken=cursor_digest("r", "site", cursor),
    )  # fmt: skip
    gate = Gate(Store(None, "r", "site", 10), SpooledStream(spool, as_text))
    gate.apply(order(2, 9), address)
    assert list(gate.samples()) == list(left)


def test_a_spool_of_another_client_is_refused(tmp_path: Path, spool: Spool) -> None:
    spool.claim("site-0 for readings/#")
    spool.claim("site-0 for readings/#")
    with pytest.raises(RunDiffersError, match="use a separate file for each client id and topic"):
        spool.claim("site-1 for readings/#")


def test_what_cannot_be_a_spool_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="most_messages must be a whole number"):
        Spool(tmp_path / "a.spool", most_messages=0)
    with pytest.raises(ConfigurationError, match="when_full must be 'wait' or 'drop_oldest'"):
        Spool(tmp_path / "a.spool", when_full="drop_newest")  # type: ignore[arg-type]
    Store(tmp_path / "buffer.sqlite", "r", "site", 5).close()
    with pytest.raises(ConfigurationError, match="is a database, but not a spool"):
        Spool(tmp_path / "buffer.sqlite")
    (tmp_path / "text").write_text("no database at all, " * 100)
    with pytest.raises(DamagedFileError, match="cannot be opened as a spool"):
        Spool(tmp_path / "text")


def test_a_row_that_is_no_message_is_named(spool: Spool) -> None:
    put(spool, "a")
    spool._connection.execute("UPDATE messages SET payload = 5")
    with pytest.raises(DamagedFileError, match="holds no message"):
        rest(spool)
