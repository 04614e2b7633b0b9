"""What a run has spent, and why it was more or less than planned, in words."""

import itertools
from typing import Any

from tidegate.report.alarms import pause_words, set_aside_words
from tidegate.report.purchases import told_of_purchases
from tidegate.report.tables import amount
from tidegate.runs.own_prices import amounts_paid
from tidegate.runs.reader import RunView


def spending_in_words(view: RunView, told: dict[str, Any]) -> list[str]:
    """The paragraphs of a run's page about money.

    Args:
        view: the run.
        told: its numbers, as ``live.summary`` gives them.
    """
    return [
        _spent(view, told),
        *_amounts(view),
        *_dry(view),
        *_paused(view),
        *_set_aside(told),
        *_waiting(told),
    ]


def _spent(view: RunView, told: dict[str, Any]) -> str:
    certificate = "held" if told["certificate_holds"] else "DID NOT HOLD"
    return (
        f"{amount(told['spent'])} in {len(view.rounds):,} rounds, "
        f"{amount(told['spent_per_round'])} a round where the budget allows "
        f"{amount(view.allowed_per_round)}. Overspend {amount(told['overspend'])}, cost debt "
        f"{amount(told['cost_debt'])}, exposure {amount(told['exposure'])}. The certificate "
        f"{certificate} in every round."
    )


def _amounts(view: RunView) -> list[str]:
    """What the money stands for, where prices are made of several amounts."""
    parts = [
        f"{amount(total)} {name}" + ("" if total == paid else f", which counts for {amount(paid)}")
        for name, (total, paid) in amounts_paid(view).items()
    ]
    told = f"By the prices of the rounds this is about {'; and '.join(parts)}."
    return [told] if parts else []


def _dry(view: RunView) -> list[str]:
    """Why money may be left."""
    short = [row for row in view.rounds if row.exhausted]
    if not short:
        return []
    most = max(row.exhausted for row in short)
    told = (
        f"In {len(short):,} rounds, the first of them {short[0].round_number:,}, up to {most:,} "
        "clients could not take in all that was ordered: their streams were dry, or a supplier "
        "failed. What it would have cost was not spent."
    )
    return [told]


def _paused(view: RunView) -> list[str]:
    """Why nothing was bought for a while."""
    pairs = itertools.pairwise(view.rounds)
    paused = [after.round_number for before, after in pairs if before.pause]
    now = view.rounds[-1].pause
    told = []
    if paused:
        told.append(
            f"Buying paused in {len(paused):,} of the rounds, for the first time in round "
            f"{paused[0]:,}: what clients had bought before could not be used."
        )
    if now and not view.is_over:
        told.append(f"Buying pauses now: {pause_words(now)}.")
    return told


def _set_aside(told: dict[str, Any]) -> list[str]:
    """Samples that could not be used, because they were damaged or not to be had."""
    if not told["set_aside"]:
        return []
    paid = "Those that a supplier had delivered are paid for; the others are not."
    return [f"{set_aside_words(told['set_aside'])}. {paid}"]


def _waiting(told: dict[str, Any]) -> list[str]:
    """What is under way, and who has trouble with it; and what came back."""
    words = [f"{words[0].upper()}{words[1:]}." for _, words, _ in told_of_purchases(told)]
    if told["refunded"]:
        back = amount(told["refunded"])
        words.append(f"Suppliers paid {back} back, which lowered what the rounds spent.")
    return words
