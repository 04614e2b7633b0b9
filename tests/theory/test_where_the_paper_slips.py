"""Sentences and steps of the paper that do not hold, each with the smallest case found.

What Tidegate does in their place is in ``docs/theory.md`` and ``docs/paper.md``.
"""

import math

import numpy as np
import pytest

from tidegate.problem import LearningConstants, Problem
from tidegate.theory.bounds import (
    SampleSizes,
    constant_admission_sizes,
    costless_oracle_sizes,
    excess_risk_bound,
)
from tidegate.theory.parameters import plan_constant_admission


def variances(uses: list[int], stored: list[int]) -> tuple[float, float]:
    """1/n - 1/N_eff as printed, and the exact Σ (ω_i - q_i/n)², both over σ²."""
    counts, present = np.array(uses, float), np.zeros(len(uses))
    present[stored] = 1 / len(stored)
    weights = counts / counts.sum()
    return 1 / len(stored) - float(np.sum(weights**2)), float(np.sum((weights - present) ** 2))


def test_the_variance_is_right_where_stored_samples_have_their_share_of_uses() -> None:
    """Exactly σ² (1/n + 1/N_eff - 2s/n), where stored samples have the share s of all uses.

    That is the printed σ² (1/n - 1/N_eff) where s = n/N_eff: not only where reuse is even.
    """
    printed, exact = variances([1, 4, 2], stored=[1, 2])
    assert printed == pytest.approx(1 / 14)
    assert exact == pytest.approx(1 / 14)
    for uses, stored in (([3, 3, 2, 1], [2, 3]), ([5, 1, 1], [0, 2]), ([2, 2, 1], [0, 1, 2])):
        printed, exact = variances(uses, stored)
        share = sum(uses[sample] for sample in stored) / sum(uses)
        inverse = sum(count**2 for count in uses) / sum(uses) ** 2  # 1/N_eff
        assert exact == pytest.approx(1 / len(stored) + inverse - 2 * share / len(stored))


@pytest.mark.parametrize(("rounds", "ratio"), [(20, 0.49), (100, 0.91), (1000, 0.991)])
def test_the_printed_variance_is_too_small_under_constant_admission(
    rounds: int, ratio: float
) -> None:
    uses = [min(10, rounds - start) for start in range(rounds)]  # one sample a round, K = 10
    printed, exact = variances(uses, stored=list(range(rounds - 10, rounds)))
    assert printed / exact == pytest.approx(ratio, abs=0.005)


def test_saturating_memory_can_break_the_budget() -> None:
    """Corollary 2 sets λ = B/K with K next to c̄ΣB/C; with the lower neighbour that costs more."""
    problem = Problem(buffer_capacities=[100], budget=60.0, mean_price=5.5, num_rounds=1000)
    lower = math.floor(5.5 * 100 / 60)
    assert lower == 9
    assert 5.5 * 100 / lower == pytest.approx(61.1, abs=0.05)
    plan = plan_constant_admission(problem, retention_horizon=lower)
    assert plan.target_admission * 5.5 <= 60.0


def test_the_majorant_of_omega_2_is_infinite_in_one_round_and_negative_before() -> None:
    """1/(Λ̄((1-ρ)t² - t)) bounds 1/N_lb - 1/(Λ̄t) only for t > 1/(1-ρ)."""
    rho, target = 0.9, 10.0
    rounds = np.arange(1, 31)
    fewest = target * (rounds - rho * (1 - rho ** (rounds - 1)) / (1 - rho))
    difference = 1 / fewest - 1 / (target * rounds)
    denominator = target * ((1 - rho) * rounds**2 - rounds)
    assert denominator[9] == pytest.approx(0)  # t = 10 = 1/(1-ρ)
    assert np.all(denominator[:9] < 0)
    assert np.all(difference[1:9] > 0)
    assert np.all(difference[10:] <= 1 / denominator[10:])


