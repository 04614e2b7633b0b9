"""Policies x seeds of an experiment, in parallel processes; what is finished is not repeated."""

import contextlib
import logging
import multiprocessing
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tidegate.errors import ConfigurationError
from tidegate.experiments.config import ExperimentConfig, PolicyChoice
from tidegate.experiments.job import Job
from tidegate.experiments.results import About, discard, finished, rows_so_far, write_config
from tidegate.prices import RecordedPrices
from tidegate.simulation.rounds import simulate
from tidegate.theory.distribution import price_distribution
from tidegate.theory.optimum import optimum

PATIENCE = 0.5
"""Seconds between two looks at how far runs have come."""
CLOSE = 2e-3
"""Relative, of the spending that a policy is given a budget for."""
USELESS = 0.25
"""Relative: a policy that misses what it should spend by more cannot be compared at all."""
MOST_TRIES = 25

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PlannedRun:
    """One run and where it leaves its results."""

    job: Job
    label: str

    @property
    def folder(self) -> Path:
        """Of its results."""
        return Path(self.job.results)

    @property
    def config(self) -> dict[str, Any]:
        """What is written beside its rows, and compared before it is repeated.

        Not the folder: results may be moved.
        """
        return {"label": self.label, "job": {**vars(self.job), "results": ""}}


def plan_runs(experiment: ExperimentConfig, out: Path) -> list[PlannedRun]:
    """Every policy on every seed, seeds first, so that early results compare policies."""
    budgets = {choice.label: matched_budget(experiment, choice) for choice in experiment.policies}
    return [
        PlannedRun(
            job=replace(
                Job.of(experiment, choice, seed, budgets[choice.label]),
                results=str(out / choice.label / f"seed-{seed}"),
            ),
            label=choice.label,
        )
        for seed in experiment.all_seeds
        for choice in experiment.policies
    ]


def about(experiment: ExperimentConfig, runs: Sequence[PlannedRun]) -> About:
    """What is written beside the results of an experiment."""
    law = experiment.prices(experiment.first_seed)
    limit = None
    if not isinstance(law, RecordedPrices):
        prices = price_distribution(law, experiment.rounds)
        with contextlib.suppress(ValueError):  # no full buffers for so little money
            best = optimum(prices, experiment.budget, sum(experiment.capacities))
            limit = best.effective_per_round
    return About(
        title=experiment.title,
        labels=tuple(choice.label for choice in experiment.policies),
        budget=experiment.budget,
        limit=limit,
        targets=experiment.targets,
        runs={f"{run.label}/{run.folder.name}": run.config for run in runs},
    )


def check_task(experiment: ExperimentConfig) -> None:
    """Fail now, not in every worker: is there such data, such a partition and such a model?"""
    from tidegate.learning.models import new_model  # noqa: PLC0415 - takes a second

    job = Job.of(experiment, experiment.policies[0], experiment.first_seed, experiment.budget)
    data = job.federated_data
    data.check_columns()
    new_model(job.model, data.input_shape, data.num_classes, job.width)
    data.partition(job.partition, 0, job.clients, job.seed)


def traps(experiment: ExperimentConfig) -> list[str]:
    """What can be run, but is perhaps not meant."""
    job = Job.of(experiment, experiment.policies[0], experiment.first_seed, experiment.budget)
    told = []
    if job.partition.startswith("by:") and Path(job.data).expanduser().is_dir():
        parts = job.federated_data.num_parts(job.partition, job.clients, job.seed)
        if parts > job.clients:
            told.append(f"{job.clients} of {parts} parts take part: one for each capacity")
    problem = experiment.problem(experiment.first_seed)
    if problem.budget >= problem.average_price * problem.total_capacity:
        told.append(
            f"the budget, {problem.budget:g} a round, pays for fresh samples in all "
            f"{problem.total_capacity} slots: policies will hardly differ; lower it to compare "
            "them"
        )
    return told


