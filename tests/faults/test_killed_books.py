"""A server with many known clients is killed at any moment; what it resumes is what it had saved.

The model, the row of a round and the books are written by the product's own checkpoint. A run that
nobody kills tells what every state that was saved must be.
"""

import hashlib
import json
import os
import random
import select
import signal
import time
import traceback
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from check_size import at_size
from flwr.app import Array, ArrayRecord
from flwr.serverapp.strategy import FedAvg
from saved_controller import parts, written

from bookkeeping import answer
from tidegate.flower.checkpoint import Checkpoint
from tidegate.policies.presets import make_policy
from tidegate.prices import PricePath, UniformPrice
from tidegate.runs.books import RunBooks
from tidegate.server.controller import Controller
from tidegate.server.fleet import Terms
from tidegate.wire import Introduction

KNOWN, KILLS = at_size((300, 25), (10_000, 500))
TAKING_PART = 40
ROUNDS = 5_000
AWAY = KNOWN // 11
"""Clients that go, and as many that come back, in every round."""
ORDERS, SETTLING = 2 * AWAY + TAKING_PART, 2 * TAKING_PART
"""Writes that save the orders of a round, and those that settle it, about."""
DYING = b"!"


def terms() -> Terms:
    return Terms(
        policy=lambda problem: make_policy("tide", problem),
        policy_name="tide",
        budget=5.5 * TAKING_PART,
        prices=PricePath(UniformPrice(1, 10), 1),
        num_rounds=ROUNDS,
        fraction_train=TAKING_PART / KNOWN,
    )


def name_of(number: int) -> str:
    return f"client-{number:05}"


def model_of(now: int) -> ArrayRecord:
    return ArrayRecord({"w": Array(np.full(5_000, float(now)))})


def digest(controller: Controller) -> str:
    """Of all that the next step depends on, to the last bit."""
    state, record = written(parts(controller.standing))
    text = json.dumps(json.loads(record), sort_keys=True)
    return hashlib.sha256(text.encode() + (state or b"")).hexdigest()


def begin() -> Controller:
    controller = Controller(terms(), "r")
    for number in range(KNOWN):
        controller.join(
            Introduction(
                run="r", client=name_of(number), buffer_capacity=5 + number % 7, buffer_id="b"
            )
        )
    return controller


def steps(controller: Controller, saved: Checkpoint | None) -> list[str]:
    """One round in two steps, each of which is saved; who comes, and who answers, is drawn."""
    now = controller.round_number
    draw = random.Random(now)  # noqa: S311 - the same in every process
    found = []
    if not controller.is_under_way:
        some = [name_of(one) for one in draw.sample(range(KNOWN), TAKING_PART)]
        there = [name_of(one) for one in range(KNOWN) if (one + now) % 11]
        orders = controller.decide(some, there)
        if saved is not None:
            saved.save_orders(controller, orders)
        found.append(digest(controller) if saved is None else "")
    ledger = controller.ledger
    for number, client in enumerate(sorted(ledger.accounts.unanswered)):
        order = ledger.account(client).outstanding
        if order is not None and (number + now) % 9:  # the others are late, for a few rounds
            controller.book(client, answer(ledger.account(client), order))
    row = controller.close()
    if saved is not None:
        saved.save_round(controller, model_of(now), FedAvg(fraction_evaluate=0.0), row)
    return [*found, digest(controller) if saved is None else ""]


class Death:
    """Ends this process at its n-th write, or lets the parent do so from then on.

    A write is a statement that changes the books, a file that is forced to disk, or one that is
    renamed.
    """

    def __init__(self, at: int, told: int, *, by_parent: bool) -> None:
        self._left, self._told, self._by_parent = at, told, by_parent

    def watch(self) -> None:
        """From now on; there is no way back."""
        make = RunBooks.__init__

        def traced(books: RunBooks, path: Path) -> None:
            make(books, path)
            books._connection.set_trace_callback(self._note)

        setattr(RunBooks, "__init__", traced)  # noqa: B010 - and mypy would refuse it
        for name in ("fsync", "replace"):
            setattr(os, name, self._noting(getattr(os, name)))

    def _noting(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*given: Any, **named: Any) -> Any:
            self._note()
            return function(*given, **named)

        return noted

    def _note(self, statement: str = "") -> None:
        if statement.lstrip().startswith("SELECT"):
            return
        self._left -= 1
        if not self._left:
            os.write(self._told, DYING)
            if not self._by_parent:
                os.kill(os.getpid(), signal.SIGKILL)


def serve(folder: Path, told: int, death: Death) -> None:
    """Resume, or begin, and play until somebody ends this process."""
    with closing(Checkpoint(folder)) as saved:
        strategy = FedAvg(fraction_evaluate=0.0)
        resumed = saved.load(terms(), strategy)
        if resumed is None:
            controller = begin()
            saved.begin(controller, model_of(0), strategy)
            steps(controller, saved)  # in the first round everybody comes, and is written down
        else:
            controller = resumed.controller
            settled = controller.round_number - 1
            weights = resumed.arrays["w"].numpy()
            np.testing.assert_array_equal(weights, model_of(settled)["w"].numpy())
            assert [row.round_number for row in resumed.rounds] == [*range(1, settled + 1)]
        where = 2 * (controller.round_number - 1) + controller.is_under_way
        os.write(told, f"{where} {digest(controller)}\n".encode())
    death.watch()
    with closing(Checkpoint(folder)) as saved:
        again = saved.load(terms(), strategy)
        assert again is not None
        for _ in range(3):  # more than are needed
            steps(again.controller, saved)
            os.write(told, f"{2 * (again.controller.round_number - 1)}\n".encode())


def killed(folder: Path, draw: random.Random) -> list[str]:
    """What a server says that is killed at one of its writes, or shortly after."""
    read, write = os.pipe()
    by_parent = draw.random() < 0.5
    at = draw.choice([draw.randint(1, ORDERS), ORDERS + draw.randint(0, 2 * SETTLING)])
    death = Death(at, write, by_parent=by_parent)
    child = os.fork()
    if not child:
        try:
            os.close(read)
            serve(folder, write, death)
        except BaseException:  # nothing of pytest's may run in this process
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    os.close(write)
    said = b""
    while DYING not in said:
        ready, _, _ = select.select([read], [], [], 600.0)
        assert ready, "the server does not come to its end"
        more = os.read(read, 4096)
        assert more, "the server failed"
        said += more
    if by_parent:
        time.sleep(draw.expovariate(1 / 0.002))  # somewhere within what comes next
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), "the server was not killed"
    while more := os.read(read, 1 << 16):
        said += more
    os.close(read)
    return said.replace(DYING, b"").decode().split("\n")[:-1]


@pytest.mark.process
@pytest.mark.filterwarnings("ignore:os.fork")  # another test may have loaded a library with threads
@pytest.mark.share(at_size(60, 3600))
def test_a_server_that_is_killed_resumes_what_it_had_saved(tmp_path: Path) -> None:
    whole = begin()
    expected = [digest(whole)]
    draw, last, cut = random.Random(1), 0, 0  # noqa: S311 - a schedule, not a secret
    for kills in range(1, KILLS + 1):
        said = killed(tmp_path, draw)
        where, found = said[0].split()
        while len(expected) <= int(where):
            expected += steps(whole, None)
        assert found == expected[int(where)], f"after {kills} kills, at {where}"
        assert last <= int(where) <= last + 2, f"{last} was on disk, and {where} was resumed"
        cut += int(where) != last
        last = max(int(one.split()[0]) for one in said)
    assert cut > KILLS // 10, f"only {cut} of {KILLS} kills fell after the orders were saved"
