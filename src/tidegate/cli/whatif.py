"""``tidegate whatif``: replay the prices of a run with other policies, budgets and buffers."""

import dataclasses
import itertools
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from tidegate._internal.arrays import FloatArray
from tidegate.cli.running import AsJson, progress_bar, screen
from tidegate.cohorts import Cohorts, share_reached
from tidegate.errors import ConfigurationError
from tidegate.policies import POLICIES, ControlOptions
from tidegate.policies.presets import find_policy, make_policy
from tidegate.prices import RecordedPrices
from tidegate.problem import LearningConstants, Problem
from tidegate.report.tables import amount
from tidegate.runs.own_prices import price_table
from tidegate.runs.reader import RunView, read_run
from tidegate.server.fleet import planned_slots
from tidegate.simulation.rounds import simulate
from tidegate.wire import LARGEST_CAPACITY

OTHERS = ("constant_admission", "acdpp", "tide")
SEEDS = 5
"""If a round reaches a part of the fleet, the part is drawn anew."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a run did, or would have done."""

    policy: str
    budget: float
    slots: int
    spent_per_round: float
    overspend: float
    mean_stored: float
    peak_stored: float
    effective_per_round: float


def whatif(
    folder: Annotated[Path, typer.Argument(help="The folder that a server saved its run to.")],
    *,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help=f"{', '.join(POLICIES)}; repeat for several. Default: the run's and three."
        ),
    ] = None,
    budget: Annotated[
        list[float] | None,
        typer.Option(help="Budget of a round; repeat for several. The run's own by default."),
    ] = None,
    memory: Annotated[
        list[float] | None,
        typer.Option(help="Factor for every buffer's size; repeat for several. 1 by default."),
    ] = None,
    spend_ahead: Annotated[
        float | None,
        typer.Option(help="Rounds whose budget may be spent ahead. The run's own by default."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Replay the prices of a recorded run under other policies, budgets or buffers.

    The first row is what the run did. The others are simulated, round by round, at the prices of
    the run, with its settings and its clients, all of which answer. A run that is still going on is
    replayed up to its present round and planned for all its rounds; the run of a shard is replayed
    with the mean of its budgets. Clients with their own prices get these again.

    Would another policy have gained more?

        tidegate whatif run

    Tide with half and with twice the budget, and with buffers twice as large:

        tidegate whatif run --policy tide --budget 27.5 --budget 110 --memory 1 --memory 2
    """
    view = read_run(folder)
    if not view.rounds:
        raise ConfigurationError(f"{folder} has no settled round yet; wait for the first")
    its = [view.policy] if view.policy in POLICIES else []
    names = policy or list(dict.fromkeys([*its, *OTHERS]))
    for name in names:
        find_policy(name)
    cases = list(itertools.product(names, budget or [view.allowed_per_round], memory or [1.0]))
    options = ControlOptions(**view.options)
    if spend_ahead is not None:
        options = dataclasses.replace(options, spend_ahead=spend_ahead)
    own = price_table(view)
    law = RecordedPrices([row.price for row in view.rounds] if own is None else own)
    outcomes = [_recorded(view)]
    seeds = range(1 if _share(view) == 1 else SEEDS)
    with progress_bar("replaying", len(cases) * len(seeds) * len(view.rounds)) as one_round:
        for name, money, factor in cases:
            problem = _problem(view, law, money, factor)
            made = make_policy(name, problem, options)
            runs = [
                simulate(
                    *(made, problem, law, seed),
                    price_per_client=own is not None,
                    until=len(view.rounds),
                    each_round=one_round,
                )
                for seed in seeds
            ]
            outcomes.append(_replayed(name, money, problem, [run.columns for run in runs]))
    if as_json:
        told: dict[str, Any] = {
            "rounds": len(view.rounds),
            "recorded": dataclasses.asdict(outcomes[0]),
            "replayed": [dataclasses.asdict(one) for one in outcomes[1:]],
        }
        typer.echo(json.dumps(told, indent=2))
        return
    _show(view, outcomes)


def _problem(view: RunView, law: RecordedPrices, budget: float, factor: float) -> Problem:
    if not 0 < budget < math.inf:
        raise ConfigurationError(f"--budget must be a number above 0, got {budget:g}")
    largest = max(client.buffer_capacity for client in view.clients)
    if not 0 < factor * largest <= LARGEST_CAPACITY:
        raise ConfigurationError(
            f"--memory must be above 0, and at most {LARGEST_CAPACITY / largest:,.6g} here: no "
            f"buffer may be larger than {LARGEST_CAPACITY:,}; got {factor:g}"
        )
    expected, played = view.mean_price, len(view.rounds)
    return Problem(
        buffer_capacities=[
            planned_slots(factor * client.buffer_capacity, view.headroom) for client in view.clients
        ],
        budget=budget,
        mean_price=float(np.mean(law.mean(played))) if expected is None else expected,
        num_rounds=view.num_rounds or played,
        cohorts=Cohorts(fraction_train=_share(view)),
        learning=LearningConstants(**view.learning),
    )


def _share(view: RunView) -> float:
    """Return the part of the fleet that a round reaches, as the server plans it."""
    return share_reached(len(view.clients), view.fraction_train, view.min_train_nodes)


def _replayed(
    policy: str, budget: float, problem: Problem, runs: list[dict[str, FloatArray]]
) -> Outcome:
    """Return the mean over seeds."""

    def mean(measure: Callable[[dict[str, FloatArray]], float]) -> float:
        return float(np.mean([measure(run) for run in runs]))

    return Outcome(
        policy=policy,
        budget=budget,
        slots=problem.total_capacity,
        spent_per_round=mean(lambda run: run["spent"].mean()),
        overspend=mean(lambda run: run["overspend"][-1]),
        mean_stored=mean(lambda run: run["training_size"].mean()),
        peak_stored=mean(lambda run: run["training_size"].max()),
        effective_per_round=mean(lambda run: run["effective_samples"][-1] / len(run["spent"])),
    )


def _recorded(view: RunView) -> Outcome:
    rounds, count = view.rounds, len(view.rounds)
    return Outcome(
        policy=f"{view.policy}, recorded",
        budget=view.allowed_per_round,
        slots=_problem(view, RecordedPrices([1.0]), 1.0, 1.0).total_capacity,
        spent_per_round=sum(row.spent for row in rounds) / count,
        overspend=rounds[-1].overspend,
        mean_stored=sum(row.training_size for row in rounds) / count,
        peak_stored=max(row.training_size for row in rounds),
        effective_per_round=rounds[-1].effective_samples / count,
    )


def _show(view: RunView, outcomes: list[Outcome]) -> None:
    title = f"{len(view.rounds):,} rounds of run {view.run}, {len(view.clients):,} clients"
    table = Table(title=Text(title), title_justify="left", box=SIMPLE_HEAD, show_edge=False)
    table.add_column("policy", no_wrap=True)
    for name in ("budget", "slots", "spent", "overspend", "stored", "peak", "effective", "gain"):
        table.add_column(name, justify="right", no_wrap=True)
    first = outcomes[0].effective_per_round
    for number, one in enumerate(outcomes):
        gain = one.effective_per_round / first - 1 if first else 0.0
        table.add_row(
            *(
                Text(one.policy),
                amount(one.budget),
                f"{one.slots:,}",
                amount(one.spent_per_round),
            ),
            *(amount(one.overspend), amount(one.mean_stored), f"{one.peak_stored:,.0f}"),
            *(f"{one.effective_per_round:,.3g}", f"{gain:+.0%}" if number and first else ""),
        )
    out = screen()
    out.print(table, highlight=False)
    out.print(
        "\nPer round: spent, samples stored on average, effective samples gained; overspend in "
        "all. gain: effective samples relative to the recorded run.",
        style="dim",
        highlight=False,
    )
    if any(row.exhausted for row in view.rounds):
        words = (
            "In the recorded run, streams ran dry or suppliers failed; in a replay they never do."
        )
        out.print(words, style="yellow", highlight=False)
