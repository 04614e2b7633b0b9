"""A server's books in their file: what a round writes, who may read, and other formats."""

import math
import random
import sqlite3
import tempfile
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from nobody import as_nobody, can_be_nobody
from saved_controller import brought_back, parts, written

from bookkeeping import answer
from tidegate.errors import ConfigurationError, DamagedFileError, RunDiffersError
from tidegate.policies.presets import make_policy
from tidegate.prices import PriceFeed, PricePath, UniformPrice
from tidegate.runs.books import RunBooks
from tidegate.runs.folder import FORMAT_VERSION
from tidegate.runs.reader import read_run
from tidegate.runs.writer import RunWriter
from tidegate.server.controller import Controller
from tidegate.server.fleet import Terms
from tidegate.wire import Introduction

PRICES = PricePath(UniformPrice(1, 10), 1)


def terms(clients: int, policy: str = "acdpp", prices: PriceFeed = PRICES) -> Terms:
    return Terms(
        policy=lambda problem: make_policy(policy, problem),
        policy_name=policy,
        budget=50.0,
        prices=prices,
        num_rounds=100,
        fraction_train=10 / clients,
    )


def begin(clients: int, policy: str = "acdpp", prices: PriceFeed = PRICES) -> Controller:
    controller = Controller(terms(clients, policy, prices), "r")
    for number in range(clients):
        known = Introduction(run="r", client=f"c{number}", buffer_capacity=9, buffer_id="b")
        controller.join(known)
    return controller


def play(controller: Controller, books: RunBooks, some: list[str], there: list[str]) -> None:
    orders = controller.decide(some, there)
    books.save(controller.standing)
    for client, order in orders.items():
        controller.book(client, answer(controller.ledger.account(client), order))
    controller.close()
    books.save(controller.standing)


def rows_written(clients: int, path: Path) -> int:
    """By ten clients that take part in a round, of so many."""
    controller, draw = begin(clients), random.Random(1)  # noqa: S311
    there = [f"c{number}" for number in range(clients)]
    with closing(RunBooks(path)) as books:
        books.save(controller.standing)
        play(controller, books, there[:10], there)
        before = books._connection.total_changes
        for _ in range(5):
            play(controller, books, draw.sample(there, 10), there)
        return books._connection.total_changes - before


def test_a_round_writes_what_it_changed(tmp_path: Path) -> None:
    few, many = (rows_written(count, tmp_path / str(count)) for count in (30, 3000))
    assert 5 * 20 <= few <= 5 * 40
    assert abs(many - few) <= 5


@pytest.mark.parametrize("policy", ["acdpp", "tide"])
def test_accounts_that_are_not_in_memory_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    """A server that forgets every account it can decides as one that keeps them all."""
    monkeypatch.setattr("tidegate.server.ledger.MOST_HELD", 5)
    there = [f"c{number}" for number in range(40)]
    whole, small = begin(40, policy), begin(40, policy)
    with closing(RunBooks(tmp_path / "books")) as books, closing(RunBooks(tmp_path / "b")) as other:
        for now in range(30):
            some = [there[(7 * now + number) % 40] for number in range(10)]
            online = [one for number, one in enumerate(there) if (number + now) % 13]
            for controller, file in ((whole, other), (small, books)):
                play(controller, file, some, online)
            small = brought_back(books, terms(40, policy))
            assert len(small.ledger.accounts._held) <= 10
        assert written(parts(small.standing)) == written(parts(whole.standing))


class Nothing:
    """A feed whose samples cost nothing, written with a sign."""

    def at(self, round_number: int, clients: Sequence[str]) -> float:
        return -0.0

    def mean(self, num_rounds: int) -> float:
        return 1.0


def test_a_price_of_minus_nothing_is_a_price_of_nothing(tmp_path: Path) -> None:
    """SQLite does not tell them apart, and a checksum would."""
    controller = begin(12, prices=Nothing())
    there = [f"c{number}" for number in range(12)]
    with closing(RunBooks(tmp_path / "books.sqlite")) as books:
        orders = controller.decide(there[:10], there)
        assert {math.copysign(1, order.price) for order in orders.values()} == {1.0}
        sent = replace(orders["c0"], price=-0.0)
        account = replace(controller.ledger.account("c0"), outstanding=sent)
        controller.ledger.accounts["c0"] = account
        books.save(controller.standing)
        assert books.load(terms(12, prices=Nothing())) is not None


def test_books_that_are_missing_are_not_a_new_run(tmp_path: Path) -> None:
    first = RunWriter(tmp_path)
    with first.held():
        first.begin()
        first.save_control(begin(12), "model-000000.npz")
        (tmp_path / "rounds.jsonl").write_text("{}\n")
    (tmp_path / "books.sqlite").unlink()
    again = RunWriter(tmp_path)
    with again.held(), pytest.raises(DamagedFileError, match=r"books\.sqlite is missing, but"):
        again.load(terms(12))
    with pytest.raises(ConfigurationError, match="holds no run"):
        read_run(tmp_path)


def test_books_of_another_format_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "books.sqlite"
    with closing(RunBooks(path)) as books:
        books.save(begin(3).standing)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {FORMAT_VERSION + 1}")
    told = f"has format {FORMAT_VERSION + 1}, but this program reads {FORMAT_VERSION}: another"
    with pytest.raises(RunDiffersError, match=told):
        RunBooks(path)
    with pytest.raises(RunDiffersError, match=told):
        read_run(tmp_path)


def test_books_that_were_closed_are_not_called_damaged(tmp_path: Path) -> None:
    books = RunBooks(tmp_path / "books.sqlite")
    books.save(begin(3).standing)
    again = brought_back(books, terms(3))
    books.close()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        again.ledger.account("c0")


def test_a_file_of_somebody_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "books.sqlite"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE own (x)")
    with pytest.raises(ConfigurationError, match="is a database, but not a server's books"):
        RunBooks(path)
    with pytest.raises(ValueError, match="it has other tables than a server's books"):
        read_run(tmp_path)


@can_be_nobody
@pytest.mark.parametrize("is_open", [True, False])
def test_somebody_who_may_not_write_can_read(is_open: bool) -> None:
    """While a server has the books open, and when none has."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        controller, there = begin(12), [f"c{number}" for number in range(12)]
        with closing(RunBooks(folder / "books.sqlite")) as books:
            books.save(controller.standing)
            orders = controller.decide(there[:10], there)
            assert orders
            books.save(controller.standing)
            if not is_open:
                books.close()
            with as_nobody():
                assert len(read_run(folder).clients) == 12
