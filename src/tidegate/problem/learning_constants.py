"""The constants of the learning-error bound."""

from dataclasses import dataclass, fields

from tidegate._internal.arguments import check_number

LARGEST_CONSTANT = 1e50
"""Of the bound, and its inverse the smallest: products of their powers stay within a float."""


@dataclass(frozen=True, kw_only=True)
class LearningConstants:
    """The constants of the learning-error bound; the paper leaves most of them open.

    The defaults are those behind every figure in the documentation. They are not estimates for
    a particular model: a bound computed with them orders policies, it does not predict accuracy.
    """

    domain_diameter: float = 1.0
    """D: no two models are further apart."""
    gradient_noise: float = 1.0
    """σ: standard deviation of one sample's gradient."""
    loss_bound: float = 1.0
    """B (of the loss): every loss lies in [0, B]."""
    learning_rate: float = 0.5
    """η, also written η̃ once in the paper."""
    pseudo_dimension: float = 100.0
    """Pdim of the losses of all models."""
    smoothness: float = 1.0
    """L; only in the constant terms of Theorem 1."""
    gradient_bound: float = 1.0
    """G; only in the constant terms of Theorem 1."""
    local_steps: int = 10
    """E, gradient steps a client takes in a round; only in the constant terms of Theorem 1."""

    def __post_init__(self) -> None:
        lowest, highest = 1 / LARGEST_CONSTANT, LARGEST_CONSTANT
        limit = f"positive and finite, from {lowest:g} to {highest:g}"
        for entry in fields(self):
            value = getattr(self, entry.name)
            check_number(entry.name, value, limit, lambda given: lowest <= given <= highest)
