"""The laws that every policy obeys; a policy added to ``POLICIES`` is tested here unasked."""

import dataclasses
import functools
import io
import itertools
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate.policies
from tidegate._internal import saving
from tidegate._internal.arrays import IntArray
from tidegate.admission.rule import Quote, RoundTotals
from tidegate.admission.state import ServerState
from tidegate.cohorts import Cohorts
from tidegate.policies import POLICIES, ControlOptions
from tidegate.policies.presets import PRESETS, make_policy
from tidegate.prices import MarkovPrice, PriceLaw, RecordedPrices, UniformPrice
from tidegate.problem import Problem
from tidegate.retention.buffers import RetentionRule
from tidegate.retention.k_step import KStepRetention
from tidegate.retention.oldest_first import OldestFirst
from tidegate.retention.partly_frozen import PartlyFrozenRetention
from tidegate.simulation.rounds import RoundRow, SimulationState, begin, play_round, simulate

pytestmark = pytest.mark.no_cover  # long loops, covered elsewhere

PRICE_LAWS: list[PriceLaw] = [
    UniformPrice(1.0, 10.0),
    MarkovPrice(1.0, 9.0, 0.95, 0.9),
    RecordedPrices([0.0, 40.0, 3.0, 0.5] * 60),  # free samples, and shocks
]
ROUNDS = 120


def problems() -> Iterator[tuple[Problem, PriceLaw]]:
    for law in PRICE_LAWS:
        for capacities, budget in (([8, 9, 10, 11, 12], 20.0), ([3, 1, 2], 0.7), ([40, 7], 400.0)):
            problem = Problem(
                buffer_capacities=capacities,
                budget=budget,
                mean_price=law.mean(ROUNDS),
                num_rounds=ROUNDS,
            )
            yield problem, law


COHORTS = [Cohorts(), Cohorts(share=0.5), Cohorts(share=0.6, least_available=0.3, leaving=0.002)]
"""Everyone; half of the fleet, drawn anew in each round; some away, and some for good."""


def steps(
    name: str,
    problem: Problem,
    law: PriceLaw,
    options: ControlOptions,
    cohorts: Cohorts = COHORTS[0],
) -> Iterator[tuple[IntArray, SimulationState[Any], RoundRow]]:
    """(who took part, state after, row) of every round."""
    problem = dataclasses.replace(problem, cohorts=cohorts)
    policy = POLICIES[name](problem, options)
    state = begin(policy, problem)
    prices = law.rounds(np.random.default_rng(3))
    members = cohorts.rounds(np.random.default_rng(4), problem.num_clients)
    for price, who, _ in zip(prices, members, range(ROUNDS), strict=False):
        state, row = play_round(policy, problem, state, price, who)
        yield np.arange(problem.num_clients)[who], state, row


def admits_whole_samples_within_one_of_the_target(name: str) -> None:
    for problem, law in problems():
        policy = POLICIES[name](problem, ControlOptions())
        if isinstance(policy.retention, OldestFirst):
            continue  # orders are rules there, which every client applies to its own buffer
        target, total = np.zeros(problem.num_clients), 0.0
        for _, after, row in steps(name, problem, law, ControlOptions()):
            total += row.ordered
            target = policy.shares * total
            assert np.issubdtype(after.allocation.ordered.dtype, np.integer)
            assert np.abs(after.allocation.ordered - target).max() <= 1
            assert abs(int(after.allocation.ordered.sum()) - total) <= 1


def overspend_never_exceeds_the_debt(name: str) -> None:
    for problem, law in problems():
        for per_client in (False, True):
            if per_client and isinstance(law, RecordedPrices):
                continue
            for seed, cohorts in enumerate(COHORTS):
                reached = dataclasses.replace(problem, cohorts=cohorts)
                policy = POLICIES[name](reached, ControlOptions())
                run = simulate(policy, reached, law, seed, price_per_client=per_client)
                overspend = np.cumsum(run.columns["spent"] - problem.budget)
                assert np.all(overspend <= run.columns["cost_debt"] + 1e-6)
                assert run.certificate_holds


def same_seed_same_run(name: str) -> None:
    for problem, law in problems():
        first, second = (
            simulate(POLICIES[name](problem, ControlOptions()), problem, law, 11) for _ in range(2)
        )
        for column, values in first.columns.items():
            assert values.tobytes() == second.columns[column].tobytes(), column


