"""The control problem of the paper's MNIST setting: 1,000 rounds, 10 seeds.

The expected figures were computed by an independent prototype (its prices came from
``numpy.random.default_rng(seed).uniform(1, 10, 1000)``, seeds 0 to 9), so that a few per cent of
the spending column are luck. Learning constants D = sigma = B = 1, eta = 0.5, Pdim = 100.

The first three rows have nothing fitted. In the last, rho and the loss bound that the policy
decides with were chosen from a scan because they meet this row: it guards the preset against
drifting, and is no evidence that the released scripts were understood.
"""

import dataclasses

import numpy as np
import pytest
from check_size import at_size

from tidegate.policies.acdpp import acdpp
from tidegate.policies.presets import EXPERIMENTS, PRESETS, make_policy
from tidegate.simulation.rounds import simulate
from tidegate.simulation.summary import PolicySummary, summarise

pytestmark = [pytest.mark.long, pytest.mark.no_cover]  # long loops, covered elsewhere

SEEDS = at_size(4, 10)
COLUMNS = (
    "spent_per_round",
    "mean_occupancy",
    "peak_occupancy",
    "distinct_per_round",
    "effective_per_round",
    "bound_per_round",
)
TABLE = [
    ("costless_oracle", "as_printed", 0.02, (551, 100, 100, 100.0, 100.0, 1.61)),
    ("constant_admission", "as_printed", 0.02, (55.1, 99.5, 100, 10.0, 9.97, 3.84)),
    ("acdpp", "as_printed", 0.02, (55.5, 99.9, 332, 10.0, 10.0, 3.76)),
    ("acdpp", "released_settings", 0.05, (56.3, 101.7, 290, 17.0, 17.0, 3.10)),
]


def summary_of(policy: str, preset: str) -> PolicySummary:
    mnist = EXPERIMENTS["mnist"]
    problem = mnist.problem()
    made = make_policy(policy, problem, preset=preset)
    return summarise(policy, [simulate(made, problem, mnist.price, seed) for seed in range(SEEDS)])


@pytest.mark.parametrize(("policy", "preset", "within", "expected"), TABLE)
def test_rows_of_the_reference_table(
    policy: str, preset: str, within: float, expected: tuple[float, ...]
) -> None:
    row = summary_of(policy, preset).row()
    measured = [row[column] for column in COLUMNS]
    assert measured == pytest.approx(list(expected), rel=within)


def test_the_released_peak_needs_a_large_loss_bound() -> None:
    """B is not among the released settings' known constants; 1 does not explain their peak."""
    mnist = EXPERIMENTS["mnist"]
    problem = mnist.problem(num_rounds=100)
    options = dict(PRESETS["released_settings"]["acdpp"])
    options["learning"] = dataclasses.replace(options["learning"], loss_bound=1.0)
    runs = [
        simulate(acdpp(problem, **options), problem, mnist.price, seed) for seed in range(SEEDS)
    ]
    assert np.mean([run.columns["training_size"].max() for run in runs]) < 230


def test_the_released_hybrid_keeps_ten_rounds_at_the_rate_of_five() -> None:
    # Half of the clients: 10 a round for 10 rounds are 100, beside 50 stale samples.
    assert summary_of("hybrid", "released_settings").peak_occupancy.mean == 150


def test_the_released_pool_of_a_thousand_samples_is_never_used_up() -> None:
    """Clients of the released scripts meet samples again after 1,000; in 100 rounds none does."""
    mnist = EXPERIMENTS["mnist"]
    problem = mnist.problem(num_rounds=100)
    for name, preset in (("acdpp", "released_settings"), ("acdpp", "as_printed")):
        policy = make_policy(name, problem, preset=preset)
        runs = [simulate(policy, problem, mnist.price, seed) for seed in range(SEEDS)]
        assert max(int(run.final.admitted.max()) for run in runs) < 300


def test_as_printed_acdpp_is_constant_admission_with_a_threefold_peak() -> None:
    """A negative result, kept: once its interval has closed it gains next to nothing."""
    printed, constant = (
        summary_of(policy, "as_printed") for policy in ("acdpp", "constant_admission")
    )
    assert printed.effective_per_round.mean < 1.01 * constant.effective_per_round.mean
    assert printed.peak_occupancy.mean > 3 * constant.peak_occupancy.mean
