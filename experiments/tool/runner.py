"""Run all policies and seeds of an experiment in parallel; finished runs are not repeated."""

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

from experiments.tool.config import ExperimentConfig, PolicyChoice
from experiments.tool.job import Job
from experiments.tool.results import About, discard, finished, rows_so_far, write_config
from tidegate.errors import ConfigurationError
from tidegate.prices import RecordedPrices
from tidegate.simulation.rounds import simulate
from tidegate.theory.distribution import price_distribution
from tidegate.theory.optimum import optimum

PATIENCE = 0.5
"""Seconds between two updates of the progress."""
CLOSE = 2e-3
"""The relative precision of the spending that a budget is fitted to."""
USELESS = 0.25
"""A policy that misses its spending by more than this part cannot be compared."""
MOST_TRIES = 25

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PlannedRun:
    """One run, and the folder of its results."""

    job: Job
    label: str

    @property
    def folder(self) -> Path:
        """The folder of its results."""
        return Path(self.job.results)

    @property
    def config(self) -> dict[str, Any]:
        """The configuration beside its rows, which decides whether the run is repeated.

        It does not contain the folder, because results may be moved.
        """
        return {"label": self.label, "job": {**vars(self.job), "results": ""}}


def plan_runs(experiment: ExperimentConfig, out: Path) -> list[PlannedRun]:
    """Return every policy on every seed, seed by seed, so that early results compare policies."""
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
    """Return the description of an experiment, to write beside its results."""
    law = experiment.prices(experiment.first_seed)
    limit = None
    if not isinstance(law, RecordedPrices):
        prices = price_distribution(law, experiment.rounds)
        with contextlib.suppress(ValueError):  # the budget cannot keep buffers full
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
    """Check data, partition and model before any worker starts."""
    from experiments.tool.models import new_model  # noqa: PLC0415 - takes a second

    job = Job.of(experiment, experiment.policies[0], experiment.first_seed, experiment.budget)
    data = job.federated_data
    data.check_columns()
    new_model(job.model, data.input_shape, data.num_classes, job.width)
    data.partition(job.partition, 0, job.clients, job.seed)


def traps(experiment: ExperimentConfig) -> list[str]:
    """Return warnings about settings that work but are perhaps not intended."""
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
    """Return the budget with which a policy spends C a round; C without ``match_spending``.

    Admissions do not depend on the model, so a simulation of counts determines the spending. K
    stays as planned for C. If whole samples, or memory with this K, allow no exact match, it is the
    nearest budget, with a warning.
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
    """Run all runs that are not finished.

    Args:
        runs: the result of ``plan_runs``.
        workers: the number of processes; each uses one thread.
        engine: ``here``, or ``counts`` for linear models without a fleet, twenty times as fast.
        progress: called with the finished rounds, including those of finished runs.
        ended: called with every run that ends.

    Returns:
        How many runs were played now.
    """
    waiting = [run for run in runs if not finished(run.folder, run.config)]
    done_before = sum(run.job.rounds for run in runs if run not in waiting)
    progress(done_before)
    play = {"here": _play, "counts": _play_on_counts}[engine]
    others = multiprocessing.active_children()
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_end_with_parent)
    queue, open_runs = deque(waiting), dict[Future[None], PlannedRun]()
    try:
        while queue or open_runs:
            while queue and len(open_runs) < workers:  # a submitted run cannot be cancelled
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
    """End this worker as soon as its command is killed."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _play(run: PlannedRun) -> None:
    """Play one run in its own process, with one thread."""
    import torch  # noqa: PLC0415 - in the worker only

    from experiments.tool.client_app import app as client_app  # noqa: PLC0415
    from experiments.tool.server_app import app as server_app  # noqa: PLC0415
    from tidegate.flower import run_in_process  # noqa: PLC0415

    torch.set_num_threads(1)
    _begin(run)
    run_in_process(
        server_app, client_app, num_clients=run.job.clients, run_config=run.job.to_config()
    )


def _play_on_counts(run: PlannedRun) -> None:
    """Play one run of a linear model without a fleet."""
    from experiments.tool.on_counts import run_on_counts  # noqa: PLC0415 - in the worker only

    _begin(run)
    run_on_counts(run.job)


def _begin(run: PlannedRun) -> None:
    """Delete the rows of an interrupted run, and write this run's configuration."""
    logging.getLogger("flwr").setLevel(logging.ERROR)
    discard(run.folder)
    write_config(run.folder, run.config)
