"""The laws of policies: ours obey them, and each law notices a policy that does not."""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from check_size import at_size
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate.policies
from tidegate.admission.debt import next_cost_debt
from tidegate.admission.rule import FleetOrder, Quote, RoundTotals, ServerState
from tidegate.errors import ConfigurationError
from tidegate.policies import POLICIES, ControlOptions, JointPolicy
from tidegate.policies.presets import PRESETS, make_policy
from tidegate.prices import RecordedPrices
from tidegate.problem import Problem
from tidegate.retention.k_step import KStepRetention
from tidegate.simulation.rounds import simulate
from tidegate.testing import POLICY_LAWS, LawBrokenError, check_policy

pytestmark = pytest.mark.no_cover  # long loops, covered elsewhere


@pytest.mark.parametrize("law", POLICY_LAWS)
@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_obeys(name: str, law: str) -> None:
    check_policy(POLICIES[name], laws=[law], rounds=at_size(30, 120, quick=24))


def test_sums_in_floating_point_are_not_taken_for_overspending() -> None:
    """90 rounds' budget of 0.7 is 62.99999999999999, and pays for 63 samples at 1."""
    law = "spend_ahead_of_0_never_exceeds_what_was_allowed_so_far"
    check_policy(POLICIES["costless_oracle"], laws=[law], rounds=90)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=at_size(8, 25), deadline=None)
@given(
    prices=st.lists(st.integers(0, 10**7).map(lambda n: n / 1000), min_size=1).filter(any),
    capacities=st.lists(st.integers(1, 40), min_size=2, max_size=5),
    budget=st.floats(0.1, 1e4),
)
def test_the_certificate_holds_on_every_generated_price_trace(
    name: str, preset: str, prices: list[float], capacities: list[int], budget: float
) -> None:
    law = RecordedPrices(prices)
    problem = Problem(
        buffer_capacities=capacities,
        budget=budget,
        mean_price=law.mean(len(prices)),
        num_rounds=len(prices),
    )
    run = simulate(make_policy(name, problem, preset=preset), problem, law, 0)
    assert run.certificate_holds
    exact = [math.fsum(run.columns["spent"][:now] - budget) for now in range(1, len(prices) + 1)]
    slack = 1e-9 * (1 + float(run.columns["spent"].sum()))
    assert np.all(np.array(exact) <= run.columns["cost_debt"] + slack)


def test_no_policy_is_left_out() -> None:
    """Every policy file is registered under its own name."""
    folder = Path(tidegate.policies.__file__).parent
    others = {"__init__", "decision", "joint", "options", "presets"}
    assert {path.stem for path in folder.glob("*.py")} - others == set(POLICIES)
    assert all(maker.__name__ == name for name, maker in POLICIES.items())


@dataclass(frozen=True)
class Memory:
    """A state that can be saved."""

    cost_debt: float = 0.0
    spent: float = 0.0


@dataclass(frozen=True)
class Honest:
    """A constant total, as far as there is room; the ways to break it are its subclasses."""

    budget: float
    total: float

    def start(self) -> Any:
        return Memory()

    def learn(self, state: Any, quote: Quote) -> Any:
        return state

    def decide(self, state: Any, quote: Quote, limit: float) -> FleetOrder:
        return FleetOrder(min(self.total, limit))

    def settle(self, state: Any, totals: RoundTotals) -> Any:
        return Memory(
            next_cost_debt(state.cost_debt, totals.spent, self.budget), state.spent + totals.spent
        )


class IgnoresRoom(Honest):
    def decide(self, state: Any, quote: Quote, limit: float) -> FleetOrder:
        return FleetOrder(self.total)


class ForgetsDebt(Honest):
    def settle(self, state: Any, totals: RoundTotals) -> Any:
        return Memory(0.0)


class CountsOrdersAsSpent(Honest):
    def settle(self, state: Any, totals: RoundTotals) -> Any:
        return Memory(next_cost_debt(state.cost_debt, totals.spent + 1.0, self.budget))


class Throws(Honest):
    def decide(self, state: Any, quote: Quote, limit: float) -> FleetOrder:
        return FleetOrder(min(self.total / quote.price, limit))  # samples may be free


class Gambles(Honest):
    def decide(self, state: Any, quote: Quote, limit: float) -> FleetOrder:
        return FleetOrder(min(self.total * float(np.random.rand()), limit))  # noqa: NPY002


