"""How often samples were used, and the effective sample size that follows.

A sample's use count A_i grows by one in every round in which it is stored. With N distinct
samples used so far,

    reuse uniformity       Ṽ = mean(A)² / mean(A²)      in (0, 1]
    effective sample size  N_eff = N·Ṽ = (ΣA)² / ΣA²

so the three sums N, ΣA and ΣA² are enough, and sums over the fleet update them in each round.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from tidegate._internal.arrays import FloatArray
from tidegate.problem import NOTHING, EarlierSamples


@dataclass(frozen=True)
class ReuseTally:
    """N, ΣA and ΣA² so far: exact counting, for any retention rule.

    >>> tally = ReuseTally().after_round(admitted=4, training_size=4, prior_uses=0)
    >>> tally = tally.after_round(admitted=2, training_size=6, prior_uses=4)
    >>> tally.distinct_samples, tally.total_uses, tally.squared_uses
    (6, 10, 18)
    >>> round(tally.effective_sample_size, 3)
    5.556
    """

    distinct_samples: int = 0
    """N(t)."""
    total_uses: int = 0
    """ΣA."""
    squared_uses: int = 0
    """ΣA²."""

    @classmethod
    def of(cls, earlier: EarlierSamples) -> Self:
        """Return N(0), ΣA⁰ and Σ(A⁰)²."""
        return cls(earlier.distinct_samples, earlier.total_uses, earlier.squared_uses)

    def after_round(self, *, admitted: int, training_size: int, prior_uses: int) -> "ReuseTally":
        """Return the tally one round later.

        A stored sample used a times before adds one use, and (a+1)² - a² = 2a + 1 to the squares.

        Args:
            admitted: Λ(t), samples used for the first time in this round.
            training_size: n(t), samples stored and used in this round.
            prior_uses: sum, over those stored samples, of the rounds each was used before.
        """
        return ReuseTally(
            distinct_samples=self.distinct_samples + admitted,
            total_uses=self.total_uses + training_size,
            squared_uses=self.squared_uses + 2 * prior_uses + training_size,
        )

    def with_earlier(self, ages: Sequence[int]) -> "ReuseTally":
        """Return the tally with samples that were used 1, 2, ... times before they came."""
        uses = list(enumerate(ages, start=1))
        return ReuseTally(
            self.distinct_samples + sum(ages),
            self.total_uses + sum(use * count for use, count in uses),
            self.squared_uses + sum(use**2 * count for use, count in uses),
        )

    @property
    def reuse_uniformity(self) -> float:
        """Ṽ(t); 1 while no sample has been used (nothing is uneven yet)."""
        if not self.squared_uses:
            return 1.0
        return self.effective_sample_size / self.distinct_samples

    @property
    def effective_sample_size(self) -> float:
        """N_eff(t) = (ΣA)² / ΣA²; 0 while no sample has been used."""
        return self.total_uses**2 / self.squared_uses if self.squared_uses else 0.0


def reuse_deficit(admissions: Sequence[int], retention_horizon: int) -> int:
    """Return the uses that the samples of the last K - 1 rounds still have before them.

    D_∂⁽¹⁾(t) of the paper; an admission of Λ samples of age a lacks (K - a)·Λ of them.

    Args:
        admissions: Λ(1), ..., Λ(t), how many samples each round admitted.
        retention_horizon: K, the rounds that a sample stays.

    >>> reuse_deficit([5, 5, 5], retention_horizon=3)  # 5 samples lack 1 use, 5 lack 2
    15
    """
    return sum(
        (retention_horizon - age) * admitted
        for age, admitted in _young(admissions, retention_horizon)
    )


def squared_reuse_deficit(admissions: Sequence[int], retention_horizon: int) -> int:
    """Return D_∂⁽²⁾(t), the same for squared use counts: Σ (K² - age²) Λ.

    >>> squared_reuse_deficit([5, 5, 5], retention_horizon=3)  # 5·(9-4) + 5·(9-1)
    65
    """
    return sum(
        (retention_horizon**2 - age**2) * admitted
        for age, admitted in _young(admissions, retention_horizon)
    )


def _young(admissions: Sequence[int], retention_horizon: int) -> list[tuple[int, int]]:
    """Return (age, admitted) of the last K-1 rounds, newest first; age counts from 1."""
    if retention_horizon < 1:
        raise ValueError(f"retention_horizon must be at least 1, got {retention_horizon}")
    newest_first = reversed(
        admissions[len(admissions) - min(retention_horizon - 1, len(admissions)) :]
    )
    return list(enumerate(newest_first, start=1))


@dataclass(frozen=True)
class EarlierReuse:
    """What earlier samples add to the sums of a run, one entry a round."""

    training_size: FloatArray
    """Those that are still stored."""
    total_uses: FloatArray
    """Their part of ΣA, with that of the samples that have left."""
    squared_uses: FloatArray
    """Their part of ΣA²."""


def earlier_reuse(
    earlier: EarlierSamples, retention_horizon: int, rounds: FloatArray
) -> EarlierReuse:
    """Return what earlier samples add after each of these rounds of K-step retention.

    A stored sample that was used a < K times before has min(a + t, K) uses after round t, and is in
    round t's training while a + t <= K.

    Args:
        earlier: the samples.
        retention_horizon: K.
        rounds: the rounds t; where only cohorts take part, those of an average client.

    >>> earlier = EarlierSamples(stored=[[0, 5]], left=[0, 0, 0, 7])
    >>> reuse = earlier_reuse(earlier, 3, np.array([1.0, 2.0, 3.0]))
    >>> reuse.training_size, reuse.total_uses
    (array([5., 5., 0.]), array([31., 36., 36.]))
    """
    stored = np.zeros(len(rounds))
    uses = np.full(len(rounds), float(earlier.total_uses))
    squares = np.full(len(rounds), float(earlier.squared_uses))
    for before, count in enumerate(earlier.within(retention_horizon).sum(axis=0)):
        after = np.minimum(before + rounds, retention_horizon)
        stored += count * np.clip(retention_horizon - before - rounds + 1, 0.0, 1.0)
        uses += count * (after - before)
        squares += count * (after**2 - before**2)
    return EarlierReuse(stored, uses, squares)


def k_step_tally(
    admissions: Sequence[int], retention_horizon: int, earlier: EarlierSamples = NOTHING
) -> ReuseTally:
    """Return the tally after rounds 1..t of K-step retention, in closed form.

    ΣA = K·N - D_∂⁽¹⁾ and ΣA² = K²·N - D_∂⁽²⁾ (the paper's exact representation of Ṽ) of the
    samples that the run has admitted, and what the earlier ones add.

    >>> round(k_step_tally([10] * 20, retention_horizon=10).reuse_uniformity, 3)
    0.867
    """
    distinct = sum(admissions)
    before = earlier_reuse(earlier, retention_horizon, np.array([float(len(admissions))]))
    return ReuseTally(
        distinct_samples=earlier.distinct_samples + distinct,
        total_uses=int(before.total_uses[0])
        + retention_horizon * distinct
        - reuse_deficit(admissions, retention_horizon),
        squared_uses=int(before.squared_uses[0])
        + retention_horizon**2 * distinct
        - squared_reuse_deficit(admissions, retention_horizon),
    )


def constant_admission_uniformity(round_number: FloatArray, retention_horizon: int) -> FloatArray:
    """Return Ṽ^CK(t) under constant admission, for each given t.

    For t >= K it is (Kt - K(K-1)/2)² / (t (K²t - K(K-1)(4K+1)/6)). The paper prints 2K-1 where
    its own general formula, and counting, give 4K+1. While t < K nothing has expired and the
    same expression holds with t in place of K.

    >>> constant_admission_uniformity(np.array([1.0, 20.0]), 10).round(3)
    array([1.   , 0.867])
    """
    uses, squares = constant_admission_uses(round_number, retention_horizon)
    uniformity: FloatArray = uses**2 / (round_number * squares)
    return uniformity


def constant_admission_uses(
    round_number: FloatArray, retention_horizon: int
) -> tuple[FloatArray, FloatArray]:
    """Return ΣA and ΣA² after each given t if every round admits one sample.

    >>> constant_admission_uses(np.array([1.0, 4.0]), 2)  # after 4 rounds: 2, 2, 2 and 1 uses
    (array([1., 7.]), array([ 1., 13.]))
    """
    if np.any(round_number < 1):
        raise ValueError(f"rounds count from 1, got {np.min(round_number)}")
    if retention_horizon < 1:
        raise ValueError(f"retention_horizon must be at least 1, got {retention_horizon}")
    horizon = np.minimum(retention_horizon, round_number)
    uses: FloatArray = horizon * round_number - horizon * (horizon - 1) / 2
    squares: FloatArray = (
        horizon**2 * round_number - horizon * (horizon - 1) * (4 * horizon + 1) / 6
    )
    return uses, squares
