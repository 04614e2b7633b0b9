"""A client that buys labels from people is killed at random points, before a real Label Studio."""

import os
import random
import signal
import time
import traceback
import urllib.error
from collections import defaultdict
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from check_size import at_size
from deployment import wait_for
from label_studio import LabelStudio, read

from tidegate.client.gate import Gate
from tidegate.client.store import Store
from tidegate.client.streams import IndexedStream
from tidegate.integrations.label_studio import LabelStudioServer, LabelStudioSupplier
from tidegate.integrations.label_studio.supplier import KEY, task_key
from tidegate.wire import Order

KILLS = at_size(10, 500)
CAPACITY = 10**6
GIVE_UP_AFTER = 6
NEWEST = 60
"""Tasks among which all are that are under way."""
LONGEST = 0.8
"""Seconds that a client lives: a round or two."""


def order(now: int) -> Order:
    """The order of a round, the same in every process; what it buys stays."""
    return Order(
        run="r", round_number=now, price=price(now), retention_horizon=10**6, count=count(now)
    )


def price(now: int) -> float:
    return 1 + now % 7 / 4  # sums of it are exact


def count(now: int) -> int:
    return now * now % 6


def render(sample: int) -> dict[str, str]:
    return {"text": f"sample {sample}"}


class Client:
    """Buys labels of the numbers 0, 1, 2, ... in one project."""

    def __init__(self, label_studio: LabelStudio, project: int, path: Path) -> None:
        self.store = Store(path, "r", "site", CAPACITY)
        server = LabelStudioServer(label_studio.url, token_file=label_studio.token_file)
        supplier = LabelStudioSupplier(server, project, render, read)
        stream = IndexedStream(range(10**9))
        self.gate = Gate(self.store, stream, supplier=supplier, give_up_after=GIVE_UP_AFTER)

    def next_round(self) -> None:
        self.gate.apply(order(self.store.books().last_round + 1))


def killed_at_work(label_studio: LabelStudio, project: int, path: Path, delay: float) -> None:
    """Start a client, and kill it a little later."""
    listen, told = os.pipe()
    process = os.fork()
    if not process:
        try:
            client = Client(label_studio, project, path)
            os.write(told, b".")
            while True:
                client.next_round()
        finally:
            traceback.print_exc()
            os._exit(1)
    os.close(told)
    assert os.read(listen, 1) == b"."
    time.sleep(delay)  # the point at which it dies, not a wait for something
    os.kill(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    os.close(listen)
    assert os.WIFSIGNALED(status), "the client ended by itself"


def work(label_studio: LabelStudio, tasks: list[dict[str, Any]], draw: random.Random) -> None:
    """People label some of what is asked, skip a few, and leave others alone.

    A request that outlived its client may delete a task before they come to it.
    """
    for task in tasks:
        if not task["annotations"]:
            kind = draw.random()
            try:
                if kind < 0.4:
                    label_studio.label(task, f"label of {task['data']['text']}")
                elif kind < 0.45:
                    label_studio.skip(task)
            except urllib.error.HTTPError as failure:
                if failure.code != HTTPStatus.NOT_FOUND:
                    raise


def check_file(path: Path) -> tuple[int, int]:
    """Books of the file, whenever it is opened; purchases, and how many nobody may know of."""
    store = Store(path, "r", "site", CAPACITY)
    books, purchases, samples = store.books(), store.held("under way"), list(store.samples())
    newest = store.answer(books.last_round)
    store.close()
    bought = sum(count(now) for now in range(1, books.last_round + 1))
    assert bought == books.admitted + books.refused + len(purchases)
    spent = sum(count(now) * price(now) for now in range(1, books.last_round + 1))
    assert books.spent == spent
    assert books.under_way == len(purchases)
    committed = 0.0 if newest is None else newest[1].under_way_spent
    assert committed == sum(one.price for one in purchases)
    numbers = [number for number, _ in samples]
    assert len(numbers) == len(set(numbers)) == books.admitted
    assert all(label == f"label of sample {number}" for number, label in samples)
    return bought, sum(not one.is_asked for one in purchases)


def check_tasks(label_studio: LabelStudio, project: int, client: Client) -> str:
    """Every key has one task, every label is stored, every cent is accounted for."""
    store = client.store
    books = store.books()
    prices = [price(now) for now in range(1, books.last_round + 1) for _ in range(count(now))]
    tasks = defaultdict[str, list[dict[str, Any]]](list)
    for task in label_studio.tasks(project):
        tasks[task["data"][KEY]].append(task)
    keys = [f"r/site/{place}" for place in range(1, len(prices) + 1)]
    assert {task_key(key) for key in keys} >= set(tasks), "a task that nobody has bought"
    stored = {number for number, _ in store.samples()}
    under_way = {one.key: one for one in store.held("under way")}
    skipped, cancelled = 0, 0.0
    for number, key in enumerate(keys):
        mine = tasks[task_key(key)]
        assert len(mine) == 1 or (not mine and key not in under_way and number not in stored), key
        if key in under_way:
            assert under_way[key].price == prices[number]
        elif number not in stored:
            skipped += len(mine)
            cancelled += 0.0 if mine else prices[number]
        else:
            assert len(mine[0]["annotations"]) == 1
    assert books.refunded == cancelled
    assert books.refused == skipped + sum(not tasks[task_key(key)] for key in keys)
    net = books.spent - books.refunded
    return (
        f"{len(keys)} purchases in {books.last_round} rounds: {len(stored)} stored, {skipped} "
        f"skipped, {books.refused - skipped} cancelled, {len(under_way)} under way; "
        f"{books.spent} committed, {books.refunded} back, {net} paid"
    )


@pytest.mark.process
@pytest.mark.share(at_size(60, 3600))
def test_kills_of_a_client_leave_one_task_a_key_and_every_label_and_cent_in_its_books(
    label_studio: LabelStudio, tmp_path: Path
) -> None:
    path, project = tmp_path / "buffer.sqlite", label_studio.new_project()
    draw = random.Random(2)  # noqa: S311 - a schedule, not a secret
    not_known, twice = 0, 0
    for _ in range(KILLS):
        killed_at_work(label_studio, project, path, draw.uniform(0, LONGEST))
        not_known += check_file(path)[1] > 0
        newest = label_studio.tasks(project, NEWEST)
        twice += len(newest) - len({task["data"][KEY] for task in newest})
        work(label_studio, newest, draw)
    client = Client(label_studio, project, path)

    def settled() -> bool | None:
        client.next_round()
        return all(one.is_asked for one in client.store.held("under way")) or None

    wait_for(settled, "an answer to every request", 60)
    summary = check_tasks(label_studio, project, client)
    client.store.close()
    print(
        f"{KILLS} kills, {not_known} with purchases that the client did not know to be asked for, "
        f"{twice} tasks made twice by a request that outlived its client; {summary}"
    )
