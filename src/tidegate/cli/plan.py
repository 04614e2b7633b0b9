"""``tidegate plan``: what this budget and this memory give."""

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from tidegate.cli.plan_answer import Answer, answer
from tidegate.cli.plan_curves import traced_curves
from tidegate.cli.plan_paper import (
    PaperPlan,
    guarantees_of,
    looseness,
    no_guarantee,
    with_estimates,
)
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
    run_policies,
    run_with_more,
    screen,
    show_summaries,
    yardsticks,
)
from tidegate.cli.setting import Setting
from tidegate.report.page import check_page
from tidegate.report.plan_page import PlanAnswer, write_plan_page
from tidegate.report.tables import candidate_table, guarantee_table
from tidegate.simulation.rounds import Run
from tidegate.simulation.summary import PolicySummary, summarise

CURVES = ("constant_admission", "acdpp", "tide")
"""Policies whose curves a page shows, unless others are chosen."""
PAPERS = "For the paper's policies:"


@dataclass(frozen=True)
class _Result:
    """All that a plan found out, to be printed, or written as JSON or as a page."""

    setting: Setting
    preset: str
    currency: str
    seeds: int
    runs: Mapping[str, Sequence[Run]]
    summaries: list[PolicySummary]
    answer: Answer | None
    possible: Mapping[str, float]
    paper: PaperPlan
    as_in_paper: bool
    estimate: Path | None
    """The run that constants of the bound come from."""

    @property
    def given(self) -> str:
        return given_in_words(self.setting, self.currency)

    @property
    def sentences(self) -> list[str]:
        return in_words(self.answer, self.setting, self.currency)

    @property
    def no_guarantee(self) -> str:
        return no_guarantee(self.setting, self.runs, self.preset)


def plan(  # noqa: PLR0913 - one for each flag
    setting: Setting,
    *,
    policy: PolicyNames = None,
    preset: PresetName = "as_printed",
    seeds: Seeds = None,
    offline: Annotated[
        bool,
        typer.Option("--offline", help="Also choose K by the paper's offline selection (slower)."),
    ] = False,
    as_in_paper: Annotated[
        bool,
        typer.Option(
            "--as-in-paper",
            help="Plan the paper's game, in which policies spend ahead without limit and memory is "
            "a limit on average only, whatever other settings say; and show what ACDPP guarantees "
            "beside what is measured.",
        ),
    ] = False,
    estimate: Annotated[
        Path | None,
        typer.Option(
            help="Take D, sigma and B of the bound from a run whose server measured them at its "
            "models, in place of other settings."
        ),
    ] = None,
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

    The paper's game, with the guarantees of ACDPP beside what is measured:

        tidegate plan --as-in-paper --policy constant_admission --policy acdpp

    A page for the people who decide on the budget, with what one more unit of money would buy, and
    what a cap on uses would cost:

        tidegate plan --html plan.html
    """
    if html is not None:
        check_page(html)
    if estimate is not None:
        setting = with_estimates(setting, estimate)
    if as_in_paper:
        setting = setting.model_copy(update={"hard_capacity": False, "spend_ahead": None})
    seeds = chosen_seeds(setting, seeds)
    paper = PaperPlan.of(setting, setting.seeds(seeds), offline=offline)
    runs = run_policies(setting, policy, preset=preset, seeds=seeds)
    summaries = [summarise(name, group) for name, group in runs.items()]
    possible = yardsticks(setting)
    run_more = partial(run_with_more, setting, preset=preset, seeds=seeds)
    result = _Result(
        setting=setting,
        preset=preset,
        currency=currency,
        seeds=seeds,
        runs=runs,
        summaries=summaries,
        answer=answer(setting, summaries, runs, run_more),
        possible=possible,
        paper=paper,
        as_in_paper=as_in_paper,
        estimate=estimate,
    )
    if as_json:
        typer.echo(json.dumps(_row(result), indent=2))
    else:
        _show(result, screen())
    if html is not None:
        write_plan_page(_page(result, policy), html)
        typer.echo(f"wrote {html}", err=True)


def _row(result: _Result) -> dict[str, Any]:
    """Return the result for JSON."""
    setting = result.setting
    row: dict[str, Any] = {
        "problem": described(setting),
        "answer": None if result.answer is None else vars(result.answer),
        "currency": result.currency,
        "preset": result.preset,
        "seeds": len(setting.seeds(result.seeds)),
        **result.paper.row(),
        "possible": result.possible,
        "policies": [summary.row() for summary in result.summaries],
    }
    if result.as_in_paper and not result.no_guarantee:
        row["guarantees"] = {
            one.name: {
                "printed": one.printed,
                "repaired": one.repaired,
                "measured": one.measured.mean,
                "interval": one.measured.interval,
            }
            for one in guarantees_of(setting, result.runs["acdpp"])
        }
    return row


def _show(result: _Result, out: Console) -> None:
    """Print the result for people."""
    setting, paper = result.setting, result.paper
    out.print(f"{headline(setting)}.", highlight=False)
    out.print(f"{result.given}\n", highlight=False)
    for sentence in result.sentences:
        out.print(sentence, highlight=False, soft_wrap=True)
    out.print(f"\n{PAPERS}", highlight=False)
    for sentence in paper.advice(setting):
        out.print(f"  {sentence}", highlight=False)
    if result.estimate is not None:
        constants = (
            f"D = {setting.domain_diameter:.4g}, sigma = {setting.gradient_noise:.4g} and "
            f"B = {setting.loss_bound:.4g}"
        )
        out.print(f"  {constants} of the bound are those of {result.estimate}.", highlight=False)
    out.print()
    if paper.selected is not None:
        out.print(candidate_table(paper.candidates, paper.selected))
    if result.as_in_paper:
        _show_guarantees(result, out)
    show_summaries(result.summaries, result.possible)


def _show_guarantees(result: _Result, out: Console) -> None:
    if result.no_guarantee:
        out.print(f"{result.no_guarantee}\n", highlight=False)
        return
    quantities = guarantees_of(result.setting, result.runs["acdpp"])
    out.print(guarantee_table(quantities, result.setting.rounds), highlight=False)
    for sentence in looseness(quantities, result.setting):
        out.print(sentence, style="dim", highlight=False, soft_wrap=True)
    out.print()


def _page(result: _Result, policy: Sequence[str] | None) -> PlanAnswer:
    """Return the content of the page, with the curves of the chosen policies."""
    setting, problem, possible = result.setting, result.setting.problem, result.possible
    on_page = [name for name in policy or CURVES if name in result.runs]
    money, memory, caps, not_drawn = traced_curves(setting, on_page, result.preset)
    return PlanAnswer(
        problem=f"{headline(setting)}. {result.given}",
        answer=result.sentences,
        advice=result.paper.advice(setting),
        command=shlex.join(["tidegate", *sys.argv[1:]]),
        recorded=setting.recorded,
        currency=result.currency,
        budget=problem.budget,
        rounds=problem.num_rounds,
        slots=problem.total_capacity,
        summaries=result.summaries,
        limit=possible.get("in_hindsight", possible.get("limit")),
        limit_told=limit_told(possible),
        by_budget=money,
        by_memory=memory,
        by_cap=caps,
        not_drawn=not_drawn,
        settings={**described(setting), "preset": result.preset},
    )
