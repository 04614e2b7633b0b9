"""Simulate policies over seeds behind a progress bar; what ``plan`` and ``simulate`` share."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from tidegate.cli.setting import Setting
from tidegate.policies import POLICIES, NotApplicable
from tidegate.presets import PRESETS, make_policy
from tidegate.simulation import Run, simulate

ROUNDS_A_TICK = 50

PolicyNames = Annotated[
    list[str] | None,
    typer.Option(help=f"{', '.join(POLICIES)}; repeat for several. All by default."),
]
PresetName = Annotated[str, typer.Option(help=f"How policies are set up: {', '.join(PRESETS)}.")]
Seeds = Annotated[int, typer.Option(min=1, help="Price paths; all policies meet the same ones.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for a machine.")]


@contextmanager
def progress_bar(title: str, total_rounds: int) -> Iterator[Callable[[], None]]:
    """A bar on standard error; gives a function to call after every round."""
    columns = TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=total_rounds)
        played = 0

        def one_round() -> None:
            nonlocal played
            played += 1
            if not played % ROUNDS_A_TICK:
                progress.advance(task, ROUNDS_A_TICK)

        yield one_round


def run_policies(
    setting: Setting, policies: list[str] | None, *, preset: str, seeds: int
) -> dict[str, list[Run]]:
    """Runs of each policy, or of all, on seeds 0, 1, ...; the same price paths for all."""
    problem, law = setting.problem, setting.price_law
    made = {}
    for name in policies or POLICIES:
        try:
            made[name] = make_policy(name, problem, setting.options, preset=preset)
        except NotApplicable as reason:
            if policies:
                raise
            Console(stderr=True).print(f"{name} is left out: {reason}", highlight=False)
    runs: dict[str, list[Run]] = {name: [] for name in made}
    total = len(made) * len(setting.seeds(seeds)) * setting.rounds
    with progress_bar("simulating", total) as one_round:
        for name, policy in made.items():
            for seed in setting.seeds(seeds):
                run = simulate(
                    policy,
                    problem,
                    law,
                    seed,
                    price_per_client=setting.price_per_client,
                    each_round=one_round,
                )
                runs[name].append(run)
    return runs


def described(setting: Setting) -> dict[str, Any]:
    """The setting as JSON carries it; a large fleet is told by its sums."""
    told = setting.model_dump()
    problem = setting.problem
    told |= {
        "clients": problem.num_clients,
        "total_capacity": problem.total_capacity,
        "mean_price": problem.average_price,
    }
    if problem.num_clients > 100:  # noqa: PLR2004 - more than a reader would look at
        del told["capacities"]
    return told


def screen() -> Console:
    """Standard output; wide enough for a table where it is not a terminal."""
    console = Console()
    return console if console.is_terminal else Console(width=120)
