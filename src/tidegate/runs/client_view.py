"""One client of a run, as the server's books show it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidegate.server.account import Account


@dataclass(frozen=True)
class ClientView:
    """One client, by the server's books."""

    name: str
    buffer_capacity: int
    stored: int
    """Samples, by its last receipt."""
    total_admitted: int
    total_spent: float
    last_round: int
    """The round of its last receipt; 0 before the first."""
    away_for: int | None
    """Rounds since it was online; None if it is no longer in the plan."""
    owes_answer: bool
    """Whether an order of an earlier round has no receipt."""
    is_retired: bool
    """Whether an operator has retired it, or has asked the server to."""
    held: Sequence[tuple[int, int]] = ()
    """What it stores or will store: ages, in orders since the purchase, and samples of each."""
    candidates: int = 0
    """Candidates that it reads for an order; 0 if it takes samples as they come."""
    read: int = 0
    """Samples that its present buffer has read from the stream."""
    failed: bool = False
    """Whether it owes a receipt, or was left out, because of an error or a refused reply."""
    troubles: Sequence[str] = ()
    """Problems of its purchases by its last receipt: ``empty`` (it holds nothing, and nothing is
    under way), ``short`` (it bought fewer samples than ordered in the last round, or in an earlier
    one and none since), ``suppliers`` (one fails), ``spools`` (its stream has no room)."""


def client_view(
    name: str,
    account: Account,
    away_for: int | None,
    round_number: int,
    requests: Mapping[str, bool],
) -> ClientView:
    """Return a client as an account of the books shows it.

    Args:
        name: the client's.
        account: the server's account of it.
        away_for: the rounds since it was online.
        round_number: the round under way, or the next one.
        requests: whom operators have asked to retire, or to let in again.
    """
    order, newest = account.outstanding, account.newest
    is_retired = requests.get(name, account.retired_in > 0)
    troubles = {
        "empty": account.is_empty,
        "short": newest.is_dry and newest.round_number == round_number - 1,
        "suppliers": newest.health.get("failing_suppliers", 0) > 0,
        "spools": newest.health.get("full_spools", 0) > 0,
    }
    return ClientView(
        name=name,
        buffer_capacity=account.buffer_capacity,
        stored=newest.occupancy,
        total_admitted=account.admitted,
        total_spent=account.lost.spent + newest.spent,
        last_round=newest.round_number,
        away_for=away_for,
        owes_answer=order is not None and order.round_number < round_number and not is_retired,
        is_retired=is_retired,
        held=[(age, count) for age, count in enumerate(newest.holding, start=1) if count],
        candidates=account.candidates,
        read=newest.read,
        troubles=() if is_retired else tuple(trouble for trouble, here in troubles.items() if here),
    )
