"""Clients beside each other: everybody has a row, and a large fleet says who is left out."""

from dataclasses import replace
from pathlib import Path

import pytest
from recorded_run import recorded_run

from tidegate.report.client_pictures import MOST_CLIENTS, client_pictures
from tidegate.report.page import drawing
from tidegate.runs.reader import read_run

pytestmark = pytest.mark.long


def test_every_client_has_a_row_with_what_it_bought(tmp_path: Path) -> None:
    recorded_run(tmp_path)
    clients = read_run(tmp_path).clients
    assert sum(one.total_admitted for one in clients) > 0
    for one in clients:
        assert sum(count for _, count in one.held) == one.stored
    with drawing() as picture:
        bought, held = client_pictures(clients, picture)
        assert client_pictures([], picture) == []
        fleet = [replace(clients[0], name=f"client <{number}>") for number in range(50)]
        some, _ = client_pictures(fleet, picture)
        empty = replace(clients[0], held=[], stored=0)
        _, nothing = client_pictures([empty], picture)
    for one in clients:
        assert f"{one.name} {one.total_admitted:,}" in bought.svg
        youngest, oldest = one.held[0][0], one.held[-1][0]
        assert f"{one.name} {one.stored:,} of ages {youngest} to {oldest}" in held.svg
        assert one.name in held.svg.partition("<g")[2]  # beside its row
    most = max(count for one in clients for _, count in one.held)
    assert held.caption.startswith(f"The largest dot is {most} sample")
    assert some.caption == f"The first {MOST_CLIENTS} of 50 clients."
    assert "none at all" in nothing.svg