def test_theorem_1_needs_convexity() -> None:
    """A smooth loss with a second valley, the same for every sample: all four assumptions hold.

    Gradient descent that starts in the higher valley stays, and loses its height in every round.
    """

    def loss(theta: float) -> float:
        return 0.1 * ((theta**2 - 1) ** 2 + 0.4 * theta) + 0.1

    def slope(theta: float) -> float:
        return 0.1 * (4 * theta * (theta**2 - 1) + 0.4)

    theta, rate = 0.9, 0.01
    for _ in range(20_000):
        theta -= rate * slope(theta)
    grid = np.linspace(-1.5, 1.5, 3001)
    lost = loss(theta) - min(map(loss, grid))
    assert abs(slope(theta)) < 1e-12
    assert lost > 0.07
    learning = LearningConstants(
        domain_diameter=3.0,
        gradient_noise=1e-12,
        loss_bound=max(map(loss, grid)),
        learning_rate=rate,
        pseudo_dimension=1.0,
        smoothness=0.1 * (12 * 1.5**2 - 4),
        gradient_bound=max(abs(slope(point)) for point in grid),
        local_steps=1,
    )
    rounds = 100_000
    bound = excess_risk_bound(costless_oracle_sizes(1000, rounds), learning, with_constants=True)
    assert bound < 0.5 * lost * rounds


def test_the_recursion_takes_a_fixed_minimiser_for_a_moving_one() -> None:
    """Convexity gives <∇F̂(θ), θ - θ*> >= F̂(θ) - F̂(θ*); the recursion has min F̂ for F̂(θ*)."""
    theta, best, minimiser = 0.0, -1.0, 1.0  # F̂ = (θ - 1)²/2 of this round, θ* = -1
    inner = (theta - minimiser) * (theta - best)
    assert inner >= (theta - minimiser) ** 2 / 2 - (best - minimiser) ** 2 / 2
    assert not inner >= (theta - minimiser) ** 2 / 2


def test_a_step_without_projection_leaves_the_domain() -> None:
    theta, rate, sample = 1.0, 0.5, 3.0  # Θ = [0, 1], loss (θ - z)²/2
    assert theta - rate * (theta - sample) > 1


def test_the_generalisation_bound_needs_buffers_in_proportion_to_importance() -> None:
    """P mixes clients by α_m, buffers by n_m: with other proportions the gap never closes.

    Client 1 sees only z = 1, client 2 only z = -1, α = (1/2, 1/2), three quarters of all samples
    are client 1's, every sample is used once; Θ = [-1, 1] and the loss is (θ - z)²/2, at most 2.
    """
    thetas = np.linspace(-1, 1, 201)
    population = (thetas**2 + 1) / 2
    empirical = 0.75 * (thetas - 1) ** 2 / 2 + 0.25 * (thetas + 1) ** 2 / 2
    gap = np.max(np.abs(population - empirical))
    assert gap == pytest.approx(0.5)
    samples, pdim = 1e6, 2.0
    assert 10 * 2 * math.sqrt(pdim / samples * (1 + math.log(samples / pdim))) < gap


def test_the_oracle_does_not_minimise_the_bound_with_measured_constants() -> None:
    """Logistic regression on MNIST, 100 rounds: constants of ``experiments/bound``.

    The last term is at its cap for all, and fresh samples raise the first two.
    """
    learning = LearningConstants(
        domain_diameter=42.0,
        gradient_noise=9.6,
        loss_bound=19.3,
        learning_rate=0.5,
        pseudo_dimension=7850.0,
    )
    same = np.full(100, 100.0)
    bounds = {
        "oracle": costless_oracle_sizes(100, 100),
        "constant admission": constant_admission_sizes(10.0, 10, 100),
        "frozen buffers": SampleSizes(same, same, same),
    }
    per_round = {name: excess_risk_bound(sizes, learning) / 100 for name, sizes in bounds.items()}
    assert per_round["oracle"] == pytest.approx(232, abs=1)
    assert per_round["constant admission"] == pytest.approx(223, abs=1)
    assert per_round["frozen buffers"] == pytest.approx(193, abs=1)
