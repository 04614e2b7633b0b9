"""What AdmissionControl tells in Flower's log."""

import logging
from collections.abc import Sequence

from tidegate.runs.folder import NOTHING_USED
from tidegate.server.fleet import Terms
from tidegate.server.fleet_round import FleetRound

ALL_PLAYED = "all %d rounds of run %s are played; take another folder for another run"
BUYING_PAUSES = (
    "what clients bought could not be used, again: they buy nothing in the next %d rounds, unless "
    "one of their models can be used before; the warnings above say what is wrong"
)
NOT_KEPT = "%s was resumed without its own state, which this run did not save before"
NOT_SAVED = (
    "%s changes attributes of its own (%s) that a resumed run will not have: give it state_dict() "
    "and load_state_dict(), which are saved with the run"
)
NOBODY_TOOK_PART = (
    "no client took part in this run, and no round was played: see that nodes are online and start "
    "it again"
)
HARDLY_A_SAMPLE = (
    "a budget of %.4g a round is %.4g in all %d rounds, and one sample costs %.4g on average: "
    "hardly a sample will be bought, if any; raise budget"
)
NOT_PLAYED = "round %d is not played: no client can be reached, and none was before"
"""Its number comes again."""
NOT_HERE = "importance is given for clients that are not here: %s"

logger = logging.getLogger("flwr.tidegate")


def tell_of_too_little(terms: Terms) -> None:
    """Warn of a budget that buys no sample in a whole run, at the price that is expected.

    Money that is not spent in a round can be in a later one, so the whole run counts.
    """
    if terms.spend_ahead is None or terms.purse is not None:
        return
    whole = terms.budget * (terms.num_rounds + terms.spend_ahead)
    price = terms.prices.mean(terms.num_rounds)
    if whole < price:
        logger.warning(HARDLY_A_SAMPLE, terms.budget, whole, terms.num_rounds, price)


def tell_of(rounds: Sequence[FleetRound], averaged: int) -> None:
    """The newest round, which is settled, and what somebody should look at.

    Args:
        rounds: what each of them did.
        averaged: clients whose models went into the average of the newest.
    """
    row, paused_before = rounds[-1], rounds[-2].pause if len(rounds) > 1 else 0
    logger.info("%s", row.told)
    if not averaged:
        logger.warning(NOTHING_USED, row.round_number)
    # A pause of one round follows a failure that may be the only one; a longer one is told once.
    if row.pause > max(paused_before, 1):
        logger.warning(BUYING_PAUSES, row.pause)
