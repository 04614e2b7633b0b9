"""Log lines of AdmissionControl."""

import logging
from collections.abc import Sequence

from flwr.serverapp import Grid

from tidegate._internal.words import counted
from tidegate.flower.local_grid import LocalGrid
from tidegate.server.fleet import Terms
from tidegate.server.fleet_round import FleetRound, sums_of
from tidegate.server.ledger import Ledger

SAVING = "the run is saved in %s"
RESUMING = "resuming run %s after round %d"
NOTHING_USED = "no client's model was used in round %d"
SPENT = "bought %s in %s, for %.10g of the %.10g that the budget allows"
ALL_PLAYED = "all %d rounds of run %s are done; use another folder for another run"
BUYING_PAUSES = (
    "again, no update of a client that bought samples could be used: clients buy nothing in the "
    "next %d rounds, unless an update can be used earlier; see the warnings above for the reasons"
)
NOTHING_REPORTED = (
    "again, no client's reply could be used, and no client reported a purchase in this round: "
    "clients buy nothing in the next %d rounds, unless an update can be used earlier; see the "
    "warnings above for the reasons"
)
OTHER_CLIENTS = (
    "this run had %d clients, and this process has %d: new ones share the budget with the others, "
    "and missing ones count as away. tidegate run APP --clients %d keeps their number"
)
NOT_KEPT = "%s was resumed without its own state: the folder holds none"
NOT_SAVED = (
    "%s has no state() and restore(state): a restart keeps the model and what Flower's own "
    "strategies keep, and forgets everything else that %s changed in earlier rounds; state() says "
    "what to save with the run, {} if nothing changes"
)
STOPPED = (
    "should_stop ended the run after round %d%s; the same app with the same folder, if there is "
    "one, continues it"
)
"""``tidegate watch`` knows its beginning."""
UNDER_WAY = ", with %s paid for and under way"
NOBODY_TOOK_PART = (
    "no client took part in this run and no round was run: check that nodes are online, and "
    "start it again"
)
HARDLY_A_SAMPLE = (
    "a budget of %.4g a round is %.4g in all %d rounds, and a sample costs %.4g on average: "
    "clients will buy hardly any samples; raise the budget"
)
NOT_PLAYED = "round %d was skipped: no client is online, and none has been yet"
"""Its number is used again."""
NOT_HERE = (
    "importance names clients that are not in this run: %s; check the spelling of their names"
)

logger = logging.getLogger(__name__)


def tell_of_too_little(terms: Terms) -> None:
    """Warn of a budget that cannot buy a sample in the whole run at the expected price.

    Money that is left over in a round can be spent in a later one, so the whole run counts.
    """
    if terms.spend_ahead is None or terms.purse is not None:
        return
    whole = terms.budget * (terms.num_rounds + terms.spend_ahead)
    price = terms.prices.mean(terms.num_rounds)
    if whole < price:
        logger.warning(HARDLY_A_SAMPLE, terms.budget, whole, terms.num_rounds, price)


def tell_of(rounds: Sequence[FleetRound], averaged: int) -> None:
    """Log the newest settled round, and warnings if something needs attention.

    Args:
        rounds: all rounds so far.
        averaged: clients whose models are in the newest average.
    """
    row, paused_before = rounds[-1], rounds[-2].pause if len(rounds) > 1 else 0
    logger.info("%s", row.told)
    if not averaged:
        logger.warning(NOTHING_USED, row.round_number)
    # A pause of one round follows a failure that may be the only one; a longer one is logged once.
    if row.pause > max(paused_before, 1):
        logger.warning(BUYING_PAUSES if row.spent else NOTHING_REPORTED, row.pause)


def tell_of_other_clients(ledger: Ledger, grid: Grid) -> None:
    """Warn if a resumed run in this process has another number of clients than before."""
    if not isinstance(grid, LocalGrid):
        return
    known, here = len(ledger.accounts), len(list(grid.get_node_ids()))
    if here != known > 0:
        logger.warning(OTHER_CLIENTS, known, here, known)


def tell_of_stop(rounds: Sequence[FleetRound]) -> None:
    """Log that the user's own ``should_stop`` ends the run, and what has not arrived yet."""
    if rounds:
        under_way = rounds[-1].under_way
        more = UNDER_WAY % counted(under_way, "sample") if under_way else ""
        logger.info(STOPPED, rounds[-1].round_number, more)


def tell_of_end(rounds: Sequence[FleetRound], num_rounds: int) -> None:
    """Log what a run has bought and spent, from its first round on; warn if it had no round.

    Args:
        rounds: all rounds of the run, also those before a restart.
        num_rounds: how many it was asked for.
    """
    if not rounds:
        if num_rounds:
            logger.warning(NOBODY_TOOK_PART)
        return
    bought, spent, allowed = sums_of(rounds)
    logger.info(SPENT, counted(bought, "sample"), counted(len(rounds), "round"), spent, allowed)