def matched_budget(experiment: ExperimentConfig, choice: PolicyChoice) -> float:
    """The budget with which a policy spends C a round on these seeds; C if that is not asked for.

    Admissions do not depend on what is learned, so counts alone tell what will be spent. K stays
    as it is planned for C. Where whole samples, or memory with this K, leave no such budget, it is
    the one that comes nearest, with a warning.
    """
    if not choice.match_spending:
        return experiment.budget

    horizons = {
        seed: choice.fixed_horizon(experiment.problem(seed)) for seed in experiment.all_seeds
    }

    def spent(budget: float) -> float:
        runs = []
        for seed in experiment.all_seeds:
            problem = experiment.problem(seed, budget)
            policy = choice.make(problem, horizons[seed])
            run = simulate(policy, problem, experiment.prices(seed), seed)
            runs.append(float(run.columns["spent"].mean()))
        return float(np.mean(runs))

    wanted, tried = experiment.budget, dict[float, float]()
    low, high = 0.0, 2 * wanted
    for _ in range(MOST_TRIES):
        middle = (low + high) / 2
        tried[middle] = spent(middle)
        if abs(tried[middle] - wanted) <= CLOSE * wanted:
            return middle
        low, high = (middle, high) if tried[middle] < wanted else (low, middle)
    nearest = min(tried, key=lambda budget: abs(tried[budget] - wanted))
    if abs(tried[nearest] - wanted) > USELESS * wanted:
        raise ConfigurationError(
            f"{choice.label}: no budget makes it spend {wanted:g} a round; the nearest is "
            f"{tried[nearest]:g}. Leave out match_spending"
        )
    logger.warning(
        "%s cannot spend exactly %g a round with whole samples and its memory; it will spend %.4g",
        *(choice.label, wanted, tried[nearest]),
    )
    return nearest


def run_experiment(
    runs: Sequence[PlannedRun],
    *,
    workers: int,
    engine: str = "here",
    progress: Callable[[int], None] = lambda rounds: None,
    ended: Callable[[PlannedRun], None] = lambda run: None,
) -> int:
    """Run what is not finished yet.

    Args:
        runs: what ``plan_runs`` gave.
        workers: processes; each uses one thread.
        engine: ``here``; ``counts`` for linear models without a fleet, twenty times as fast; or
            ``ray`` for Flower's simulation, one run after another on all cores.
        progress: called with the rounds that are done, those of finished runs included.
        ended: called with every run that is over.

    Returns:
        how many runs were made now.
    """
    waiting = [run for run in runs if not finished(run.folder, run.config)]
    done_before = sum(run.job.rounds for run in runs if run not in waiting)
    progress(done_before)
    play = {"here": _play, "counts": _play_on_counts, "ray": _play_on_ray}[engine]
    at_once = 1 if engine == "ray" else workers
    others = multiprocessing.active_children()
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(at_once, mp_context=context, initializer=_end_with_parent)
    queue, open_runs = deque(waiting), dict[Future[None], PlannedRun]()
    try:
        while queue or open_runs:
            while queue and len(open_runs) < at_once:  # what is handed over cannot be called back
                run = queue.popleft()
                open_runs[pool.submit(play, run)] = run
            for future in wait(open_runs, PATIENCE, return_when=FIRST_COMPLETED).done:
                future.result()
                ended(open_runs.pop(future))
            progress(done_before + sum(rows_so_far(run.folder) for run in waiting))
    except BaseException:
        for process in multiprocessing.active_children():
            if process not in others:
                process.terminate()
        raise
    finally:
        pool.shutdown()
    return len(waiting)


def _end_with_parent() -> None:
    """A worker whose command was killed stops at once."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _play(run: PlannedRun) -> None:
    """One run, in a process of its own with one thread."""
    import torch  # noqa: PLC0415 - in the worker only

    from tidegate.experiments.client_app import app as client_app  # noqa: PLC0415
    from tidegate.experiments.server_app import app as server_app  # noqa: PLC0415
    from tidegate.flower import run_in_process  # noqa: PLC0415

    torch.set_num_threads(1)
    _begin(run)
    run_in_process(
        server_app, client_app, num_clients=run.job.clients, run_config=run.job.to_config()
    )


def _play_on_counts(run: PlannedRun) -> None:
    """One run of a linear model without a fleet."""
    from tidegate.experiments.on_counts import run_on_counts  # noqa: PLC0415 - in the worker only

    _begin(run)
    run_on_counts(run.job)


def _play_on_ray(run: PlannedRun) -> None:
    """One run on Flower's Simulation."""
    from tidegate.experiments.on_ray import run_on_ray  # noqa: PLC0415 - in the worker only

    _begin(run)
    run_on_ray(run.job.to_config(), num_clients=run.job.clients)


def _begin(run: PlannedRun) -> None:
    """Forget a run that was interrupted, and say what this one is."""
    logging.getLogger("flwr").setLevel(logging.ERROR)
    discard(run.folder)
    write_config(run.folder, run.config)
