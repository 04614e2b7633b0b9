"""``tidegate optimum``: the most that any rule with full buffers can gain."""

import dataclasses
import json

import typer

from tidegate.cli.running import AsJson, described, headline, screen
from tidegate.cli.setting import Setting
from tidegate.theory import optimum as theory
from tidegate.theory.distribution import price_distribution

SHOWN = 8
"""Thresholds that a reader wants to see."""
ROUNDING = 1e-9
"""Smaller gaps differ from machine to machine."""


def optimum(setting: Setting, *, as_json: AsJson = False) -> None:
    """Say what is possible at all, exactly: the limit to hold every policy against.

    The most effective samples a round that buffers which are always full can gain in the long run
    for this budget, with the price up to which a sample of each age should make room for a fresh
    one. Prices are taken as independent from round to round; of a trace only the values count, not
    their order. K, gamma, phi and the constants of the bound play no part.

        tidegate optimum

        tidegate optimum --budget 65 --price markov:2,9,0.9,0.8
    """
    problem = setting.problem
    prices = price_distribution(setting.price_law, setting.rounds)
    best = theory.optimum(prices, problem.budget, problem.slots_a_round)
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
    ages = ", ".join(f"{threshold:,.3g}" for threshold in best.thresholds[:SHOWN])
    more = " and so on" if len(best.thresholds) > SHOWN else ""
    out.print(
        f"A sample used once, twice, ... makes room at a price up to {ages}{more}.",
        highlight=False,
        soft_wrap=True,
    )
    out.print(
        f"Shadow price of the budget: {best.multiplier:,.4g}, growth of ΣA² that one unit of money "
        f"more would save. Duality gap at most {max(best.duality_gap, ROUNDING):.0e}.",
        highlight=False,
        soft_wrap=True,
    )
