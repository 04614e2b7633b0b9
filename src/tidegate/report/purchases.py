"""Purchases under way, suppliers, spools and empty buffers of a run, in words."""

from collections.abc import Mapping
from typing import Any

from tidegate._internal.words import counted
from tidegate.report.tables import amount


def told_of_purchases(told: Mapping[str, Any]) -> list[tuple[str, str, bool]]:
    """Return what an operator should know about purchases, suppliers, spools and empty buffers.

    Args:
        told: the newest round's figures, by the names of its row.

    Returns:
        For each topic its name, a sentence, and whether all is well.

    >>> late = {"under_way": 3, "under_way_spent": 7.5, "oldest_under_way": 12}
    >>> well = dict.fromkeys(["failing_suppliers", "full_spools", "spool_dropped"], 0)
    >>> well["empty_clients"] = 0
    >>> told_of_purchases(late | well)[0][1]
    '3 samples, for 7.5, are bought and have not arrived yet, the oldest bought 12 rounds ago'
    """
    count, found = told["under_way"], list[tuple[str, str, bool]]()
    if count:
        are, have = ("is", "has") if count == 1 else ("are", "have")
        age = told["oldest_under_way"]
        words = (
            f"{counted(count, 'sample')}, for {amount(told['under_way_spent'])}, {are} "
            f"bought and {have} not arrived yet, the oldest bought {counted(age, 'round')} ago"
        )
        found.append(("under way", words, True))
    if told["failing_suppliers"]:
        clients = counted(told["failing_suppliers"], "client")
        words = f"the supplier of {clients} could not be asked or did not reply"
        found.append(("suppliers", words, False))
    if told["full_spools"]:
        words = (
            f"the stream of {counted(told['full_spools'], 'client')} has no room for more messages"
        )
        found.append(("spools", words, False))
    if told["spool_dropped"]:
        dropped = told["spool_dropped"]
        words = f"{counted(dropped, 'message')} dropped unread by full streams so far"
        found.append(("dropped", words, False))
    if told["empty_clients"] > told.get("failed", 0):  # clients that fail cannot buy
        hold = "holds" if told["empty_clients"] == 1 else "hold"
        found.append(
            ("empty", f"{counted(told['empty_clients'], 'client')} {hold} no sample", False)
        )
    return found
