"""Who is planned for, and who is away how long, is what going through all clients would give."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import ConfigurationError
from tidegate.server.fleet import Roster

NAMES = st.frozensets(st.sampled_from("abcdef"))
ROUNDS = st.lists(st.tuples(NAMES, NAMES, NAMES), max_size=12)


def seen(absences: dict[str, int], here: set[str], retired: set[str], horizon: int | None) -> None:
    """The same round, client by client."""
    after = dict.fromkeys(here - retired, 0)
    for client, absent in absences.items():
        stays = horizon is None or absent + 1 < horizon
        if client not in after and client not in retired and stays:
            after[client] = absent + 1
    after = after or {client: absent + 1 for client, absent in absences.items()}
    absences.clear()
    absences.update(sorted(after.items()))


@given(ROUNDS, st.sampled_from([None, 1, 2, 3]), st.booleans())
def test_the_roster_is_what_going_through_all_clients_gives(
    rounds: list[tuple[frozenset[str], frozenset[str], frozenset[str]]],
    horizon: int | None,
    as_mapping: bool,
) -> None:
    roster, expected = Roster(), dict[str, int]()
    for present, online, gone in rounds:
        retired = set(gone if len(gone) < 3 else ())
        told = dict.fromkeys(online) if as_mapping else online
        new = roster.look(present, told) - retired
        left = roster.places.keys() & retired
        if horizon is not None:
            left |= roster.absent_for(lambda _: horizon)
        if not (expected or new):
            with pytest.raises(ConfigurationError, match="no client can take part"):
                roster.changed(new, left)
            continue
        clients = roster.changed(new, left)
        if clients is not None:
            roster.replace(clients)
        seen(expected, {*present, *online}, retired, horizon)
        after = {one: absent for one, absent in roster.absences.items() if one not in retired}
        assert after == {one: absent for one, absent in expected.items() if one not in retired}
        assert list(roster.places) == list(expected)
        assert set(roster.away) == {one for one, absent in roster.absences.items() if absent}
        roster = Roster(roster.places, roster.away, roster.looks)  # brought back after a restart


def test_a_client_that_is_let_in_again_is_seen_at_once() -> None:
    """It was online all the time, and retired; nothing else has changed."""
    roster = Roster({"a": 0})
    online = ["a", "b"]
    assert roster.look(["a"], online) == {"b"}
    assert roster.look(["a"], online) == {"b"}
