"""The guarantees of ACDPP beside what simulated runs measure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tidegate.simulation.rounds import Run
from tidegate.simulation.summary import Estimate, estimate
from tidegate.theory.bounds import regret
from tidegate.theory.guarantees import acdpp_guarantees
from tidegate.theory.parameters import contraction, penalty_weight
from tidegate.theory.penalty import surrogate_penalty


@dataclass(frozen=True)
class GuaranteedQuantity:
    """A quantity that the paper bounds."""

    name: str
    """That of a field of ``Guarantees``."""
    printed: float
    """The bound of the text, which is not always one."""
    repaired: float
    measured: Estimate
    """Over seeds. Violations before their positive part is taken."""


def _mean_drift(run: Run) -> float:
    return float(((run.columns["spent"] - run.problem.budget) ** 2 / 2).mean())


def _penalty(run: Run) -> float:
    sizes, learning = run.sizes, run.problem.learning
    return float(surrogate_penalty(sizes.training_size, sizes.distinct_samples, learning).sum())


def _regret(run: Run) -> float:
    problem = run.problem
    return float(regret(run.sizes, problem.total_capacity, problem.learning, problem.earlier)[-1])


MEASURES: Mapping[str, Callable[[Run], float]] = {
    "drift_constant": _mean_drift,
    "surrogate_penalty": _penalty,
    "regret": _regret,
    "cost_violation": lambda run: float(run.columns["overspend"][-1]),
    "buffer_violation": lambda run: float(run.excess.sum()),
}
"""What a run measures of each quantity."""


def measured_guarantees(
    runs: Sequence[Run],
    *,
    lowest_price: float,
    highest_price: float,
    penalty_exponent: float,
    contraction_exponent: float,
    retention_horizon: int | None = None,
) -> list[GuaranteedQuantity]:
    """Return each bound, as printed and repaired, and what runs of ACDPP measure.

    Args:
        runs: on different seeds of one problem.
        lowest_price: no price is lower.
        highest_price: no price is higher.
        penalty_exponent: γ of the runs.
        contraction_exponent: φ of the runs.
        retention_horizon: K of the runs; the planned one by default.
    """
    problem = runs[0].problem
    printed, repaired = (
        acdpp_guarantees(
            problem,
            lowest_price=lowest_price,
            highest_price=highest_price,
            penalty_weight=penalty_weight(problem.num_rounds, penalty_exponent),
            contraction=contraction(problem.num_rounds, contraction_exponent),
            retention_horizon=retention_horizon,
            as_printed=as_printed,
        )
        for as_printed in (True, False)
    )
    return [
        GuaranteedQuantity(
            name,
            getattr(printed, name),
            getattr(repaired, name),
            estimate([measure(run) for run in runs]),
        )
        for name, measure in MEASURES.items()
    ]
