"""What a run has spent, and why that differs from the budget, in words."""

import itertools
from typing import Any

from tidegate._internal.words import counted
from tidegate.report.alarms import pause_words, set_aside_words
from tidegate.report.incidents import paused_rounds
from tidegate.report.purchases import told_of_purchases
from tidegate.report.tables import amount
from tidegate.runs.own_prices import amounts_paid
from tidegate.runs.reader import RunView

NOTEWORTHY = 0.01
"""The page explains a difference above this part of the allowed money."""


def spending_in_words(view: RunView, told: dict[str, Any]) -> list[str]:
    """Return the paragraphs of a run's page about money.

    Args:
        view: the run.
        told: its figures, from ``live.summary``.
    """
    return [
        _spent(view, told),
        *_why(view, told),
        *_amounts(view),
        *_dry(view),
        *_paused(view),
        *_set_aside(told),
        *_waiting(told),
    ]


def _spent(view: RunView, told: dict[str, Any]) -> str:
    above: float = told["overspend"]
    exposure: float = told["exposure"]
    ahead = f"{amount(-above)} under budget" if above < 0 else f"overspend {amount(above)}"
    ahead = ahead if above else "on budget"
    held = "after every round" if told["certificate_holds"] else "NOT after every round"
    return (
        f"{amount(told['spent'])} in {len(view.rounds):,} rounds, "
        f"{amount(told['spent_per_round'])} a round where the budget allows "
        f"{amount(view.allowed_per_round)}; in all {ahead}. The cost debt, which counts overspend "
        f"and never falls below zero, is {amount(told['cost_debt'])}; {held} the total overspend "
        "was at most the cost debt (the spend certificate)."
        + f" Orders without a reply may have cost up to {amount(exposure)} more (exposure)."
        * (exposure > 0)
    )


def _why(view: RunView, told: dict[str, Any]) -> list[str]:
    """Return why a round cost more or less than the budget allows, if it did."""
    above = told["overspend"]
    if abs(above) <= NOTEWORTHY * told["allowed"]:
        return []
    worth = f"the budget of {abs(above) / view.allowed_per_round:,.3g} rounds"
    if above > 0:
        return [f"It is {amount(above)} ahead of the budget, {worth}. {_why_ahead(view)}"]
    return [f"{amount(-above)} of the budget is not spent, {worth}. {_why_behind(view, told)}"]


def _why_ahead(view: RunView) -> str:
    limit = view.options.get("spend_ahead")
    if limit is None:
        told = "The run set no limit on spending ahead (spend_ahead=None)"
    else:
        told = f"The run may spend {limit:g} rounds' budget early (spend_ahead)"
    told += ": empty buffers and low prices are used at once, and later rounds save the money."
    if view.is_over:
        return f"{told} This run ended before they had saved it all; a longer one comes nearer."
    return f"{told} The average falls towards the budget as the run goes on."


def _why_behind(view: RunView, told: dict[str, Any]) -> str:
    paused, dry = len(paused_rounds(view)), sum(1 for row in view.rounds if row.exhausted)
    failed = {number: count for number, (count, _) in view.failures.items() if count}
    unanswered = sum(
        1 for row in view.rounds if row.answered + failed.get(row.round_number, 0) < row.orders
    )
    # Full slots do not keep Tide from buying: fresh samples take the place of old ones.
    keeps = view.policy != "tide"
    full = [row for row in view.rounds if keeps and row.training_size >= row.slots > 0]
    reasons = [
        words
        for words, holds in (
            (f"buying paused in {counted(paused, 'round')}", paused),
            (f"in {counted(dry, 'round')} clients bought fewer samples than ordered", dry),
            (f"in {counted(len(failed), 'round')} clients replied with an error", failed),
            (f"in {counted(unanswered, 'round')} some orders had no reply", unanswered),
            (
                f"{amount(told['exposure'])} is reserved for orders without a reply",
                told["exposure"],
            ),
            (f"in {counted(len(full), 'round')} all slots were full", full),
        )
        if holds
    ]
    if reasons:
        rest = "What these do not explain, the policy saved for lower prices."
        return f"The reasons: {'; '.join(reasons)}. {rest}"
    saved = "The policy saved it for lower prices"
    saved += ", or the buffers had no room for more" * keeps
    return f"{saved}; {'the run ended first' if view.is_over else 'it may still be spent'}."


def _amounts(view: RunView) -> list[str]:
    """Return what the money paid for, if a price is a sum of several columns."""
    parts = [
        f"{amount(total)} {name}" + ("" if total == paid else f", which counts for {amount(paid)}")
        for name, (total, paid) in amounts_paid(view).items()
    ]
    told = f"By the prices of the rounds this is about {'; and '.join(parts)}."
    return [told] if parts else []


def _dry(view: RunView) -> list[str]:
    """Return why money may be left: streams that ran dry, or suppliers that failed."""
    short = [row for row in view.rounds if row.exhausted]
    if not short:
        return []
    most = max(row.exhausted for row in short)
    told = (
        f"In {counted(len(short), 'round')}, first in round {short[0].round_number:,}, up to "
        f"{counted(most, 'client')} bought fewer samples than ordered: their streams ran dry, or "
        "a supplier failed. The cost of the missing samples was not spent."
    )
    return [told]


def _paused(view: RunView) -> list[str]:
    """Return in which rounds buying was paused, and why."""
    paused = paused_rounds(view)
    now = view.rounds[-1].pause
    told = []
    if paused:
        told.append(
            f"Buying was paused in {len(paused):,} of the rounds, first in round {paused[0]:,}: "
            f"{_why_paused(view)}."
        )
    if now and not view.is_over:
        told.append(f"Buying is paused now: {pause_words(now)}.")
    return told


def _why_paused(view: RunView) -> str:
    """Return why buying was paused: useless purchases, or no known purchase."""
    rows = [(before, row) for before, row in itertools.pairwise([None, *view.rounds]) if row]
    begun = [row for before, row in rows if row.pause > (before.pause if before else 0)]
    if any(row.spent for row in begun):
        return "the samples that clients had bought before could not be used"
    return (
        "no reply to the orders before could be used, and no client had reported a purchase for "
        "them"
    )


def _set_aside(told: dict[str, Any]) -> list[str]:
    """Return how many samples could not be read, acquired or stored."""
    if not told["set_aside"]:
        return []
    paid = "Those that a supplier had delivered are paid for; the others are not."
    return [f"{set_aside_words(told['set_aside'])}. {paid}"]


def _waiting(told: dict[str, Any]) -> list[str]:
    """Return purchases under way and refunds; problems are at the top of the page."""
    words = [
        f"{words[0].upper()}{words[1:]}." for _, words, well in told_of_purchases(told) if well
    ]
    if told["refunded"]:
        back = amount(told["refunded"])
        words.append(f"Suppliers refunded {back}, which lowered what the rounds spent.")
    return words
