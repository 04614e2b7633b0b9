"""Clients beside each other: everybody has a row, and a large fleet says who is left out."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from recorded_run import recorded_run

from tidegate.report.client_pictures import MISSED, MOST_CLIENTS, client_pictures
from tidegate.report.page import drawing
from tidegate.runs.reader import read_run

pytestmark = pytest.mark.long


def test_every_client_has_a_row_with_what_it_bought(tmp_path: Path) -> None:
    recorded_run(tmp_path)
    clients = read_run(tmp_path).clients
    assert sum(one.total_admitted for one in clients) > 0
    for one in clients:
        assert sum(count for _, count in one.batches) == one.stored
    with drawing() as picture:
        bought, held = client_pictures(clients, picture)
        assert client_pictures([], picture) == []
        fleet = [replace(clients[0], name=f"client <{number}>") for number in range(50)]
        some, _ = client_pictures(fleet, picture)
        empty = replace(clients[0], batches=[], stored=0)
        _, nothing = client_pictures([empty], picture)
    for one in clients:
        assert f"{one.name} {one.total_admitted:,}" in bought.svg
        first, last = one.batches[0][0], one.batches[-1][0]
        assert f"{one.name} {one.stored:,} of rounds {first} to {last}" in held.svg
        assert one.name in held.svg.partition("<g")[2]  # beside its row
    most = max(count for one in clients for _, count in one.batches)
    assert held.caption.startswith(f"The largest dot is {most} sample")
    assert some.caption == f"The first {MOST_CLIENTS} of 50 clients."
    assert "none at all" in nothing.svg


def test_samples_are_held_since_the_rounds_whose_rows_tell_of_them(tmp_path: Path) -> None:
    recorded_run(tmp_path)
    view = read_run(tmp_path)
    admitted = {row.round_number: row.admitted for row in view.rounds}
    held = Counter[int]()
    for one in view.clients:
        assert one.missed == 0
        held.update(dict(one.batches))
    assert held
    assert all(0 < count <= admitted[number] for number, count in held.items())
    assert max(held) == max(number for number, count in admitted.items() if count)


def test_a_client_that_missed_rounds_is_said_to_be_counted_back(tmp_path: Path) -> None:
    recorded_run(tmp_path)
    view = read_run(tmp_path)
    away, *others = view.clients
    with drawing() as picture:
        whole = client_pictures([away, *others], picture)[1]
        missing = client_pictures([replace(away, missed=2), *others], picture)[1]
    assert MISSED not in whole.caption
    assert MISSED in missing.caption
