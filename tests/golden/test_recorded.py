"""Schedules, histories and simulations lead to what they led to when they were recorded."""

import json

import pytest
from check_size import at_size
from quiet import quietly
from recorded import FILE, digest, everything

pytestmark = pytest.mark.no_cover  # long loops, covered elsewhere

_quietly = pytest.fixture(autouse=True)(quietly)

RECORDED: dict[str, dict[str, str]] = json.loads(FILE.read_text())
EVERY = at_size(8, 1, quick=20)


@pytest.mark.parametrize("group", everything())
def test_everything_is_as_recorded(group: str) -> None:
    members = everything()[group]
    names = [*members][::EVERY]
    assert [name for name in names if digest(members[name]()) != RECORDED[group][name]] == []
