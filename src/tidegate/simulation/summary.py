"""Summarise several runs of one policy: means over seeds, with intervals."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tidegate._internal.arrays import FloatArray
from tidegate.simulation.rounds import Run
from tidegate.theory.bounds import buffer_violation, cost_violation

CONFIDENCE = 0.95
"""The confidence of every interval in a table."""


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds and the half-width of its confidence interval."""

    mean: float
    half_width: float
    """0 if all runs agree; NaN for a single run."""

    @property
    def interval(self) -> tuple[float, float] | None:
        """Its lower and upper end; None for a single run."""
        if math.isnan(self.half_width):
            return None
        return self.mean - self.half_width, self.mean + self.half_width


@dataclass(frozen=True, kw_only=True)
class PolicySummary:
    """The results of a policy, averaged over the price paths of several seeds."""

    policy: str
    seeds: int
    """Runs that were averaged."""
    spent_per_round: Estimate
    mean_occupancy: Estimate
    """n, all clients together, averaged over rounds."""
    peak_occupancy: Estimate
    """The largest n of a run."""
    peak_overflow: Estimate
    """The most samples that a run ever held above the capacity of their client."""
    distinct_per_round: Estimate
    """N(T) / T."""
    effective_per_round: Estimate
    """N_eff(T) / T."""
    bound_per_round: Estimate
    """Ē_T / T of Theorem 1, without constant terms."""
    spent_in_vain: Estimate
    """Money of a run for samples that did not arrive before it ended."""
    final_debt: Estimate
    """Z(T+1)."""
    overspend: Estimate
    """Σ (C_t - C) over the run: above budget, or below it if negative."""
    cost_violation: float
    """Vio^S(T): the positive part of the mean overspend."""
    buffer_violation: float
    """Vio^B(T), from each client's occupancy averaged over seeds."""
    certificate_holds: bool
    """Total overspend up to t was at most Z(t+1), at every t of every run."""

    def row(self) -> dict[str, object]:
        """Return plain numbers for JSON; intervals have their own key, ``null`` for one seed."""
        row: dict[str, object] = {}
        intervals = {}
        for name, value in vars(self).items():
            if isinstance(value, Estimate):
                row[name] = value.mean
                intervals[name] = value.interval
            else:
                row[name] = value
        return {**row, "intervals": intervals}


MEASURES: Mapping[str, Callable[[Run], float]] = {
    "spent_per_round": lambda run: float(run.columns["spent"].mean()),
    "mean_occupancy": lambda run: float(run.columns["training_size"].mean()),
    "peak_occupancy": lambda run: float(run.columns["training_size"].max()),
    "peak_overflow": lambda run: float(run.columns["overflow"].max()),
    "distinct_per_round": lambda run: _last(run, "distinct_samples") / run.problem.num_rounds,
    "effective_per_round": lambda run: _last(run, "effective_samples") / run.problem.num_rounds,
    "bound_per_round": lambda run: float(run.columns["bound"].mean()),
    "spent_in_vain": lambda run: run.spent_in_vain,
    "final_debt": lambda run: _last(run, "cost_debt"),
    "overspend": lambda run: _last(run, "overspend"),
}
"""The values that are averaged over seeds, by their names in a summary."""


def _last(run: Run, column: str) -> float:
    return float(run.columns[column][-1])


def summarise(policy: str, runs: Sequence[Run]) -> PolicySummary:
    """Average runs of one policy on different seeds of one problem."""
    problem = runs[0].problem
    rounds = problem.num_rounds
    if any(len(run.columns["spent"]) != rounds for run in runs):
        raise ValueError(f"a summary needs whole runs of {rounds} rounds each")
    spent = np.mean([run.columns["spent"] for run in runs], axis=0)
    return PolicySummary(
        policy=policy,
        seeds=len(runs),
        **{name: estimate([one(run) for run in runs]) for name, one in MEASURES.items()},
        cost_violation=cost_violation(spent, problem.budget),
        buffer_violation=buffer_violation(mean_excess(runs)),
        certificate_holds=all(run.certificate_holds for run in runs),
    )


def mean_excess(runs: Sequence[Run]) -> FloatArray:
    """Return the samples that each client held above its capacity, summed over rounds, averaged."""
    excess: FloatArray = np.mean([run.excess for run in runs], axis=0)
    return excess


def paired_differences(runs: Sequence[Run], others: Sequence[Run]) -> dict[str, Estimate]:
    """Return how much more one policy has than another, averaged over the same seeds.

    Prices are the same on both sides of each difference, so its interval is far narrower than those
    of the two means.
    """
    if [run.seed for run in runs] != [run.seed for run in others]:
        raise ValueError("paired differences need the same seeds in the same order")
    return {
        name: estimate([one(run) - one(other) for run, other in zip(runs, others, strict=True)])
        for name, one in MEASURES.items()
    }


def estimate(values: Sequence[float], confidence: float = CONFIDENCE) -> Estimate:
    """Return mean and Student's interval of independent values.

    Args:
        values: one a seed.
        confidence: the probability that the interval contains the true mean.

    >>> estimate([54.0, 55.0, 56.0])  # doctest: +ELLIPSIS
    Estimate(mean=55.0, half_width=2.484...)
    """
    mean = statistics.fmean(values)
    if len(values) == 1:
        return Estimate(mean, math.nan)
    error = statistics.stdev(values) / math.sqrt(len(values))
    return Estimate(mean, student_quantile(len(values) - 1, confidence) * error)


def share_of(parts: Sequence[float], wholes: Sequence[float]) -> tuple[float, float] | None:
    """Return Fieller's interval of mean(parts) / mean(wholes), both of the same seeds.

    It contains the shares r for which the differences part - r whole could have a mean of 0: a
    quadratic in r.

    Returns:
        Its ends; None if they are unknown, because the whole could be 0 or there is only one seed.

    >>> low, high = share_of([1.0, 2.0, 1.5], [4.0, 4.1, 4.2])
    >>> round(low, 2), round(high, 2)
    (0.06, 0.65)
    """
    count = len(parts)
    if count == 1:
        return None
    part, whole = statistics.fmean(parts), statistics.fmean(wholes)
    scale = student_quantile(count - 1) ** 2 / count
    square = whole**2 - scale * statistics.variance(wholes)
    middle = part * whole - scale * statistics.covariance(parts, wholes)
    constant = part**2 - scale * statistics.variance(parts)
    if square <= 0:
        return None
    reach = math.sqrt(max(middle**2 - square * constant, 0.0))
    return (middle - reach) / square, (middle + reach) / square


@lru_cache
def student_quantile(degrees: int, confidence: float = CONFIDENCE) -> float:
    """Return the t that a Student variable exceeds in absolute value with p = 1 - confidence.

    With t = √ν tan θ the distribution becomes an integral of cos^(ν-1) θ, smooth on a bounded
    interval; its inverse is read off a fine table (checked against SciPy in the tests).

    >>> round(student_quantile(9), 3)
    2.262
    """
    angles = np.linspace(0, math.pi / 2, 100_001)
    density = np.cos(angles) ** (degrees - 1)
    steps = (density[1:] + density[:-1]) / 2
    mass = np.concatenate([[0.0], np.cumsum(steps)])
    angle = float(np.interp(confidence * mass[-1], mass, angles))
    return math.sqrt(degrees) * math.tan(angle)