def goes_on_from_a_saved_state_as_if_never_interrupted(name: str) -> None:
    choices = (
        ControlOptions(),
        ControlOptions(hard_capacity=True),
        ControlOptions(strict_spending=True),
        ControlOptions(endless=True),
    )
    ways = itertools.cycle(itertools.product(choices, COHORTS))
    for (one, law), (options, cohorts) in zip(problems(), ways, strict=False):
        problem = dataclasses.replace(one, cohorts=cohorts)
        policy = POLICIES[name](problem, options)
        play = functools.partial(simulate, policy, problem, law, 5)
        whole = play()
        half = play(until=ROUNDS // 3)
        file = io.BytesIO()
        saving.write(half.final, file)
        file.seek(0)
        resumed = saving.read(begin(policy, problem), file)
        rest = play(resume=resumed)
        for column, values in whole.columns.items():
            joined = np.concatenate([half.columns[column], rest.columns[column]])
            assert values.tobytes() == joined.tobytes(), column
        assert whole.excess.tolist() == rest.excess.tolist()


def hard_capacity_is_never_exceeded(name: str) -> None:
    hard = ControlOptions(hard_capacity=True)
    for (problem, law), cohorts in itertools.product(problems(), COHORTS):
        for who, after, row in steps(name, problem, law, hard, cohorts):
            assert np.all(after.buffers.occupancy <= problem.capacities)
            assert row.overflow == 0
            assert row.training_size <= problem.capacities[who].sum()


def strict_spending_never_exceeds_what_was_allowed_so_far(name: str) -> None:
    for problem, law in problems():
        for per_client in (False, True):
            if per_client and isinstance(law, RecordedPrices):
                continue
            reached = dataclasses.replace(problem, cohorts=COHORTS[per_client])
            policy = POLICIES[name](reached, ControlOptions(strict_spending=True))
            run = simulate(policy, reached, law, 4, price_per_client=per_client)
            spent = [math.fsum(run.columns["spent"][:now]) for now in range(1, ROUNDS + 1)]
            assert all(total <= problem.budget * now for now, total in enumerate(spent, start=1))
            assert spent[-1] > 0


def is_frozen(retention: RetentionRule, client: int, problem: Problem) -> bool:
    frozen = retention.frozen_clients if isinstance(retention, PartlyFrozenRetention) else 0
    return client >= problem.num_clients - frozen


def prefilled(retention: RetentionRule, client: int, problem: Problem) -> list[int]:
    """Use counts of what a client holds before round 1."""
    return [0] * int(problem.capacities[client]) if is_frozen(retention, client, problem) else []


def leaving(
    retention: RetentionRule, client: int, stored: list[int], new: int, problem: Problem
) -> int:
    """How many of the oldest samples go, by use counts: one line for each rule there is."""
    if is_frozen(retention, client, problem):
        return 0
    rule = retention.active if isinstance(retention, PartlyFrozenRetention) else retention
    if isinstance(rule, KStepRetention):
        return stored.count(rule.retention_horizon)
    if isinstance(rule, OldestFirst):
        return max(len(stored) + new - int(problem.capacities[client]), 0)
    raise NotImplementedError(f"say here when {type(rule).__name__} lets a sample go")


def the_tally_equals_samples_counted_one_by_one(name: str) -> None:
    """Each sample's rounds of training, counted; only a client that takes part trains."""
    for (one, law), cohorts in zip(problems(), COHORTS, strict=False):
        problem = dataclasses.replace(one, cohorts=cohorts)
        retention = POLICIES[name](problem, ControlOptions()).retention
        clients = range(problem.num_clients)
        stored = [prefilled(retention, client, problem) for client in clients]
        expired: list[int] = []
        before = np.zeros(problem.num_clients, dtype=np.int64)
        for who, after, row in steps(name, problem, law, ControlOptions(), cohorts):
            total = after.admitted
            for client in who.tolist():
                new = int(total[client] - before[client])
                gone = leaving(retention, client, stored[client], new, problem)
                expired += stored[client][:gone]
                stored[client] = [use + 1 for use in stored[client][gone:] + [0] * new]
            assert set(np.flatnonzero(total - before).tolist()) <= set(who.tolist())
            before = total
            check_tally(row, stored, expired, who)


def check_tally(row: RoundRow, stored: list[list[int]], expired: list[int], who: IntArray) -> None:
    uses = [use for use in itertools.chain(expired, *stored) if use]
    squares = sum(use * use for use in uses)
    assert row.clients == len(who)
    assert row.training_size == sum(len(stored[client]) for client in who)
    assert row.distinct_samples == len(uses)
    if squares:
        assert row.effective_samples == pytest.approx(sum(uses) ** 2 / squares)


def saved(state: object) -> bytes:
    file = io.BytesIO()
    saving.write(state, file)
    return file.getvalue()


def deciding_changes_nothing(name: str) -> None:
    problem, _ = next(problems())
    rule = POLICIES[name](problem, ControlOptions()).admission
    start = rule.start()
    state = rule.learn(start, Quote(4.0))
    kept = saved(start), saved(state)
    orders = {rule.decide(state, Quote(4.0), 30.0) for _ in range(3)}
    assert len(orders) == 1
    assert (saved(start), saved(state)) == kept


def settling_follows_receipts_not_orders(name: str) -> None:
    problem, _ = next(problems())
    rule = POLICIES[name](problem, ControlOptions()).admission
    state = rule.learn(rule.start(), Quote(4.0))
    rule.decide(state, Quote(4.0), math.inf)
    nothing = RoundTotals(admitted=0, spent=0.0, training_size=0, expiring=0, prior_uses=0)
    assert rule.settle(state, nothing).cost_debt == 0.0
    dear = dataclasses.replace(nothing, spent=problem.budget + 7.0)
    assert rule.settle(state, dear).cost_debt == pytest.approx(7.0)
    # A report that is late, or does not add up, is survived: the next order can be given.
    odd = dataclasses.replace(nothing, admitted=0, training_size=10, expiring=1)
    state = rule.learn(rule.settle(state, odd), Quote(4.0))
    order = rule.decide(state, Quote(4.0), math.inf)
    assert order.thresholds or 0 <= order.total_admission < math.inf


def what_came_back_decides_the_next_order(name: str) -> None:
    """Where a state counts samples, it counts those that were reported."""
    problem, _ = next(problems())
    rule = POLICIES[name](problem, ControlOptions()).admission
    some = RoundTotals(admitted=90, spent=0.0, training_size=60, expiring=20, prior_uses=9)
    state = rule.settle(rule.start(), some)
    if isinstance(state, ServerState):
        assert (state.distinct_samples, state.carried_samples) == (90, 40)


def a_limit_is_kept(name: str) -> None:
    problem, _ = next(problems())
    rule = POLICIES[name](problem, ControlOptions()).admission
    state = rule.learn(rule.start(), Quote(4.0))
    for limit in (0.0, 0.25, 3.0):
        order = rule.decide(state, Quote(4.0), limit)
        assert order.thresholds or 0 <= order.total_admission <= limit


def the_total_needs_only_sums(name: str) -> None:
    """The same total capacity, otherwise split, gives the same totals."""
    law = PRICE_LAWS[0]
    rows = []
    for capacities in ([8, 12, 8, 12], [10, 10, 11, 9]):
        problem = Problem(
            buffer_capacities=capacities, budget=20.0, mean_price=5.5, num_rounds=ROUNDS
        )
        ordered = simulate(POLICIES[name](problem, ControlOptions()), problem, law, 2)
        rows.append(ordered.columns["ordered"])
    assert np.array_equal(rows[0], rows[1])


LAWS: list[Callable[[str], None]] = [
    admits_whole_samples_within_one_of_the_target,
    overspend_never_exceeds_the_debt,
    same_seed_same_run,
    goes_on_from_a_saved_state_as_if_never_interrupted,
    hard_capacity_is_never_exceeded,
    strict_spending_never_exceeds_what_was_allowed_so_far,
    the_tally_equals_samples_counted_one_by_one,
    deciding_changes_nothing,
    settling_follows_receipts_not_orders,
    what_came_back_decides_the_next_order,
    a_limit_is_kept,
    the_total_needs_only_sums,
]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("name", POLICIES)
def test_law(name: str, law: Callable[[str], None]) -> None:
    law(name)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=25, deadline=None)
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
    files = {path.stem for path in folder.glob("*.py")} - {"__init__", "joint", "options"}
    assert files == set(POLICIES)
    assert all(maker.__name__ == name for name, maker in POLICIES.items())
