"""Somebody is erased: nothing of them is left on the device, and nothing comes back."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from check_size import at_size
from histories import CAPACITY, CLIENT, RUN, Device, content, found, killed_at_every_statement

from tidegate.client.auditing import audit_file
from tidegate.client.forgotten import Forgotten
from tidegate.client.gate import Gate
from tidegate.client.store import Store
from tidegate.client.streams import IndexedStream
from tidegate.client.sweeping import sweep
from tidegate.selection import Selection
from tidegate.wire import Order

HISTORIES = at_size(15, 1000)


@pytest.mark.long
def test_whatever_happens_nothing_of_the_forgotten_is_left(tmp_path: Path) -> None:
    """And the server believes every receipt, and the audit finds nothing wrong."""
    searched = told = 0
    for number in range(HISTORIES):
        folder = tmp_path / str(number)
        folder.mkdir()
        device = Device(folder, number, keep=20)
        for step in range(12):
            device.step()
            if step in (4, 8):
                device.order()
                device.forget(device.draw.choice([0, 1, 2, 4]))
            assert found(folder, device.erased()) == [], (number, device.mode, device.spooled)
            searched += len(device.erased())
        device.order()
        told += int(device.ledger.account(CLIENT).newest.health.get("erased", 0))
        if device.spool is not None:
            device.spool.name_subjects(None)
        (audit,) = audit_file(folder / "buffer.sqlite", device.clock)
        assert (audit.problems, audit.broken) == ([], [])
        texts = b"".join(path.read_bytes() for path in folder.iterdir())
        assert b"person-" not in texts  # no name is anywhere
        device.close()
    assert searched > 5 * HISTORIES
    assert told > HISTORIES // 2


def order(now: int, count: int) -> Order:
    return Order(run=RUN, round_number=now, price=1.0, retention_horizon=99, count=count)


def test_the_receipt_says_what_was_erased_and_passed_over(tmp_path: Path) -> None:
    paid: list[str] = []

    def acquire(sample: str, key: str) -> str:
        paid.append(sample)
        return sample

    names = ["ann", "bob", "ann", "cid", "ann", "ann", "bob"]
    samples = [f"{name} {place}" for place, name in enumerate(names)]
    with Store(tmp_path / "a.sqlite", RUN, CLIENT, CAPACITY) as store:
        gate = Gate(store, IndexedStream(samples), acquire, subject=lambda text: text.split()[0])
        assert gate.apply(order(1, 3)).admitted == 3
        Forgotten(tmp_path).add("ann")
        receipt = gate.apply(order(2, 3))
        assert list(gate.samples()) == ["bob 1", "cid 3", "bob 6"]
        assert (receipt.health, receipt.holding) == ({"erased": 2}, (2, 1))
        assert (receipt.admitted, receipt.read) == (5, 7)  # with the two that it passed over
        assert [one.split()[0] for one in paid[3:]] == ["cid", "bob"]
        assert store.books().cursor == "7"
    # A new run, a new buffer: whoever was forgotten still is.
    with Store(tmp_path / "b.sqlite", "next", CLIENT, CAPACITY) as store:
        gate = Gate(store, IndexedStream(samples), subject=lambda text: text.split()[0])
        first = Order(run="next", round_number=1, price=1.0, retention_horizon=9, count=7)
        assert gate.apply(first).admitted == 3
        assert not [one for one in gate.samples() if one.startswith("ann")]


def test_who_is_forgotten_while_an_order_is_applied_is_not_stored(tmp_path: Path) -> None:
    def forgets(sample: str, key: str) -> str:
        Forgotten(tmp_path).add("ann")
        return sample

    with Store(tmp_path / "a.sqlite", RUN, CLIENT, CAPACITY) as store:
        gate = Gate(store, IndexedStream(["ann 0", "bob 1"]), forgets, subject=lambda t: t[:3])
        first = gate.apply(order(1, 1))
        assert (first.bought, first.spent) == (1, 1.0)  # it was paid for
        assert (first.admitted, first.refused, first.holding) == (0, 1, ())
        assert gate.apply(order(2, 1)).admitted == 1
        assert list(gate.samples()) == ["bob 1"]


@pytest.mark.parametrize("sign", [1, -1])
def test_who_is_forgotten_while_candidates_are_ranked_is_not_chosen(
    tmp_path: Path, sign: int
) -> None:
    def ranks(samples: Sequence[str]) -> list[float]:
        Forgotten(tmp_path).add("ann")
        sweep(tmp_path)
        return [float(sign * place) for place in range(len(samples))]

    names = [f"{'ann' if number % 2 else 'bob'} {number}" for number in range(20)]
    with Store(tmp_path / "a.sqlite", RUN, CLIENT, CAPACITY) as store:
        choice = Selection(candidates=4, backlog=4, random_share=0)
        gate = Gate(store, IndexedStream(names), selection=choice, subject=lambda text: text[:3])
        assert gate.apply(order(1, 1)).admitted == 1
        for now in range(2, 5):
            gate.apply(order(now, 2), worth=ranks)
        assert {one[:3] for one in gate.samples()} == {"bob"}
        assert len(gate.samples()) == store.books().admitted
        (audit,) = audit_file(tmp_path / "a.sqlite")
        assert (audit.problems, audit.broken) == ([], [])


def test_what_is_swept_while_it_is_paid_for_counts_as_bought_and_refused(tmp_path: Path) -> None:
    paid: list[str] = []

    def acquire(sample: str, key: str) -> str:
        paid.append(key)
        if len(paid) == 2:
            Forgotten(tmp_path).add("ann")
            sweep(tmp_path)
        return sample

    with Store(tmp_path / "a.sqlite", RUN, CLIENT, CAPACITY) as store:
        choice = Selection(candidates=2, backlog=0, random_share=0)
        stream = IndexedStream(["ann 0", "ann 1", "bob 2", "bob 3"])
        gate = Gate(store, stream, acquire, choice, subject=lambda text: text[:3])
        receipt = gate.apply(order(1, 2), worth=lambda samples: list(range(len(samples))))
        assert (len(paid), receipt.bought, receipt.refused, receipt.spent) == (2, 2, 2, 2.0)
        assert gate.apply(order(2, 2)).admitted == 2
        assert sorted(gate.samples()) == ["bob 2", "bob 3"]
        (audit,) = audit_file(tmp_path / "a.sqlite")
        assert (audit.problems, audit.broken) == ([], [])


@pytest.mark.process
@pytest.mark.long
@pytest.mark.parametrize("number", range(at_size(1, 8)))
def test_killed_before_any_statement_the_next_start_completes_it(
    tmp_path: Path, number: int
) -> None:
    for device in killed_at_every_statement(
        tmp_path, number, lambda device: device.forget(1), at_size(5, 1)
    ):
        if not Forgotten(device.folder).hashes():
            continue  # it died before it began
        device.gone.add(1)
        device.order()
        device.sweep()
        assert found(device.folder, device.erased()) == []


def test_content_is_found_where_it_is(tmp_path: Path) -> None:
    """The search of these tests finds what is there."""
    with Store(tmp_path / "a.sqlite", RUN, CLIENT, CAPACITY) as store:
        Gate(store, IndexedStream([content(7)])).apply(order(1, 1))
        assert found(tmp_path, [6, 7]) == [7]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_what_root_forgets_in_a_folder_its_owner_can_read(tmp_path: Path) -> None:
    folder = tmp_path / "device"
    folder.mkdir()
    os.chown(folder, 12345, 54321)
    Forgotten(folder).add("ada")
    found = {path.name: (path.stat().st_uid, path.stat().st_gid) for path in folder.iterdir()}
    assert found == dict.fromkeys(["forgotten.json", "forgotten.lock"], (12345, 54321))
