"""The paper's part of ``tidegate plan``: K, admissions, V and rho, and what ACDPP guarantees."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path

from tidegate.cli.running import progress_bar
from tidegate.cli.setting import Setting
from tidegate.errors import ConfigurationError
from tidegate.prices import ConstantPrice, UniformPrice
from tidegate.problem import LearningConstants
from tidegate.report.plan_page import PaperPlan
from tidegate.runs.reader import read_run
from tidegate.simulation.curves import with_a_tenth_more
from tidegate.simulation.guarantees import GuaranteedQuantity, measured_guarantees
from tidegate.simulation.offline import Candidate, candidate_horizons, try_horizons
from tidegate.simulation.rounds import Run
from tidegate.theory.estimates import ModelEstimates, estimated_constants
from tidegate.theory.parameters import (
    contraction,
    penalty_weight,
    plan_constant_admission,
    search_constant_admission,
)

ACDPP = "acdpp"


def paper_plan(setting: Setting, seeds: range, *, offline: bool) -> PaperPlan:
    """Plan the paper's policies; with ``offline`` also simulate each K, with a progress bar."""
    problem, horizon = setting.problem, setting.retention_horizon
    return PaperPlan(
        closed=plan_constant_admission(problem, horizon),
        searched=search_constant_admission(problem),
        more={
            name: plan_constant_admission(one, horizon)
            for name, one in with_a_tenth_more(problem).items()
            if name != "training"  # K and the bound do not know of it
        },
        penalty_weight=penalty_weight(problem.num_rounds, setting.gamma),
        contraction=contraction(problem.num_rounds, setting.phi),
        candidates=_simulated_horizons(setting, seeds) if offline else (),
    )


def _simulated_horizons(setting: Setting, seeds: range) -> list[Candidate]:
    problem = setting.problem
    horizons = candidate_horizons(problem)
    with progress_bar("trying K", len(horizons) * len(seeds) * problem.num_rounds) as one_round:
        return try_horizons(
            problem,
            setting.price_law,
            horizons=horizons,
            seeds=seeds,
            options=setting.options,
            **setting.constants(ACDPP),
            price_per_client=setting.price_per_client,
            each_round=one_round,
        )


def with_estimates(setting: Setting, folder: Path) -> Setting:
    """Return a setting with D, sigma and B as a run's server measured them at its models."""
    metrics = read_run(folder).metrics
    names = [entry.name for entry in fields(ModelEstimates)]
    measured = {name: metrics.get(f"server/{name}", {}) for name in names}
    if missing := [name for name, by_round in measured.items() if not by_round]:
        raise ConfigurationError(
            f"{folder} has no {', '.join(missing)} among the metrics of its server; let "
            "evaluate_fn return MetricRecord(vars(ModelEstimates.of(...))) with "
            "tidegate.theory.estimates, and run again"
        )
    for name, by_round in measured.items():
        for round_number, value in by_round.items():
            if not math.isfinite(value):
                raise ConfigurationError(
                    f"{name} of round {round_number} of {folder} is not finite, because its model "
                    "diverged; estimate from another run, with a lower learning rate"
                )
    largest = {name: max(by_round.values()) for name, by_round in measured.items()}
    constants = estimated_constants([ModelEstimates(**largest)], LearningConstants())
    taken = ("domain_diameter", "gradient_noise", "loss_bound")
    return setting.model_copy(update={name: getattr(constants, name) for name in taken})


def unmet_conditions(setting: Setting, runs: Mapping[str, Sequence[Run]], preset: str) -> list[str]:
    """Return the conditions of the guarantees that these runs do not meet."""
    problem = setting.problem
    unmet = {
        "ACDPP is among the policies": ACDPP not in runs,
        "the preset is as_printed": preset != "as_printed",
        "prices are independent from round to round (uniform or constant)": not isinstance(
            setting.price_law, UniformPrice | ConstantPrice
        ),
        "there is one price for all": setting.price_per_client,
        "all clients take part in every round": not problem.cohorts.everyone,
        "samples arrive at once": not problem.delays.none,
    }
    return [condition for condition, is_unmet in unmet.items() if is_unmet]


def guarantees_of(setting: Setting, runs: Sequence[Run]) -> list[GuaranteedQuantity]:
    """Return the bounds for ACDPP, and what its runs measure."""
    law = setting.price_law
    low, high = (law.low, law.high) if isinstance(law, UniformPrice) else (law.mean(1),) * 2
    return measured_guarantees(
        runs,
        lowest_price=float(low),
        highest_price=float(high),
        penalty_exponent=setting.gamma,
        contraction_exponent=setting.phi,
        retention_horizon=setting.retention_horizon,
    )