class KeepsStateElsewhere(Honest):
    def learn(self, state: Any, quote: Quote) -> Any:
        seen.append(quote.price)
        return state

    def decide(self, state: Any, quote: Quote, limit: float) -> FleetOrder:
        return FleetOrder(min(float(len(seen) % 3), limit))


seen: list[float] = []


class CountsWrongly(Honest):
    def start(self) -> Any:
        return ServerState()

    def settle(self, state: Any, totals: RoundTotals) -> Any:
        debt = next_cost_debt(state.cost_debt, totals.spent, self.budget)
        return dataclasses.replace(state, cost_debt=debt)


def policy_of(rule: type[Honest], **changes: Any) -> Callable[..., JointPolicy[Any]]:
    """A maker around a rule."""

    def make(problem: Problem, options: ControlOptions | None = None) -> JointPolicy[Any]:
        chosen = ControlOptions() if options is None else options
        values: dict[str, Any] = {
            "admission": rule(problem.budget, 4.0),
            "retention": KStepRetention(3),
            "shares": problem.capacities / problem.total_capacity,
            "hard_capacity": chosen.hard_capacity,
            "spend_ahead": chosen.spend_ahead,
        }
        return JointPolicy(**(values | changes))

    return make


def test_a_policy_from_outside_that_obeys_passes() -> None:
    check_policy(policy_of(Honest), rounds=40)


@pytest.mark.parametrize(
    ("make", "law", "found", "given"),
    [
        (policy_of(IgnoresRoom), "a_limit_is_kept", "with room for 0 samples it orders", "budget"),
        (policy_of(ForgetsDebt), "overspend_never_exceeds_the_debt", "above the cost debt", "seed"),
        (policy_of(CountsOrdersAsSpent), "settling_follows_receipts_not_orders", "debt", "prices"),
        (policy_of(Throws), "same_seed_same_run", "it raised ZeroDivisionError", "free samples"),
        (policy_of(Gambles), "same_seed_same_run", "two runs on one seed differ", "capacities"),
        (
            policy_of(Gambles),
            "deciding_changes_nothing",
            "it returned 3 different orders",
            "capacities 8, 9",
        ),
        (
            policy_of(KeepsStateElsewhere),
            "goes_on_from_a_saved_state_as_if_never_interrupted",
            "it continued with other",
            "capacities",
        ),
        (policy_of(CountsWrongly), "what_came_back_decides_the_next_order", "it counts", "budget"),
        (
            policy_of(Honest, hard_capacity=False),
            "hard_capacity_is_never_exceeded",
            "a client stored",
            "hard_capacity=True",
        ),
        (
            policy_of(Honest, spend_ahead=None),
            "spend_ahead_of_0_never_exceeds_what_was_allowed_so_far",
            "it has spent",
            "spend_ahead=0.0",
        ),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_a_broken_policy_is_caught_by_law_and_input(
    make: Callable[..., JointPolicy[Any]], law: str, found: str, given: str
) -> None:
    with pytest.raises(LawBrokenError) as broken:
        check_policy(make, laws=[law], rounds=40)
    assert broken.value.law == law
    assert found in broken.value.found
    assert given in broken.value.given
    assert str(broken.value).startswith(f"{law} is broken: ")
    with pytest.raises(LawBrokenError):
        check_policy(make, rounds=40)


def test_a_wrong_count_of_samples_is_caught() -> None:
    def keeps_all(client: int, uses: list[int], new: int, capacity: int) -> int:
        return 0

    law = "sums_equal_samples_counted_one_by_one"
    with pytest.raises(LawBrokenError, match=r"n is \d+, but \d+ are stored"):
        check_policy(policy_of(Honest), laws=[law], leaving=keeps_all, rounds=40)


def test_a_retention_rule_of_ones_own_must_say_when_samples_go() -> None:
    class Mine(KStepRetention):
        pass

    @dataclass(frozen=True)
    class Other:
        inner: KStepRetention

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

    law = "sums_equal_samples_counted_one_by_one"
    check_policy(policy_of(Honest, retention=Mine(3)), laws=[law], rounds=20)
    make = policy_of(Honest, retention=Other(KStepRetention(3)))
    with pytest.raises(ConfigurationError, match="does not know when Other lets a sample go"):
        check_policy(make, laws=[law], rounds=20)

    def after_three(client: int, uses: list[int], new: int, capacity: int) -> int:
        return uses.count(3)

    check_policy(make, laws=[law], leaving=after_three, rounds=20)


def test_one_law_may_be_given_as_a_text() -> None:
    check_policy(policy_of(Honest), laws="a_limit_is_kept")
