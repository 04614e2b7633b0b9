"""Schedules of faults through all of it: strategy, checkpoints on disk, messages, SQLite buffers.

The same as ``test_schedules``, a level higher and slower: what dies here is the server app between
any two writes, what is lost are Flower's messages, and the clock jumps by days.
"""

import random
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import pytest
from check_size import at_size
from flwr.app import Error, Message
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from gated_apps import MODEL, dataset, echo_app
from quiet import quietly

from tidegate._internal.saving import replace_file
from tidegate.client.device_file import store_path
from tidegate.client.store import Store
from tidegate.flower import (
    AdmissionControl,
    ClientGate,
    LocalGrid,
    checkpoint,
    client,
    round_replies,
    strategy,
)
from tidegate.flower.flower_internals import name_message
from tidegate.flower.records import GATE_FAILS, asks_who
from tidegate.prices import PricePath, UniformPrice

pytestmark = [pytest.mark.long, pytest.mark.no_cover]  # long loops, covered elsewhere

_quietly = pytest.fixture(autouse=True)(quietly)

ROUNDS = 14
CALM = 4
"""Rounds at the end in which nothing goes wrong."""
CLIENTS = 3
CAPACITY = 6
BUDGET = 33.0
NOT_MOUNTED = "SupplierError: this node cannot open its data: OSError: not mounted"


class ServerDied(BaseException):
    """Nobody may handle it: the process is gone."""


class Faults:
    """What goes wrong, drawn from one number."""

    def __init__(self, number: int) -> None:
        self.draw = random.Random(number)  # noqa: S311 - nothing here is secret
        self.rate = self.draw.choice((0.02, 0.1, 0.3))
        self.calm = False
        self.counts: dict[str, int] = {}

    def strike(self, kind: str) -> bool:
        struck = not self.calm and self.draw.random() < self.rate
        self.counts[kind] = self.counts.get(kind, 0) + struck
        return struck

    def now(self) -> float:
        """A clock that jumps."""
        jump = self.draw.choice((-86_400.0, 86_400.0)) if self.strike("clock jumps") else 0.0
        return time.time() + jump

    def write(self, path: Path, write_content: Callable[[IO[bytes]], None]) -> None:
        """A server that dies before or after a write, or leaves half of one behind."""
        if self.strike("deaths before a write"):
            path.with_name(path.name + ".part").write_bytes(b"half")
            raise ServerDied
        replace_file(path, write_content)
        if self.strike("deaths after a write"):
            raise ServerDied


class FaultyGrid(LocalGrid):
    """Loses, doubles and delays messages; deletes buffers."""

    def __init__(self, faults: Faults, folder: Path) -> None:
        configs: list[dict[str, int | str]] = [
            {"partition-id": number, "tidegate-folder": str(folder)} for number in range(CLIENTS)
        ]
        self._faults, self._folder = faults, folder
        self._late: list[tuple[str, Message]] = []
        super().__init__(_app(faults), configs)

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        for message_id, message in self._late:
            self._replies[message_id] = self._answer(message)
        self._late = []
        ids = []
        for message in messages:
            ids += self._send(message)
        return ids

    def _send(self, message: Message) -> list[str]:
        strike = self._faults.strike
        if strike("disks lost"):
            client = f"partition-{message.metadata.dst_node_id - 2}"
            store_path(self._folder, "r", client).unlink(missing_ok=True)
        if strike("messages delayed"):
            message_id = next(self._message_ids)
            name_message(message, message_id)
            self._late.append((message_id, message))
            return [message_id]
        (message_id,) = super().push_messages([message])
        reply = self._replies.pop(message_id)
        if strike("replies lost"):
            return [message_id]
        if strike("messages doubled"):
            self._late.append((message_id, message))
        self._replies[message_id] = reply
        return [message_id]

    def _answer(self, message: Message) -> Message:
        if self._faults.strike("clients that fail"):
            if asks_who(message.content):  # without its question it would pass for gateless
                return Message(Error(GATE_FAILS, NOT_MOUNTED), reply_to=message)
            message = Message(message.content, metadata=message.metadata)  # type: ignore[call-overload]
            return super()._answer(_broken(message))
        return super()._answer(message)


def _broken(message: Message) -> Message:
    """Without an order: the client cannot do anything with it."""
    message.content = message.content.copy()
    for key in [key for key in message.content if key.startswith("tidegate-")]:
        del message.content[key]
    return message


def _app(faults: Faults) -> ClientApp:
    def acquire(sample: Any, key: str) -> Any:
        if faults.strike("suppliers that fail"):
            raise ConnectionError("the supplier does not answer")
        return sample

    return echo_app(ClientGate(dataset, CAPACITY, acquire=acquire))


