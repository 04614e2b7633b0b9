"""``tidegate plan --from RUN``: replay a run with another policy, budget or buffer size."""

import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from tidegate._internal.arrays import FloatArray
from tidegate.cli.running import progress_bar, screen
from tidegate.errors import ConfigurationError
from tidegate.policies import POLICIES, ControlOptions
from tidegate.policies.presets import find_policy
from tidegate.problem import Problem
from tidegate.report.replay import Replay
from tidegate.report.tables import amount
from tidegate.runs.reader import RunView, read_run

OTHERS = ("constant_admission", "acdpp", "tide")
TAKEN = {"budget", "spend_ahead"}
"""The flags of a problem that a replay takes."""


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


def replay_run(
    folder: Path,
    given: Mapping[str, Any],
    policy: list[str] | None,
    *,
    memory: float | None,
    as_json: bool,
) -> None:
    """Replay the prices of a recorded run under other policies, budgets or buffers, and print it.

    The first row is what the run did. The others are simulated, round by round, at the prices of
    the run, with its settings and its clients, all of which answer. A run that is still going on is
    replayed up to its present round and planned for all its rounds; the run of a shard is replayed
    with the mean of its budgets.

    Args:
        folder: of the run.
        given: the flags of the problem that were given; a run has its own values of the others.
        policy: names of policies; the run's own and three others by default.
        memory: the factor of every buffer's size.
        as_json: whether to print JSON.
    """
    if others := sorted(given.keys() - TAKEN):
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in others)
        raise ConfigurationError(f"{flags}: a run has its own with --from; leave it out")
    view = read_run(folder)
    if not view.rounds:
        raise ConfigurationError(f"{folder} has no settled round yet; wait for the first")
    its = [view.policy] if view.policy in POLICIES else []
    names = policy or list(dict.fromkeys([*its, *OTHERS]))
    for name in names:
        find_policy(name)
    options, replay = ControlOptions(**view.options), Replay(view)
    if "spend_ahead" in given:
        options = dataclasses.replace(options, spend_ahead=given["spend_ahead"])
    budget = given.get("budget", view.allowed_per_round)
    problem, outcomes = (
        replay.problem(budget, 1.0 if memory is None else memory),
        [_recorded(replay)],
    )
    with progress_bar("replaying", len(names) * len(replay.seeds) * len(view.rounds)) as one_round:
        for name in names:
            runs = replay.runs(name, problem, options, one_round)
            outcomes.append(_replayed(name, budget, problem, [run.columns for run in runs]))
    if as_json:
        facts: dict[str, Any] = {
            "rounds": len(view.rounds),
            "recorded": dataclasses.asdict(outcomes[0]),
            "replayed": [dataclasses.asdict(outcome) for outcome in outcomes[1:]],
        }
        typer.echo(json.dumps(facts, indent=2))
        return
    _show(view, outcomes)


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


def _recorded(replay: Replay) -> Outcome:
    view = replay.view
    rounds, count = view.rounds, len(view.rounds)
    return Outcome(
        policy=f"{view.policy}, recorded",
        budget=view.allowed_per_round,
        slots=replay.problem(1.0).total_capacity,
        spent_per_round=sum(row.spent for row in rounds) / count,
        overspend=rounds[-1].overspend,
        mean_stored=sum(row.training_size for row in rounds) / count,
        peak_stored=max(row.training_size for row in rounds),
        effective_per_round=rounds[-1].effective_samples / count,
    )


def _show(view: RunView, outcomes: list[Outcome]) -> None:
    title = f"{view.title}: {len(view.rounds):,} rounds, {len(view.clients):,} clients"
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
        "\nPer round: spent, samples stored on average, effective samples gained. overspend: above "
        "budget in the whole run, or below if negative. gain: effective samples relative to the "
        "recorded run.",
        style="dim",
        highlight=False,
    )
    if any(client.candidates for client in view.clients):
        words = (
            "In the recorded run, clients chose which samples to buy. A replay only counts "
            "samples: from more effective ones, taken as they come, a model may learn less."
        )
        out.print(words, style="yellow", highlight=False)
    if any(row.exhausted for row in view.rounds):
        words = (
            "In the recorded run, streams ran dry or suppliers failed; in a replay they never do."
        )
        out.print(words, style="yellow", highlight=False)
