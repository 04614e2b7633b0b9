"""A limit in days: nothing older trains, and what is over leaves the device."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from check_size import at_size
from histories import (
    CAPACITY,
    CLIENT,
    DAY,
    RUN,
    START,
    Device,
    content,
    found,
    killed_at_every_statement,
)

from tidegate.client.auditing import audit_file
from tidegate.client.gate import Gate
from tidegate.client.limits import duration
from tidegate.client.store import Store
from tidegate.client.streams import IndexedStream
from tidegate.client.sweeping import sweep
from tidegate.errors import ConfigurationError
from tidegate.integrations.mqtt import Spool, SpooledStream
from tidegate.integrations.mqtt.spool import Delivery, Message
from tidegate.selection import Selection
from tidegate.wire import Order

HISTORIES = at_size(20, 1000)
STEPS = 14


@pytest.mark.parametrize("text", ["", "30", "30 d", "0d", "-1d", "1.5d", "99999999d", 30, None])
def test_a_limit_that_is_none_is_refused(text: Any) -> None:
    with pytest.raises(ConfigurationError, match="such as '12h', '30d' or '4w'"):
        duration(text)


@pytest.mark.long
def test_whatever_happens_nothing_is_held_or_used_past_its_time(tmp_path: Path) -> None:
    """And the server believes every receipt, to the sample."""
    deleted = 0
    for number in range(HISTORIES):
        folder = tmp_path / str(number)
        folder.mkdir()
        device = Device(folder, number)
        for _ in range(STEPS):
            device.step()
            over = device.over()
            assert found(folder, over) == [], (number, device.mode)
            deleted += len(over)
        device.now += (device.keep + 1) * DAY
        device.sweep()
        assert found(folder, device.came) == [], (number, device.mode)
        device.order()  # and it goes on
        device.close()
    assert deleted > 10 * HISTORIES


def order(now: int, count: int) -> Order:
    return Order(run=RUN, round_number=now, price=1.0, retention_horizon=99, count=count)


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_an_order_that_is_answered_again_hands_out_nothing_old(tmp_path: Path, kind: str) -> None:
    device = Device(tmp_path, 0)
    store: Any = Store(None, RUN, CLIENT, CAPACITY, clock=device.clock)
    if kind == "file":
        store = Store(tmp_path / "a.sqlite", RUN, CLIENT, CAPACITY, clock=device.clock)
    gate = Gate(store, IndexedStream(device), keep_at_most="5d")
    first = gate.apply(order(1, 3))
    device.now += 3 * DAY
    second = gate.apply(order(2, 2))
    assert len(gate.samples()) == 5
    device.now += 2 * DAY
    assert list(gate.samples()) == [content(3), content(4)]  # before anything was deleted
    assert gate.apply(order(2, 2)) == second
    device.now += 3 * DAY
    third = gate.apply(order(3, CAPACITY))
    # Slots that emptied since the last receipt are filled with the next order.
    assert (third.admitted - second.admitted, third.health) == (3, {"expired": 5})
    assert third.holding == (3,)
    fourth = gate.apply(order(4, CAPACITY))
    assert (fourth.admitted - third.admitted, fourth.holding) == (5, (5, 3))
    assert first.health == {}
    if kind == "file":
        store.close()


def test_a_clock_that_is_set_back_makes_nobody_younger(tmp_path: Path) -> None:
    device = Device(tmp_path, 0)
    with Store(tmp_path / "a.sqlite", RUN, CLIENT, 8, clock=device.clock) as store:
        gate = Gate(store, IndexedStream(device), keep_at_most="5d")
        gate.apply(order(1, 1))
        device.now += 2 * DAY
        gate.apply(order(2, 1))
        device.now -= 1000 * DAY
        gate.apply(order(3, 1))
        for days, left in ((2.9, 3), (0.2, 2), (1.8, 2), (0.2, 0)):
            device.now += days * DAY
            assert len(gate.samples()) == left
        device.now = START + 3000 * DAY  # the clock is right again, and every sample is over
        gate.apply(order(4, 1))
        rows = store.file.execute("SELECT entry FROM record").fetchall()
    jumps = [text for (text,) in rows if '"clock"' in text]
    assert len(jumps) == 2
    assert '"jump":-86400000000' in jumps[0]


def test_a_limit_that_passes_while_an_order_is_applied_is_kept(tmp_path: Path) -> None:
    """The record says so, too: a sample is counted by the time at which its order began."""
    device = Device(tmp_path, 0)

    def slow(sample: str, key: str) -> str:
        device.now += 20.0
        return sample

    with Store(tmp_path / "a.sqlite", RUN, CLIENT, 8, clock=device.clock) as store:
        gate = Gate(store, IndexedStream(device), acquire=slow, keep_at_most="1h")
        gate.apply(order(1, 2))
        device.now += 3550.0
        gate.apply(order(2, 2))
        assert list(gate.samples()) == [content(2), content(3)]
        (audit,) = audit_file(tmp_path / "a.sqlite", device.clock)
        assert (audit.problems, audit.broken) == ([], [])
        assert audit.waiting == ["2 are past their limit"]
        assert gate.apply(order(3, 0)).health == {"expired": 2}


def test_what_is_past_its_limit_once_it_is_paid_for_is_not_stored(tmp_path: Path) -> None:
    """A message was on the device for 59 minutes when an order began that takes two."""
    device = Device(tmp_path, 0)

    def slow(sample: str, key: str) -> str:
        device.now += 120.0
        sweep(tmp_path, device.clock)
        return sample

    spool = Spool(tmp_path / "spool.sqlite", clock=device.clock)
    spool.claim("test")
    assert spool.put(Message("t", b"text"), None, Delivery(0, again=False)) == "stored"
    device.now += 59 * 60.0
    stream = SpooledStream(spool, lambda payload, topic: payload.decode())
    with Store(tmp_path / "a.sqlite", RUN, CLIENT, 8, clock=device.clock) as store:
        gate = Gate(store, stream, acquire=slow, keep_at_most="1h")
        receipt = gate.apply(order(1, 1))
        assert (receipt.bought, receipt.refused, receipt.occupancy) == (1, 1, 0)
        (audit,) = audit_file(tmp_path / "a.sqlite", device.clock)
        assert (audit.problems, audit.broken) == ([], [])
    spool.close()


@pytest.mark.parametrize("limit", [None, "5d"])
def test_a_clock_that_jumps_while_an_order_is_applied_leaves_the_record_right(
    tmp_path: Path, limit: str | None
) -> None:
    device = Device(tmp_path, 0)

    def odd(samples: Sequence[str]) -> list[float]:
        device.now -= 2 * DAY
        return [0.0] * len(samples)

    with Store(tmp_path / "a.sqlite", RUN, CLIENT, 8, clock=device.clock) as store:
        choice = Selection(candidates=3, backlog=2)
        gate = Gate(store, IndexedStream(device), selection=choice, keep_at_most=limit)
        for now in range(1, 5):
            gate.apply(order(now, 1), worth=odd)
            device.now -= 3 * DAY
        (audit,) = audit_file(tmp_path / "a.sqlite", device.clock)
        assert (audit.problems, audit.broken) == ([], [])
        assert len(audit.jumps) >= 4


def test_samples_age_behind_a_clock_that_was_set_back(tmp_path: Path) -> None:
    device = Device(tmp_path, 0)
    path = tmp_path / "a.sqlite"
    with Store(path, RUN, CLIENT, 8, clock=device.clock) as store:
        Gate(store, IndexedStream(device), keep_at_most="5d").apply(order(1, 3))
    device.now -= 1000 * DAY
    left = []
    for _ in range(7):  # a sweep a day, and nobody asks
        (swept,), _ = sweep(tmp_path, device.clock)
        left.append(swept.held)
        device.now += DAY
    assert left == [3, 3, 3, 3, 3, 0, 0]


def test_a_clock_that_is_years_ahead_is_believed_and_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    device = Device(tmp_path, 0)
    with Store(tmp_path / "a.sqlite", RUN, CLIENT, 8, clock=device.clock) as store:
        gate = Gate(store, IndexedStream(device), keep_at_most="5d")
        gate.apply(order(1, 3))
        device.now += 4000 * DAY
        gate.apply(order(2, 0))
        assert list(gate.samples()) == []
        assert "was set ahead by 4000.0 days: samples that are now past their limit" in caplog.text
        device.now -= 4000 * DAY  # corrected: what comes from now on lives as long as it may
        gate.apply(order(3, 2))
        device.now += 4.9 * DAY
        assert len(gate.samples()) == 2
        device.now += 0.2 * DAY
        assert list(gate.samples()) == []


@pytest.mark.process
@pytest.mark.long
@pytest.mark.parametrize("number", range(at_size(2, 12)))
def test_killed_before_any_statement_the_next_start_completes_it(
    tmp_path: Path, number: int
) -> None:
    def idle(device: Device) -> None:
        device.now += 3 * DAY
        device.sweep()

    for device in killed_at_every_statement(tmp_path, number, idle, at_size(5, 1)):
        device.now += 3 * DAY
        device.order()
        assert found(device.folder, device.over()) == []
        device.sweep()
