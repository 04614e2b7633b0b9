"""``tidegate plan``: what this budget and this memory give."""

import json
import shlex
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from tidegate._internal.words import counted
from tidegate.cli.plan_answer import answer
from tidegate.cli.plan_words import given_in_words, in_words
from tidegate.cli.running import (
    AsJson,
    PolicyNames,
    PresetName,
    Seeds,
    chosen_seeds,
    described,
    headline,
    limit_told,
    progress_bar,
    run_policies,
    run_with_more,
    screen,
    show_summaries,
    yardsticks,
)
from tidegate.cli.setting import Setting
from tidegate.policies import NotApplicable
from tidegate.policies.presets import make_policy
from tidegate.problem import Problem
from tidegate.report.page import check_page
from tidegate.report.plan_page import PlanAnswer, write_plan_page
from tidegate.report.tables import candidate_table
from tidegate.simulation.caps import CapPoint, looked_at, try_caps
from tidegate.simulation.curves import (
    Curves,
    Maker,
    by_budget,
    by_memory,
    trace,
    with_a_tenth_more,
)
from tidegate.simulation.offline import Candidate, candidate_horizons, select_offline, try_horizons
from tidegate.simulation.summary import summarise
from tidegate.theory.parameters import (
    Plan,
    contraction,
    penalty_weight,
    plan_constant_admission,
    search_constant_admission,
)

CURVES = ("constant_admission", "acdpp", "tide")
"""Policies whose curves a page shows, unless others are chosen."""
CURVE_SEEDS = 3
PAPERS = "For the paper's policies:"
TIDE = "tide"
"""The policy that plans with a cap on uses."""


def plan(
    setting: Setting,
    *,
    policy: PolicyNames = None,
    preset: PresetName = "as_printed",
    seeds: Seeds = None,
    offline: Annotated[
        bool,
        typer.Option("--offline", help="Also choose K by the paper's offline selection (slower)."),
    ] = False,
    html: Annotated[
        Path | None,
        typer.Option(
            help="Also write a page with the curves of money, of memory and of a cap on uses (a "
            "minute or two more)."
        ),
    ] = None,
    currency: Annotated[str, typer.Option(help="Currency to show, such as EUR.")] = "",
    as_json: AsJson = False,
) -> None:
    """Plan a budget before you buy anything.

    It says which policy to use for this memory, budget and prices, how many effective samples a
    round it gains, what it pays for a sample, and what more money or memory would add. Then it
    says, for the paper's policies, how long a sample should stay (K), how many to admit a round and
    the settings V and rho, and what every policy would spend, store and gain. Without flags it
    plans the paper's MNIST setting.

    Ten clients that hold 100 samples together, 55 to spend a round, prices from 1 to 10:

        tidegate plan --capacities 8x2,9x2,10x2,11x2,12x2 --budget 55 --price uniform:1,10

    What would 10 more of either give?

        tidegate plan --budget 65

        tidegate plan --capacities 11x10 --budget 55

    A thousand clients, prices from a file:

        tidegate plan --capacities 10x1000 --budget 5000 --price trace:prices.csv:eur

    No sample may train in more than ten rounds:

        tidegate plan --most-uses 10

    A page for the people who decide on the budget, with what one more unit of money would buy, and
    what a cap on uses would cost:

        tidegate plan --html plan.html
    """
    if html is not None:
        check_page(html)
    problem, seeds = setting.problem, chosen_seeds(setting, seeds)
    closed = plan_constant_admission(problem, setting.retention_horizon)
    searched, horizon = search_constant_admission(problem), setting.retention_horizon
    more = {
        name: plan_constant_admission(one, horizon)
        for name, one in with_a_tenth_more(problem).items()
    }
    candidates = _offline(setting, setting.seeds(seeds)) if offline else []
    chosen = select_offline(candidates) if offline else None
    runs = run_policies(setting, policy, preset=preset, seeds=seeds)
    summaries = [summarise(name, group) for name, group in runs.items()]
    possible = yardsticks(setting)
    weight = penalty_weight(problem.num_rounds, setting.gamma)
    closing = contraction(problem.num_rounds, setting.phi)
    share = closed.target_admission / problem.num_clients
    run_more = partial(run_with_more, setting, preset=preset, seeds=seeds)
    found = answer(setting, summaries, runs, run_more)
    given = given_in_words(setting, currency)
    first = in_words(found, setting, currency)
    is_even = len({size for size, _ in setting.capacities}) == 1
    a_client = f", {share:,.3g} a client" if is_even else ""
    advice = [
        f"Keep a sample for {counted(closed.retention_horizon, 'round')} (K).",
        f"Admit {closed.target_admission:,.4g} samples a round in all{a_client}.",
        f"V = {weight:,.4g} and rho = {closing:.4g}.",
        _searched(closed, searched),
        *_told(more),
    ]
    most_uses = setting.most_uses
    if most_uses is not None and closed.retention_horizon > most_uses:
        ruled_out = (
            f"They would keep a sample for {closed.retention_horizon} rounds (K), which "
            f"--most-uses {most_uses} rules out. --retention-horizon {most_uses} plans them with "
            "the cap."
        )
        advice = [ruled_out]
    if as_json:
        told: dict[str, Any] = {
            "problem": described(setting),
            "answer": None if found is None else vars(found),
            "currency": currency,
            "preset": preset,
            "seeds": len(setting.seeds(seeds)),
            **vars(closed),
            "penalty_weight": weight,
            "contraction": closing,
            "finite_horizon": vars(searched),
            "with_10_percent_more": {name: vars(plan) for name, plan in more.items()},
            "possible": possible,
            "policies": [summary.row() for summary in summaries],
        }
        if chosen is not None:
            told["offline"] = {
                "retention_horizon": chosen.retention_horizon,
                "candidates": [vars(candidate) for candidate in candidates],
            }
        typer.echo(json.dumps(told, indent=2))
    else:
        out = screen()
        out.print(f"{headline(setting)}.", highlight=False)
        out.print(f"{given}\n", highlight=False)
        for line in first:
            out.print(line, highlight=False, soft_wrap=True)
        out.print(f"\n{PAPERS}", highlight=False)
        for line in advice:
            out.print(f"  {line}", highlight=False)
        out.print()
        if chosen is not None:
            out.print(candidate_table(candidates, chosen))
        show_summaries(summaries, possible)
    if html is not None:
        on_page = [name for name in policy or CURVES if name in runs]
        money, memory, caps, not_drawn = _traced(setting, on_page, preset)
        planned = PlanAnswer(
            problem=f"{headline(setting)}. {given}",
            answer=first,
            advice=advice,
            command=shlex.join(["tidegate", *sys.argv[1:]]),
            recorded=setting.recorded,
            currency=currency,
            budget=problem.budget,
            rounds=problem.num_rounds,
            slots=problem.total_capacity,
            summaries=summaries,
            limit=possible.get("in_hindsight", possible.get("limit")),
            limit_told=limit_told(possible),
            by_budget=money,
            by_memory=memory,
            by_cap=caps,
            not_drawn=not_drawn,
            settings={**described(setting), "preset": preset},
        )
        write_plan_page(planned, html)
        typer.echo(f"wrote {html}", err=True)


