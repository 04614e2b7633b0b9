"""A run in one process, with all its clients in one file, that is killed again and again."""

import os
import random
from functools import partial
from pathlib import Path

import pytest
from check_size import at_size
from flwr.serverapp.strategy import FedAvg
from gated_apps import MODEL, echo_app
from killed_work import killed_at_work
from quiet import quietly

from tidegate.client.auditing import Audit, audit_file, compare
from tidegate.errors import TidegateError
from tidegate.flower import AdmissionControl, ClientGate, LocalGrid
from tidegate.flower.local_grid import BUFFERS
from tidegate.prices import PricePath, UniformPrice
from tidegate.report.live import summary
from tidegate.runs.reader import read_accounts, read_run

KILLS = at_size(20, 500)
ROUNDS = at_size(200, 4000)
CLIENTS = 4
NODES = [{"partition-id": number, "num-partitions": CLIENTS} for number in range(CLIENTS)]

_quietly = pytest.fixture(autouse=True)(quietly)


def play(folder: Path, paid: Path, tell: int) -> None:
    """Begin the run, or continue it; every payment leaves a line."""
    log = os.open(paid, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def acquire(sample: object, key: str) -> object:
        os.write(log, f"{key}\n".encode())
        os.write(tell, b".")
        return sample

    strategy = AdmissionControl(
        FedAvg(fraction_evaluate=0.0),
        "tide",
        budget=33.0,
        prices=PricePath(UniformPrice(1, 10), 1),
        folder=folder,
        run="killed",
    )
    with LocalGrid(echo_app(ClientGate(lambda _: range(10**6), 8, acquire=acquire)), NODES) as grid:
        strategy.start(grid, MODEL, num_rounds=ROUNDS)


def check(folder: Path) -> list[Audit]:
    """What clients have agrees with their record, and the server's books are not ahead of it.

    What `tidegate watch` shows as spent and exposed is at no moment below what clients have paid.
    """
    audits = audit_file(folder / "buffers" / BUFFERS)
    try:
        _, accounts = read_accounts(folder)
    except TidegateError:  # it died before it saved anything
        accounts = {}
    for audit in audits:
        if audit.books.client in accounts:
            compare(audit, accounts[audit.books.client])
        assert (audit.problems, audit.broken) == ([], []), audit.books.client
    if accounts:
        figures = summary(read_run(folder), now=0.0)
        paid = sum(audit.books.spent for audit in audits)
        assert figures.get("spent", 0.0) + figures["exposure"] >= paid * (1 - 1e-9)
    return audits


@pytest.mark.process
def test_kills_leave_buffers_and_books_of_one_moment(tmp_path: Path) -> None:
    folder, paid = tmp_path / "run", tmp_path / "paid"
    draw = random.Random(0)  # noqa: S311 - a schedule, not a secret
    for _ in range(KILLS):
        killed_at_work(partial(play, folder, paid), draw.uniform(0, 0.05), patience=60.0)
        audits = check(folder)
    assert len(audits) == CLIENTS
    keys = paid.read_text().split()
    admitted = sum(audit.books.admitted for audit in audits)
    assert admitted > 0
    # Whatever is in the books was paid for; one client's order a kill may have been paid for again.
    assert admitted <= len(set(keys))
    assert len(keys) - len(set(keys)) <= 8 * KILLS
