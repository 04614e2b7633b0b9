"""Rankings by scikit-activeml's budget managers, for the experiment files of this folder.

A manager sees a client's candidates one after another and accepts the few that it would pay for,
so that a given share of them is labelled in the long run: the client's share of the labels. The
gate buys those that were accepted, in the order in which they came; where an order asks for more,
it takes others at random. Every client has a manager of its own, for the whole run.

    pip install scikit-activeml
"""

import functools

import numpy as np
from flwr.app import Context
from numpy.typing import ArrayLike, NDArray
from skactiveml.base import BudgetManager
from skactiveml.stream.budgetmanager import BalancedIncrementalQuantileFilter, SplitBudgetManager

from experiments.tool.job import Job
from tidegate.prices import price_law
from tidegate.selection import least_confidence, margin


def split(probabilities: NDArray[np.float64], context: Context) -> ArrayLike:
    """Split: a threshold that adapts, and one candidate in ten at random; by confidence."""
    return _accepted(SplitBudgetManager, least_confidence(probabilities), context)


def quantile(probabilities: NDArray[np.float64], context: Context) -> ArrayLike:
    """Balanced incremental quantile filter, by margin."""
    return _accepted(BalancedIncrementalQuantileFilter, 1 + margin(probabilities), context)


def _accepted(
    kind: type[BudgetManager], utilities: NDArray[np.float64], context: Context
) -> ArrayLike:
    job = Job.from_config(context.run_config)
    labels = job.budget / float(np.mean(price_law(job.price).mean(job.rounds)))
    share = min(labels / job.clients / job.candidates, 1.0)
    manager = _manager(kind.__name__, job.results, context.node_id, job.seed, share)
    accepted = manager.query_by_utility(utilities)
    if kind is BalancedIncrementalQuantileFilter:
        manager.update(np.empty((len(utilities), 1)), accepted, utilities=utilities)
    else:
        manager.update(np.empty((len(utilities), 1)), accepted)
    worths = np.full(len(utilities), -1.0)
    worths[accepted] = np.arange(len(accepted), 0, -1)
    return worths


@functools.lru_cache(maxsize=1000)
def _manager(kind: str, run: str, node: int, seed: int, share: float) -> BudgetManager:
    """Of one client in one run."""
    if kind == BalancedIncrementalQuantileFilter.__name__:
        return BalancedIncrementalQuantileFilter(budget=share)
    return SplitBudgetManager(budget=share, random_state=seed * 1000 + node % 1000)
