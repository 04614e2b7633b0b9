"""The laws of a store for purchases that are under way."""

from dataclasses import replace

from tidegate.client.store import BooksMovedError, Candidate, Purchase
from tidegate.testing.played_store import RUN, Played

ROUNDS = 12


def keeps_purchases_until_they_end(played: Played) -> None:
    """What was bought is there, with its content, price, round and whether it was asked for."""
    expected: list[Purchase] = []
    for now in range(1, ROUNDS + 1):
        keys = [f"{RUN}/{now}/{place}" for place in range(int(played.draw.integers(0, 4)))]
        ended = [one.key for one in expected if not played.draw.integers(0, 3)]
        buy(played, now, keys, ended)
        expected = [one for one in expected if one.key not in ended]
        expected += [Purchase(key, price(now), now, now) for key in keys]
        compare(played, expected, f"after the order of round {now}")
        told = {one.key for one in expected if played.draw.integers(0, 2)}
        played.store.mark_asked(sorted(told))
        expected = [replace(one, asked=one.asked or one.key in told) for one in expected]
        played.store = played.reopened()
        compare(played, expected, f"opened again after round {now}")


def refuses_purchases_from_old_books(played: Played) -> None:
    """A change that is refused buys nothing and ends nothing."""
    buy(played, 1, ["a", "b"], [])
    bought = [Purchase(key, price(1), 1, 1) for key in ("a", "b")]
    stale, _ = played.change(2)
    buy(played, 2, [], [])
    fresh = [Candidate("c", played.store.pack("c"))]
    try:
        played.store.commit(replace(stale, removed=(), admitted=(), asked=fresh, ended=["a"]))
    except BooksMovedError:
        compare(played, bought, "after a change from old books was refused")
    else:
        played.trial.expect(False, "it accepted purchases that were computed from old books")


def price(now: int) -> float:
    """Of a round's order."""
    return 1.0 + now / 4


def buy(played: Played, now: int, keys: list[str], ended: list[str]) -> None:
    """Commit an order that buys samples which come later, and with which others end."""
    change, _ = played.change(now)
    under_way = change.before.under_way + len(keys) - len(ended)
    played.store.commit(
        replace(
            change,
            books=replace(change.books, under_way=under_way),
            order=replace(change.order, price=price(now)),
            removed=(),
            admitted=(),
            asked=[Candidate(key, played.store.pack(key)) for key in keys],
            ended=ended,
        )
    )


def compare(played: Played, expected: list[Purchase], when: str) -> None:
    """Purchases and their contents, against what they should be."""
    found = played.store.purchases()
    played.trial.expect(found == expected, f"{when}, its purchases are {found}, not {expected}")
    contents = [played.store.unpack(played.store.purchased(one.key).packed) for one in found]
    played.trial.expect(
        contents == [one.key for one in expected], f"{when}, purchases have other contents"
    )