def _traced(
    setting: Setting, policies: list[str], preset: str
) -> tuple[Curves, Curves, list[CapPoint], str]:
    """Compute what money, memory and a cap on uses change, with a progress bar.

    Returns:
        The three, and a sentence about policies that are not drawn; empty if all are.
    """
    problem, seeds = setting.problem, setting.seeds(CURVE_SEEDS)
    budgets, sizes = by_budget(problem), by_memory(problem)
    makers = {
        name: partial(
            make_policy, name, options=setting.options, preset=preset, **setting.constants(name)
        )
        for name in policies
    }
    out = [
        name
        for name, make in makers.items()
        if not all(_applies(make, one) for _, one in (*budgets, *sizes))
    ]
    makers = {name: make for name, make in makers.items() if name not in out}
    told = _not_drawn(out, setting.most_uses, instead="" if makers else TIDE)
    makers = makers or {TIDE: partial(make_policy, TIDE, options=setting.options)}
    caps = looked_at(problem, setting.price_law, setting.most_uses) if TIDE in makers else {}
    played = (len(budgets) + len(sizes)) * len(makers) + len(caps)
    total = played * len(seeds) * problem.num_rounds
    with progress_bar("tracing curves", total) as one_round:
        money, memory = (
            trace(
                problems,
                setting.price_law,
                makers,
                seeds,
                price_per_client=setting.price_per_client,
                most_uses=setting.most_uses,
                each_round=one_round,
            )
            for problems in (budgets, sizes)
        )
        tried = try_caps(
            problem,
            setting.price_law,
            caps,
            lambda cap: make_policy(
                TIDE, problem, replace(setting.options, most_uses=cap), preset=preset
            ),
            seeds,
            price_per_client=setting.price_per_client,
            each_round=one_round,
        )
    return money, memory, tried, told


def _not_drawn(policies: list[str], most_uses: int | None, *, instead: str) -> str:
    """Return a sentence about policies that a cap on uses rules out; empty if it rules out none."""
    if not policies:
        return ""
    told = (
        f"Not drawn: {', '.join(policies)}, because at some of these points they would use samples "
        f"more often than --most-uses {most_uses} allows"
    )
    return f"{told}; {instead} is drawn in their place." if instead else f"{told}."


def _applies(make: Maker, problem: Problem) -> bool:
    """Return whether a policy can be used: a cap on uses may be too low for its K."""
    try:
        make(problem)
    except NotApplicable:
        return False
    return True


def _told(more: dict[str, Plan]) -> list[str]:
    return [
        f"With 10 % more {name} the bound is {plan.bound_per_round:.4g} "
        f"(K = {plan.retention_horizon}, {plan.target_admission:,.4g} samples)."
        for name, plan in more.items()
    ]


def _searched(closed: Plan, searched: Plan) -> str:
    bound = f"The paper's bound on the error (less is better) is then {closed.bound_per_round:.4g}"
    if searched.retention_horizon == closed.retention_horizon:
        return f"{bound}, the best of all K."
    return (
        f"{bound}; K = {searched.retention_horizon} would give {searched.bound_per_round:.4g} "
        f"(try --retention-horizon {searched.retention_horizon})."
    )


def _offline(setting: Setting, seeds: range) -> list[Candidate]:
    problem = setting.problem
    horizons = candidate_horizons(problem)
    with progress_bar("trying K", len(horizons) * len(seeds) * problem.num_rounds) as one_round:
        return try_horizons(
            problem,
            setting.price_law,
            horizons=horizons,
            seeds=seeds,
            options=setting.options,
            **setting.constants("acdpp"),
            price_per_client=setting.price_per_client,
            each_round=one_round,
        )
