"""``tidegate plan``: what does this budget, and this memory, give me?"""

import json
from typing import Annotated, Any

import typer

from tidegate.cli.running import (
    AsJson,
    PolicyNames,
    PresetName,
    Seeds,
    described,
    progress_bar,
    run_policies,
    screen,
)
from tidegate.cli.setting import Setting
from tidegate.planner import Candidate, candidate_horizons, select_offline, try_horizons
from tidegate.report.tables import LEGEND, candidate_table, summary_table
from tidegate.summary import summarise
from tidegate.theory.planning import (
    Plan,
    contraction,
    penalty_weight,
    plan_constant_admission,
    search_constant_admission,
)


def plan(
    setting: Setting,
    *,
    policy: PolicyNames = None,
    preset: PresetName = "as_printed",
    seeds: Seeds = 10,
    offline: Annotated[
        bool,
        typer.Option("--offline", help="Also choose K by the paper's offline selection (slower)."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Answer the planner's question before anything is bought.

    From the fleet's memory, the budget and the prices follow how long a sample should stay (K),
    how many to admit a round, the controller's settings V and rho, and what every policy would
    then spend, store and gain. Without flags it plans the paper's MNIST setting.

    Ten clients that hold 100 samples together, 55 to spend a round, prices from 1 to 10:

        tidegate plan --capacities 8x2,9x2,10x2,11x2,12x2 --budget 55 --price uniform:1,10

    What would 10 more of either give?

        tidegate plan --budget 65

        tidegate plan --capacities 11x10

    A thousand clients, prices from a file:

        tidegate plan --capacities 10x1000 --budget 5000 --price trace:prices.csv:eur
    """
    problem = setting.problem
    closed, searched = plan_constant_admission(problem), search_constant_admission(problem)
    candidates = _offline(setting, setting.seeds(seeds)) if offline else []
    chosen = select_offline(candidates) if offline else None
    runs = run_policies(setting, policy, preset=preset, seeds=seeds)
    summaries = [summarise(name, group) for name, group in runs.items()]
    weight = penalty_weight(problem.num_rounds, setting.gamma)
    closing = contraction(problem.num_rounds, setting.phi)
    if as_json:
        told: dict[str, Any] = {
            "problem": described(setting),
            "preset": preset,
            "seeds": len(setting.seeds(seeds)),
            **vars(closed),
            "penalty_weight": weight,
            "contraction": closing,
            "finite_horizon": vars(searched),
            "policies": [summary.row() for summary in summaries],
        }
        if chosen is not None:
            told["offline"] = {
                "retention_horizon": chosen.retention_horizon,
                "candidates": [vars(candidate) for candidate in candidates],
            }
        typer.echo(json.dumps(told, indent=2))
        return
    out = screen()
    out.print(f"Keep samples [bold]{closed.retention_horizon}[/] rounds (K).")
    out.print(f"Admit [bold]{closed.target_admission:g}[/] samples a round (target admission).")
    out.print(f"V = {weight:.4g} and rho = {closing:.4g} for {problem.num_rounds:,} rounds.")
    out.print(_searched(closed, searched))
    if chosen is not None:
        out.print(candidate_table(candidates, chosen))
    out.print(summary_table(summaries, budget=problem.budget))
    out.print(LEGEND, style="dim", highlight=False)


def _searched(closed: Plan, searched: Plan) -> str:
    if searched.retention_horizon == closed.retention_horizon:
        return "A search over K on the finite-horizon bound agrees."
    return (
        f"A search over K on the finite-horizon bound prefers K = {searched.retention_horizon} "
        f"(bound {searched.bound_per_round:.3f} a round, against {closed.bound_per_round:.3f})."
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
            price_per_client=setting.price_per_client,
            each_round=one_round,
        )
