"""Real electricity prices (Elec2, New South Wales, half-hourly): a path no law was made for."""

import lzma

import numpy as np
import pytest
from check_size import at_size
from real_data import DATA, WHERE

from tidegate.policies import POLICIES
from tidegate.policies.presets import make_policy
from tidegate.prices import RecordedPrices
from tidegate.problem import Problem
from tidegate.simulation.rounds import simulate

FILE = DATA / WHERE["electricity"]
ROUNDS = at_size(600, 2000)


@pytest.fixture(scope="module")
def electricity(tmp_path_factory: pytest.TempPathFactory) -> RecordedPrices:
    plain = tmp_path_factory.mktemp("prices") / "elec.csv"
    plain.write_bytes(lzma.decompress(FILE.read_bytes()))
    return RecordedPrices.from_csv(plain, ["nswprice"])


@pytest.mark.data("electricity")
@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_keeps_its_books_on_real_prices(
    name: str, electricity: RecordedPrices
) -> None:
    assert len(electricity) == 45_312
    mean = electricity.mean(ROUNDS)
    problem = Problem(
        buffer_capacities=[8, 9, 10, 11, 12] * 2,
        budget=10 * float(np.mean(mean)),
        mean_price=mean,
        num_rounds=ROUNDS,
    )
    run = simulate(make_policy(name, problem), problem, electricity, seed=0)
    assert run.certificate_holds
    assert np.all(np.isfinite(run.columns["bound"]))
    # Prices come in spells, and still the budget holds for all but the oracle.
    spent = float(run.columns["spent"].mean())
    assert (spent > 2 * problem.budget) == (name == "costless_oracle")
