"""The range of a round's total admission."""

import math
from dataclasses import dataclass
from typing import Protocol

from tidegate.errors import ConfigurationError


@dataclass(frozen=True)
class AdmissionInterval:
    """[lower, upper], samples in one round."""

    lower: float
    upper: float

    def within(self, limit: float) -> "AdmissionInterval":
        """Return the part up to ``limit``, or only the limit if all of the interval is above it.

        >>> AdmissionInterval(8.0, 12.0).within(5.0)
        AdmissionInterval(lower=5.0, upper=5.0)
        """
        return AdmissionInterval(min(self.lower, limit), min(self.upper, limit))


class Interval(Protocol):
    """An interval for every round."""

    def at(self, round_number: int) -> AdmissionInterval:
        """Return the interval of this round."""
        ...


@dataclass(frozen=True)
class ClosingInterval:
    """[Λ̄(1 - ρ^t), Λ̄ / (1 - ρ^t)]: wide at first, closing on the target admission.

    >>> ClosingInterval(target_admission=10.0, contraction=0.5).at(1)
    AdmissionInterval(lower=5.0, upper=20.0)
    """

    target_admission: float
    """Λ̄."""
    contraction: float
    """ρ, in [0, 1)."""
    cap: float = math.inf
    """An upper end that the interval never exceeds; the paper has none."""

    def __post_init__(self) -> None:
        if not self.target_admission > 0:
            raise ConfigurationError(
                f"target_admission must be positive, got {self.target_admission}"
            )
        if not 0 <= self.contraction < 1:
            raise ConfigurationError(f"contraction must be in [0, 1), got {self.contraction}")
        if self.cap < self.target_admission:
            raise ConfigurationError(
                f"the cap {self.cap} is below the target admission {self.target_admission}, on "
                "which the interval closes; raise the cap"
            )

    def at(self, round_number: int) -> AdmissionInterval:
        """Return the interval of this round; rounds count from 1."""
        # 1 - ρ^t without cancellation while ρ is close to 1.
        closed = -math.expm1(round_number * math.log(self.contraction)) if self.contraction else 1.0
        return AdmissionInterval(
            lower=self.target_admission * closed,
            upper=min(self.target_admission / closed, self.cap),
        )


@dataclass(frozen=True)
class FixedInterval:
    """[0, upper] in every round: the classical rule."""

    upper: float

    def at(self, round_number: int) -> AdmissionInterval:
        """Return the same interval for every round."""
        return AdmissionInterval(0.0, self.upper)