def control(policy: str, folder: Path, *, strict: bool) -> AdmissionControl:
    return AdmissionControl(
        FedAvg(fraction_evaluate=0.0),
        policy,
        budget=BUDGET,
        prices=PricePath(UniformPrice(1, 10), seed=1),
        spend_ahead=0.0 if strict else None,
        folder=folder,
        run="r",
    )


def played(number: int, folder: Path, patch: pytest.MonkeyPatch) -> Faults:
    """One run, from its first start to its end, however many servers it takes; all checked."""
    faults = Faults(number)
    policy = faults.draw.choice(("acdpp", "tide", "constant_admission"))
    strict = faults.draw.random() < 0.3
    grid = FaultyGrid(faults, folder / "buffers")
    patch.setattr(checkpoint, "replace_file", faults.write)
    for module in (strategy, round_replies):
        patch.setattr(module, "time", SimpleNamespace(time=faults.now))

    def after(now: int, arrays: object) -> None:
        faults.calm = now >= ROUNDS - CALM

    for _ in range(300):
        server = control(policy, folder / "run", strict=strict)
        try:
            server.start(grid, MODEL, ROUNDS, evaluate_fn=after)
            if len(server.rounds) == ROUNDS:  # fewer where nobody was there to begin with
                break
        except ServerDied:
            faults.counts["servers"] = faults.counts.get("servers", 0) + 1
        except ValueError as nobody:
            if "no client can take part" not in str(nobody):
                raise
    else:
        raise AssertionError("300 servers did not bring the run to its end")
    check(server, folder, strict=strict)
    return faults


def check(strategy: AdmissionControl, folder: Path, *, strict: bool) -> None:
    """Server and clients agree, and every round and every sample is there once."""
    ledger = strategy._running().ledger
    assert [row.round_number for row in strategy.rounds] == list(range(1, ROUNDS + 1))
    spent = sum(row.spent for row in strategy.rounds) + ledger.booked.spent
    assert spent == pytest.approx(sum(ledger.account(client).paid for client in ledger.clients))
    for row in strategy.rounds:
        assert row.overspend <= row.cost_debt + 1e-6
        assert row.training_size <= CLIENTS * CAPACITY
    if strict:
        assert spent <= BUDGET * ROUNDS * (1 + 1e-9)
    assert sorted(ledger.clients) == [f"partition-{number}" for number in range(CLIENTS)]
    for name in ledger.clients:
        account = ledger.account(name)
        store = Store(store_path(folder / "buffers", "r", name), "r", name, CAPACITY)
        books, stored = store.books(), store.held("stored")
        given = [store.answer(now) for now in range(1, ROUNDS + 1)]
        store.close()
        before, paid = 0, 0.0
        for order, receipt in filter(None, given):
            paid += order.price * (receipt.bought - before)
            before = receipt.bought
        assert books.spent == pytest.approx(paid)
        newest = account.newest
        assert newest.admitted == books.admitted
        assert newest.spent == pytest.approx(books.spent)
        assert newest.round_number == books.last_round == ROUNDS
        assert account.outstanding is None
        assert len(stored) <= CAPACITY
        assert newest.health.get("set_aside", 0) == books.set_aside
        read = books.admitted + books.set_aside  # those whose supplier failed thrice
        assert int(books.cursor or 0) == account.lost.read + read


@pytest.mark.parametrize("first", range(0, at_size(20, 60), 10))
def test_a_run_comes_to_its_end_and_its_books_are_right(
    first: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    total: dict[str, int] = {}
    for number in range(first, first + 10):
        with monkeypatch.context() as patch:
            try:
                counts = played(number, tmp_path / str(number), patch).counts
            except Exception as failure:
                raise AssertionError(f"schedule {number} ends in {failure!r}") from failure
        for kind, count in counts.items():
            total[kind] = total.get(kind, 0) + count
    assert all(total.values()), f"something never went wrong: {total}"


def _trust_anybody(*_: object) -> None:
    """Orders for a buffer that is lost go to the next one."""


def _begin_anew(*_: object) -> None:
    """A server that does not look at its folder."""


@pytest.mark.parametrize(
    ("owner", "name", "sabotage"),
    [
        (client, "check_meant_for", _trust_anybody),
        (checkpoint.Checkpoint, "save_control", _begin_anew),
    ],
)
def test_sabotage_of_the_flower_side_is_noticed(
    owner: Any, name: str, sabotage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, sabotage)
    for number in range(20):
        with monkeypatch.context() as patch:
            try:
                played(number, tmp_path / str(number), patch)
            except AssertionError:
                return
            except ValueError as refused:
                if "books.sqlite is missing" not in str(refused):
                    raise
                return
    pytest.fail("20 schedules found nothing")
