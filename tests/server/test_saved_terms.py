"""Terms that an earlier version saved are those of a run today."""

import json
from functools import partial
from typing import Any

import pytest

from tidegate.errors import RunDiffersError
from tidegate.policies import PolicyMaker, identity
from tidegate.policies.acdpp import acdpp
from tidegate.policies.drift_plus_penalty import drift_plus_penalty
from tidegate.policies.tide import tide
from tidegate.prices import price_feed
from tidegate.server.controller import Controller
from tidegate.server.fleet import Terms
from tidegate.server.saved_terms import current_terms

OPTIONS = {"retention_horizon": None, "hard_capacity": True, "endless": False}
OLD_OPTIONS = {"penalty_exponent": 0.5, "contraction_exponent": 0.5, "strict_spending": False}


def terms(maker: PolicyMaker, spend_ahead: float | None = 0.0) -> Terms:
    return Terms(
        policy=maker,
        policy_name=identity(maker),
        options=OPTIONS,
        spend_ahead=spend_ahead,
        budget=10.0,
        prices=price_feed("uniform:1,10"),
        num_rounds=20,
        fraction_train=0.5,
        min_train_nodes=2,
    )


def of_version_0_1_0(on: Terms, **options: Any) -> dict[str, Any]:
    """A record as that version saved it: other words, and constants among the options."""
    record: dict[str, Any] = json.loads(json.dumps(Controller(on, "r").to_record()))
    told = record["terms"]
    told["policy"] = told["policy"].partition("(")[0]
    told["options"] = {**OLD_OPTIONS, **told["options"], **options}
    told["taking_part"] = told.pop("fraction_train")
    told["least_taking_part"] = told.pop("min_train_nodes")
    del told["spend_ahead"]
    return record


@pytest.mark.parametrize(
    ("maker", "old"),
    [
        (acdpp, {}),
        (partial(acdpp, penalty_exponent=0.3), {"penalty_exponent": 0.3}),
        (
            partial(acdpp, penalty_exponent=0.3, contraction_exponent=0.7),
            {"penalty_exponent": 0.3, "contraction_exponent": 0.7},
        ),
        (
            partial(drift_plus_penalty, penalty_exponent=0.3),
            {"penalty_exponent": 0.3, "contraction_exponent": 0.7},
        ),
        (tide, {"penalty_exponent": 0.3, "contraction_exponent": 0.7}),
    ],
)
def test_a_constant_among_the_options_is_an_argument_of_its_policy(
    maker: PolicyMaker, old: dict[str, float]
) -> None:
    on = terms(maker)
    resumed = Controller.from_record(on, of_version_0_1_0(on, **old))
    assert resumed.to_record()["terms"] == {
        **on.fixed(),
        "spend_ahead": None,
        "keeps_spend_ahead": True,
    }


def test_another_constant_is_refused() -> None:
    record = of_version_0_1_0(terms(acdpp), penalty_exponent=0.3)
    told = r"policy = acdpp\(penalty_exponent=0\.3\), this run has acdpp;"
    with pytest.raises(RunDiffersError, match=told):
        Controller.from_record(terms(acdpp), record)


def test_strict_spending_stays_strict() -> None:
    on = terms(acdpp, spend_ahead=None)
    resumed = Controller.from_record(on, of_version_0_1_0(on, strict_spending=True))
    again = json.loads(json.dumps({**resumed.to_record(), "state": None}))
    assert again["terms"]["spend_ahead"] == 0.0
    assert Controller.from_record(on, again).to_record()["terms"] == again["terms"]


def test_another_part_of_the_fleet_is_told_in_words_of_today() -> None:
    record = of_version_0_1_0(terms(acdpp))
    record["terms"]["taking_part"] = 0.25
    with pytest.raises(RunDiffersError, match=r"fraction_train = 0\.25, this run has 0\.5"):
        Controller.from_record(terms(acdpp), record)


def test_terms_of_today_stay_as_they_are() -> None:
    fixed = terms(partial(acdpp, penalty_exponent=0.3)).fixed()
    assert current_terms(fixed) == fixed
