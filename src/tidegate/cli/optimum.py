"""``tidegate optimum``: the most that any rule with full buffers can gain."""

import dataclasses
import json

import typer

from tidegate._internal.words import counted
from tidegate.cli.running import AsJson, described, headline, screen
from tidegate.cli.setting import Setting
from tidegate.theory import optimum as theory
from tidegate.theory.distribution import price_distribution

SHOWN = 8
"""Thresholds that a reader wants to see."""
ROUNDING = 1e-9
"""Smaller gaps differ from machine to machine."""


def optimum(setting: Setting, *, as_json: AsJson = False) -> None:
    """Compute the most that is possible for a budget, to compare policies with.

    This is the most effective samples a round that full buffers can gain in the long run for this
    budget, and for each age of a sample the price up to which a fresh one should replace it. Prices
    count as independent from round to round; of a trace only the values count, not their order. K,
    gamma, phi and the constants of the bound are not used.

    With --most-uses no sample trains in more rounds than that. If the budget does not pay for
    replacing every sample in time, some slots are empty, and the command says how many samples are
    stored.

        tidegate optimum

        tidegate optimum --most-uses 10

        tidegate optimum --budget 65 --price markov:2,9,0.9,0.8
    """
    problem = setting.problem
    prices = price_distribution(setting.price_law, setting.rounds)
    best = theory.optimum(prices, problem.budget, problem.slots_a_round, setting.most_uses)
    if as_json:
        found = {**dataclasses.asdict(best), "thresholds": list(best.thresholds)}
        typer.echo(json.dumps({"setting": described(setting), **found}, indent=2))
        return
    out = screen()
    out.print(f"{headline(setting)}.\n", highlight=False, soft_wrap=True)
    told = (
        "If prices are independent from round to round: at most "
        f"{best.effective_per_round:,.4g} effective samples a round, from "
        f"{best.distinct_per_round:,.4g} distinct ones, for {best.spent_per_round:,.4g} a round."
    )
    out.print(told, highlight=False, soft_wrap=True)
    if not problem.delays.none:
        out.print(
            f"This is without the delay. Samples that arrive {problem.delays.told} later train "
            f"{problem.delays.told} later, and the run is shorter by as much.",
            highlight=False,
            soft_wrap=True,
        )
    ages = ", ".join(f"{threshold:,.3g}" for threshold in best.thresholds[:SHOWN])
    more = " and so on" if len(best.thresholds) > SHOWN else ""
    out.print(
        f"A sample used once, twice, ... is replaced at a price up to {ages}{more}."
        if ages
        else "Every sample trains once.",
        highlight=False,
        soft_wrap=True,
    )
    if setting.most_uses is not None:
        out.print(_capped(setting.most_uses, best, prices.highest), highlight=False, soft_wrap=True)
    out.print(
        f"Shadow price of the budget: {best.multiplier:,.4g}, growth of ΣA² that one unit of money "
        f"more would save. Duality gap at most {max(best.duality_gap, ROUNDING):.0e}.",
        highlight=False,
        soft_wrap=True,
    )


def _capped(most_uses: int, best: theory.Optimum, highest: float) -> str:
    """Return what a cap on uses means for slots whose sample has left."""
    price = "any price" if best.filling >= highest else f"a price up to {best.filling:,.3g}"
    return (
        f"No sample trains in more than {counted(most_uses, 'round')}; a slot whose sample has "
        f"reached the cap is filled at {price}, and {best.stored_per_round:,.4g} samples "
        "are stored."
    )
