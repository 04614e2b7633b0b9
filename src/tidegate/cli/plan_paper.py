"""The paper's part of ``tidegate plan``: K, admissions, V and rho, and what ACDPP guarantees."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

from tidegate._internal.words import counted
from tidegate.cli.running import progress_bar
from tidegate.cli.setting import Setting
from tidegate.errors import ConfigurationError
from tidegate.prices import ConstantPrice, UniformPrice
from tidegate.problem import LearningConstants
from tidegate.report.tables import about
from tidegate.runs.reader import read_run
from tidegate.simulation.curves import with_a_tenth_more
from tidegate.simulation.guarantees import GuaranteedQuantity, measured_guarantees
from tidegate.simulation.offline import Candidate, candidate_horizons, select_offline, try_horizons
from tidegate.simulation.rounds import Run
from tidegate.theory.estimates import ModelEstimates, estimated_constants
from tidegate.theory.parameters import (
    Plan,
    contraction,
    penalty_weight,
    plan_constant_admission,
    search_constant_admission,
)

ACDPP = "acdpp"


@dataclass(frozen=True)
class PaperPlan:
    """The settings of the paper's policies for a problem."""

    closed: Plan
    """By the closed form of an endless run."""
    searched: Plan
    """By a search over K for this run."""
    more: Mapping[str, Plan]
    """With a tenth more ``budget``, and with a tenth more ``memory``."""
    penalty_weight: float
    contraction: float
    candidates: Sequence[Candidate]
    """Each K that was simulated; empty without offline selection."""

    @classmethod
    def of(cls, setting: Setting, seeds: range, *, offline: bool) -> Self:
        """Plan a problem; with ``offline`` also simulate each K, with a progress bar."""
        problem, horizon = setting.problem, setting.retention_horizon
        return cls(
            closed=plan_constant_admission(problem, horizon),
            searched=search_constant_admission(problem),
            more={
                name: plan_constant_admission(one, horizon)
                for name, one in with_a_tenth_more(problem).items()
            },
            penalty_weight=penalty_weight(problem.num_rounds, setting.gamma),
            contraction=contraction(problem.num_rounds, setting.phi),
            candidates=_simulated_horizons(setting, seeds) if offline else (),
        )

    @property
    def selected(self) -> Candidate | None:
        """The K that offline selection takes; None without it."""
        return select_offline(self.candidates) if self.candidates else None

    def advice(self, setting: Setting) -> list[str]:
        """Return how to set the paper's policies up, sentence by sentence."""
        closed, most_uses = self.closed, setting.most_uses
        if most_uses is not None and closed.retention_horizon > most_uses:
            ruled_out = (
                f"They would keep a sample for {closed.retention_horizon} rounds (K), which "
                f"--most-uses {most_uses} rules out. --retention-horizon {most_uses} plans them "
                "with the cap."
            )
            return [ruled_out]
        is_even = len({size for size, _ in setting.capacities}) == 1
        share = closed.target_admission / setting.problem.num_clients
        a_client = f", {share:,.3g} a client" if is_even else ""
        return [
            f"Keep a sample for {counted(closed.retention_horizon, 'round')} (K).",
            f"Admit {closed.target_admission:,.4g} samples a round in all{a_client}.",
            f"V = {self.penalty_weight:,.4g} and rho = {self.contraction:.4g}.",
            self._bound(),
            *(
                f"With 10 % more {name} the bound is {plan.bound_per_round:.4g} "
                f"(K = {plan.retention_horizon}, {plan.target_admission:,.4g} samples)."
                for name, plan in self.more.items()
            ),
        ]

    def _bound(self) -> str:
        closed, searched = self.closed, self.searched
        bound = (
            f"The paper's bound on the error (less is better) is then {closed.bound_per_round:.4g}"
        )
        if searched.retention_horizon == closed.retention_horizon:
            return f"{bound}, the best of all K."
        return (
            f"{bound}; K = {searched.retention_horizon} would give {searched.bound_per_round:.4g} "
            f"(try --retention-horizon {searched.retention_horizon})."
        )

    def row(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        row: dict[str, Any] = {
            **vars(self.closed),
            "penalty_weight": self.penalty_weight,
            "contraction": self.contraction,
            "finite_horizon": vars(self.searched),
            "with_10_percent_more": {name: vars(plan) for name, plan in self.more.items()},
        }
        if self.selected is not None:
            row["offline"] = {
                "retention_horizon": self.selected.retention_horizon,
                "candidates": [vars(candidate) for candidate in self.candidates],
            }
        return row


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


def no_guarantee(setting: Setting, runs: Mapping[str, Sequence[Run]], preset: str) -> str:
    """Return why the guarantees do not hold for these runs; empty if they do."""
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
    missing = [condition for condition, is_unmet in unmet.items() if is_unmet]
    return f"No guarantees: they hold if {' and '.join(missing)}." if missing else ""


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


def looseness(quantities: Sequence[GuaranteedQuantity], setting: Setting) -> list[str]:
    """Return how far the bounds are from what is measured, sentence by sentence."""
    by_name = {quantity.name: quantity for quantity in quantities}
    far = []
    for name in ("regret", "cost_violation"):
        quantity, words = by_name[name], name.replace("_", " ")
        if quantity.measured.mean > 0:
            far.append(
                f"{about(quantity.repaired / quantity.measured.mean)} times the measured {words}"
            )
        else:
            far.append(f"{about(quantity.repaired)} where no {words} is measured")
    sentences = [
        "As printed, the bounds have gaps in their proofs; repaired, they are proved.",
        f"They are guarantees, no forecasts: the repaired ones are {far[0]} and {far[1]}.",
        "Violations are measured before their positive part is taken.",
    ]
    whole, printed = setting.budget * setting.rounds, by_name["cost_violation"].printed
    if printed > whole:
        sentences.append(
            f"The printed bound on the cost violation exceeds the whole budget, {about(whole)}."
        )
    return sentences
