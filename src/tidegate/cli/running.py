"""Simulate policies over seeds with a progress bar, for ``plan`` and ``simulate``."""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import monotonic
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from tidegate.cli.setting import Setting
from tidegate.errors import ConfigurationError
from tidegate.policies import POLICIES, ExceedsCap, JointPolicy, NotApplicable
from tidegate.policies.presets import PRESETS, make_policy
from tidegate.problem import Problem
from tidegate.report.page import sentences
from tidegate.report.tables import ORACLE, legend, summary_table
from tidegate.simulation.curves import with_a_tenth_more
from tidegate.simulation.rounds import Run, simulate
from tidegate.simulation.summary import CONFIDENCE, PolicySummary

ROUNDS_A_TICK = 50
BETWEEN_LINES = 10.0
"""Seconds between two lines about progress, if standard error is not a terminal."""
MOST_GROUPS = 100
WIDE = 120
"""Columns that a table with intervals needs."""

PolicyNames = Annotated[
    list[str] | None,
    typer.Option(help=f"{', '.join(POLICIES)}; repeat for several. All by default."),
]
PresetName = Annotated[str, typer.Option(help=f"How policies are set up: {', '.join(PRESETS)}.")]
SEEDS = 10
Seeds = Annotated[
    int | None,
    typer.Option(min=1, help="Seeds; all policies get the same prices.", show_default=str(SEEDS)),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@contextmanager
def progress_bar(title: str, total_rounds: int) -> Iterator[Callable[[], None]]:
    """Show a bar on standard error; yield a function to call after every round."""
    columns = TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn()
    shown = Console(stderr=True)
    quiet = not shown.is_terminal
    with Progress(*columns, console=shown, transient=True, disable=quiet) as progress:
        task = progress.add_task(title, total=total_rounds)
        played = 0

        said_at = monotonic()

        def one_round() -> None:
            nonlocal played, said_at
            played += 1
            if quiet and monotonic() - said_at > BETWEEN_LINES:
                said_at = monotonic()
                shown.print(f"{title}: {played / total_rounds:.0%}", highlight=False)
            if not played % ROUNDS_A_TICK:
                progress.advance(task, ROUNDS_A_TICK)

        yield one_round


def run_policies(
    setting: Setting, policies: list[str] | None, *, preset: str, seeds: int
) -> dict[str, list[Run]]:
    """Return runs of each policy, or of all, on seeds 0, 1, ...; the same price paths for all."""
    problem = setting.problem
    made, left_out = {}, {}
    for name in policies or _all_policies(setting):
        if "," in name:
            raise ConfigurationError(
                f"--policy {name!r} names several policies; give --policy once for each"
            )
        try:
            made[name] = make_policy(
                name, problem, setting.options, preset=preset, **setting.constants(name)
            )
        except NotApplicable as reason:
            if policies:
                raise
            left_out[name] = reason
    if left_out:
        _tell_of_left_out(setting, left_out)
    return _simulated(setting, {name: (one, problem) for name, one in made.items()}, seeds)


def _all_policies(setting: Setting) -> list[str]:
    """Return all policies; under a limit on spending, without the one that ignores the budget."""
    limited = setting.options.limits_spending
    return [name for name in POLICIES if not (limited and name == ORACLE)]


def _tell_of_left_out(setting: Setting, left_out: Mapping[str, NotApplicable]) -> None:
    """Say which policies cannot be used in this setting."""
    shown = Console(stderr=True)
    capped = [name for name, reason in left_out.items() if isinstance(reason, ExceedsCap)]
    for name in left_out.keys() - set(capped):
        shown.print(f"{name} is left out: {left_out[name]}", highlight=False)
    if capped:
        shown.print(
            f"Left out because of --most-uses {setting.most_uses}: {', '.join(capped)}. They keep "
            "samples for longer; --retention-horizon shortens it for policies with a K.",
            highlight=False,
        )


def run_with_more(
    setting: Setting, policy: str, *, preset: str, seeds: int
) -> dict[str, list[Run]]:
    """Return runs of a policy with a tenth more ``budget``, and with a tenth more ``memory``.

    Without those for which a cap on uses rules the policy out.
    """
    given: dict[str, Any] = {"preset": preset, **setting.constants(policy)}
    made = {}
    for what, problem in with_a_tenth_more(setting.problem).items():
        with contextlib.suppress(NotApplicable):  # a larger memory may mean a larger K
            made[what] = make_policy(policy, problem, setting.options, **given), problem
    return _simulated(setting, made, seeds)


def _simulated(
    setting: Setting, made: Mapping[str, tuple[JointPolicy[Any], Problem]], seeds: int
) -> dict[str, list[Run]]:
    """Simulate policies, each on its problem, on the same price paths."""
    runs: dict[str, list[Run]] = {name: [] for name in made}
    total = len(made) * len(setting.seeds(seeds)) * setting.rounds
    with progress_bar("simulating", total) as one_round:
        for name, (policy, problem) in made.items():
            for seed in setting.seeds(seeds):
                run = simulate(
                    policy,
                    problem,
                    setting.price_law,
                    seed,
                    price_per_client=setting.price_per_client,
                    each_round=one_round,
                )
                runs[name].append(run)
    return runs


def chosen_seeds(setting: Setting, asked: int | None) -> int:
    """Return how many seeds to run; say so if those asked for change nothing."""
    if asked is not None and len(setting.seeds(asked)) < asked:
        typer.echo(
            "--seeds has no effect: a trace is one path of prices, the same for every seed",
            err=True,
        )
    return SEEDS if asked is None else asked


def described(setting: Setting) -> dict[str, Any]:
    """Return the setting for JSON; capacities as a text that the flag accepts."""
    problem = setting.problem
    told, groups = setting.model_dump(), setting.capacities
    told["capacities"] = ",".join(f"{size}x{count}" for size, count in groups[:MOST_GROUPS])
    if len(groups) > MOST_GROUPS:
        del told["capacities"]  # more than a reader would look at
    return told | {
        "clients": problem.num_clients,
        "total_capacity": problem.total_capacity,
        "mean_price": problem.average_price,
    }


def problem_in_words(setting: Setting) -> str:
    """Return the problem in one sentence."""
    (sentence,) = sentences("plan_words.txt", "problem", setting.problem, setting.price)
    return sentence


def show_summaries(summaries: list[PolicySummary], limit: float | None) -> None:
    """Print the table of policies, with intervals if the screen is wide enough."""
    out = screen()
    wide = out.width >= WIDE
    out.print(summary_table(summaries, limit, intervals=wide), highlight=False)
    out.print()
    out.print(legend(distinct=wide, limit=limit), style="dim", highlight=False)
    if late := [one for one in summaries if one.spent_in_vain.mean > 0]:
        money = ", ".join(f"{one.policy} {one.spent_in_vain.mean:,.3g}" for one in late)
        out.print(f"Spent in a run on samples that arrive after its end: {money}.")
    if not wide and summaries[0].seeds > 1:
        note = f"{CONFIDENCE:.0%} intervals, and distinct samples, need {WIDE} columns or --json."
        out.print(note, style="dim", highlight=False)


def screen(width: int = WIDE) -> Console:
    """Return a console for standard output, wide enough for a table if the width is unknown."""
    console = Console()
    known = console.is_terminal or "COLUMNS" in os.environ
    return console if known else Console(width=width)
