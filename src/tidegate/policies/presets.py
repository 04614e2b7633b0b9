"""The settings of the paper's three experiments, and two presets for its policies."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidegate._internal.suggestion import suggestion
from tidegate.errors import ConfigurationError
from tidegate.policies import (
    DEFAULT_OPTIONS,
    POLICIES,
    ControlOptions,
    JointPolicy,
    PolicyMaker,
)
from tidegate.prices import PriceLaw, price_law
from tidegate.problem import LearningConstants, Problem

_MNIST_CAPACITIES = (8, 9, 10, 11, 12, 8, 9, 10, 11, 12)


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """The control problem of one experiment in the paper's Section 7."""

    buffer_capacities: tuple[int, ...]
    budget: float
    learning_rate: float
    num_rounds: int = 1000
    price_text: str = "uniform:1,10"

    @property
    def price(self) -> PriceLaw:
        """c(t), independent and uniform on [1, 10]."""
        return price_law(self.price_text)

    def problem(self, num_rounds: int | None = None) -> Problem:
        """Return the control problem; the paper does not state T, the default is 1,000 rounds."""
        rounds = self.num_rounds if num_rounds is None else num_rounds
        return Problem(
            buffer_capacities=self.buffer_capacities,
            budget=self.budget,
            mean_price=self.price.mean(rounds),
            num_rounds=rounds,
            learning=LearningConstants(learning_rate=self.learning_rate),
        )


def _scaled(factor: int, learning_rate: float) -> Experiment:
    return Experiment(
        buffer_capacities=tuple(factor * capacity for capacity in _MNIST_CAPACITIES),
        budget=55.0 * factor,
        learning_rate=learning_rate,
    )


EXPERIMENTS: Mapping[str, Experiment] = {
    "mnist": _scaled(1, 0.5),
    "cifar10": _scaled(2, 5e-3),
    "imagenette": _scaled(4, 5e-4),
}
"""The settings of the paper's three experiments, by data set."""

PRESETS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    # The policies as the paper prints them.
    "as_printed": {},
    # The authors' public scripts, as far as the printed algorithm can express them. Their
    # interval uses rho^(0.01 t), with rho = 0.999; 40 and 50 are literals in them.
    "released_settings": {
        "acdpp": {
            "retention_horizon": 6,
            "target_admission": 40.0,
            "admission_cap": 50.0,
            "contraction": 0.999**0.01,
            "penalty_weight": 1000.0,
            "learning": LearningConstants(
                domain_diameter=1000.0,
                gradient_noise=10.0,
                loss_bound=1000.0,
                pseudo_dimension=100.0,
            ),
        },
        "hybrid": {"retention_horizon": 10},
    },
}
"""The arguments that each preset gives to each policy, by preset and policy."""


def make_policy(
    name: str,
    problem: Problem,
    options: ControlOptions = DEFAULT_OPTIONS,
    *,
    preset: str = "as_printed",
    **arguments: Any,
) -> JointPolicy[Any]:
    """Return a policy by name, with the arguments of a preset; yours override them.

    >>> make_policy("acdpp", EXPERIMENTS["mnist"].problem()).retention
    KStepRetention(retention_horizon=10)
    >>> rule = make_policy("acdpp", EXPERIMENTS["mnist"].problem(), penalty_exponent=0.25).admission
    >>> round(rule.penalty_weight, 3)  # 1,000 rounds to the power of 1/4
    5.623
    """
    maker = find_policy(name)
    if preset not in PRESETS:
        raise ConfigurationError(f"unknown preset {preset!r}; choose from {', '.join(PRESETS)}")
    policy = maker(problem, options, **{**PRESETS[preset].get(name, {}), **arguments})
    options.check_uses(name, policy, problem.num_rounds)
    return policy


def find_policy(name: str) -> PolicyMaker:
    """Return the function that makes the policy of this name."""
    if name not in POLICIES:
        hint = suggestion(name, POLICIES, otherwise=f"choose from {', '.join(POLICIES)}")
        raise ConfigurationError(f"unknown policy {name!r}; {hint}")
    return POLICIES[name]
