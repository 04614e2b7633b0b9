"""Simulate the control plane: counts of samples, prices and money; no learning, no network.

One round, read downwards: the price is revealed, the rule decides a total, the allocation splits
it, the buffers expire and admit, the fleet's sums come back, and the rule settles.

A round may reach only a cohort. Then n(t) is what the cohort trains on, and all other clients'
samples stay as they are: they neither age nor expire.

Samples may arrive rounds after they were bought (``Problem.delays``). Money counts in the round
that buys them, and the rule decides on the planned buffers, in which a purchase counts from then on
(``tidegate.buffer``); training sees what has arrived.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Generic

import numpy as np

from tidegate._internal.arguments import shown
from tidegate._internal.arrays import EVERYONE, FloatArray, IntArray, Members
from tidegate._internal.randomness import COHORTS, generator
from tidegate.admission.allocation import Allocation
from tidegate.admission.arrivals import Arrivals
from tidegate.admission.debt import certificate_holds
from tidegate.admission.rule import RoundTotals, State
from tidegate.errors import ConfigurationError
from tidegate.policies import JointPolicy
from tidegate.policies.decision import cash, decide
from tidegate.prices import Price, Prices, as_price, check_length, law_of
from tidegate.problem import Problem
from tidegate.retention.buffers import Buffers, RetentionRule
from tidegate.retention.k_step import KStepRetention
from tidegate.retention.oldest_first import OldestFirst
from tidegate.retention.partly_frozen import PartlyFrozenRetention
from tidegate.simulation.deliveries import Deliveries
from tidegate.simulation.orders import SimulatedStock, quote_for, with_prices_ahead
from tidegate.simulation.training import Training
from tidegate.theory.bounds import SampleSizes, bound_terms
from tidegate.theory.reuse import ReuseTally


@dataclass(frozen=True, eq=False)
class SimulationState(Generic[State]):
    """Everything that the next round depends on.

    The next round changes the buffers and the sums over clients in place: continue from ``copy()``
    if you need a state again.
    """

    round_number: int
    """Rounds played so far."""
    server: State
    allocation: Allocation
    planned: Buffers
    """What is stored or under way, and will be."""
    stored: Buffers
    """What has arrived; the planned buffers themselves where samples arrive at once."""
    deliveries: Deliveries
    arrivals: Arrivals
    """What a server would know of them."""
    training: Training
    tally: ReuseTally
    bought: IntArray
    """Samples that each client has bought so far."""
    paid: FloatArray
    """What each client has paid so far."""
    occupancy_sums: IntArray
    """Σ_t n_m(t) over the rounds that a client took part in, for each client."""
    overspend: float
    """Σ_t (C_t - C) so far."""

    @property
    def admitted(self) -> IntArray:
        """Samples that each client has admitted so far, without those before its first round."""
        return self.bought - (self.deliveries.under_way if self.deliveries.longest else 0)

    def copy(self) -> "SimulationState[State]":
        """Return an independent copy."""
        planned = self.planned.copy()
        return dataclasses.replace(
            self,
            planned=planned,
            stored=self.stored.copy() if self.deliveries.longest else planned,
            deliveries=self.deliveries.copy(),
            bought=self.bought.copy(),
            paid=self.paid.copy(),
            occupancy_sums=self.occupancy_sums.copy(),
        )


@dataclass(frozen=True)
class RoundRow:
    """The figures of one round."""

    round_number: int
    clients: int
    """That took part."""
    price: float
    """Averaged over clients by their shares, if each has its own."""
    ordered: float
    """Λ(t), real-valued; if the order was a rule, the samples bought under it."""
    admitted: int
    """Samples that trained for the first time."""
    spent: float
    overspend: float
    """Σ (C_τ - C) up to this round."""
    cost_debt: float
    """Z(t+1), after the round: never below the overspend."""
    training_size: int
    """n(t), all clients that took part together."""
    overflow: int
    """Samples stored above the capacity of their client."""
    distinct_samples: int
    """N(t)."""
    effective_samples: float
    """N_eff(t)."""
    under_way: int
    """Samples of the whole fleet that were bought and do not train yet."""


ROW = tuple(entry.name for entry in dataclasses.fields(RoundRow))


@dataclass(frozen=True, eq=False)
class Run:
    """One policy on one price path; ``columns`` holds one entry a round."""

    problem: Problem
    seed: int
    columns: dict[str, FloatArray]
    """The fields of ``RoundRow``, and ``bound``."""
    final: SimulationState[Any]

    @property
    def sizes(self) -> SampleSizes:
        """The sample sizes of the run for Theorem 1."""
        return SampleSizes(
            self.columns["training_size"],
            self.columns["distinct_samples"],
            self.columns["effective_samples"],
        )

    @property
    def spent_in_vain(self) -> float:
        """Money for what was under way after the last round: the last to be bought."""
        late = self.final.arrivals.waiting
        return sum(count * float(self.columns["price"][number - 1]) for number, count in late)

    @property
    def excess(self) -> IntArray:
        """Σ_t (n_m(t) - B_m) over the rounds that each client took part in."""
        state = self.final
        return state.occupancy_sums - self.problem.capacities * state.planned.clocks

    @property
    def certificate_holds(self) -> bool:
        """Whether total overspend up to t was at most Z(t+1), at every t."""
        told = self.columns
        return certificate_holds(told["overspend"], told["cost_debt"], told["spent"])


def begin(policy: JointPolicy[State], problem: Problem, seed: int = 0) -> SimulationState[State]:
    """Return the state before round 1; the seed is for delays, if they are drawn."""
    capacities, rounds = problem.capacities, problem.num_rounds
    earlier = problem.earlier
    planned = policy.retention.buffers(capacities, rounds, earlier)
    stored = planned
    if not problem.delays.none:
        stored = _stored_retention(policy).buffers(capacities, rounds, earlier)
    return SimulationState(
        round_number=0,
        server=policy.admission.start(),
        allocation=Allocation.start(policy.shares),
        planned=planned,
        stored=stored,
        deliveries=Deliveries.start(problem, seed),
        arrivals=Arrivals(),
        training=Training.start(problem, seed, stored.occupancy),
        tally=ReuseTally.of(earlier),
        bought=np.zeros(problem.num_clients, dtype=np.int64),
        paid=np.zeros(problem.num_clients),
        occupancy_sums=np.zeros(problem.num_clients, dtype=np.int64),
        overspend=0.0,
    )


def _stored_retention(policy: JointPolicy[Any]) -> RetentionRule:
    """Return how long samples stay that arrive late: within a hard capacity they replace others."""
    rule = policy.retention
    if not policy.hard_capacity:
        return rule
    if isinstance(rule, PartlyFrozenRetention):
        return dataclasses.replace(rule, active=_within_capacity(rule.active))
    return _within_capacity(rule)


def _within_capacity(rule: RetentionRule) -> RetentionRule:
    return OldestFirst(rule.retention_horizon) if isinstance(rule, KStepRetention) else rule


def play_round(
    policy: JointPolicy[State],
    problem: Problem,
    state: SimulationState[State],
    price: Price,
    who: Members = EVERYONE,
    ahead: tuple[float, ...] = (),
) -> tuple[SimulationState[State], RoundRow]:
    """Play one round at this price; the given state can no longer be used.

    Args:
        policy: decides.
        problem: the problem.
        state: the state before the round.
        price: one for all, or one for each client of the fleet.
        who: the clients that take part, rising.
        ahead: the known prices of the next rounds.
    """
    capacities, price = problem.capacities[who], as_price(price)
    quote = quote_for(price, policy.shares, who, state.planned)
    quote = dataclasses.replace(quote, ahead=ahead, delay=state.arrivals.delay)
    if not isinstance(price, float):
        price = price[who]
    now, budget = state.round_number + 1, policy.admission.budget
    ahead_of_budget = policy.spend_ahead
    money = math.inf
    if ahead_of_budget is not None:
        money = cash(budget, now, state.overspend, ahead_of_budget * budget)
    server = policy.admission.learn(state.server, quote)
    stock = SimulatedStock(state.planned, state.paid, who)
    decision = decide(
        policy,
        server,
        quote,
        stock=stock,
        allocation=state.allocation,
        round_number=now,
        who=who,
        cash=money,
        paused=policy.buys_in_vain(now, quote, problem.num_rounds),
    )
    bought = stock.buys(decision, price)
    state.paid[who] += price * bought
    state.bought[who] += bought

    most = capacities if policy.hard_capacity else None
    arrived = state.deliveries.step(now, who, bought, most)
    planned = state.planned.step(who, bought)
    stored = state.stored.step(who, arrived) if state.deliveries.longest else planned
    training, trained, prior_uses = state.training.after_round(now, problem, who, stored)
    state.occupancy_sums[who] += stored.occupancy
    paid_for = bought + (stored.fresh - arrived) * policy.charge_prefill
    totals = RoundTotals(
        admitted=int(stored.fresh.sum()),
        spent=float(np.sum(price * paid_for)),
        training_size=int(trained.sum()),
        prior_uses=prior_uses,
        carried=int(planned.occupancy.sum()) - int(planned.expiring.sum()),
        slots=int(capacities.sum()),
        bought=int(bought.sum()),
    )
    under_way = int(state.deliveries.under_way.sum())
    server = policy.admission.settle(server, totals)
    tally = state.tally.after_round(
        admitted=totals.admitted,
        training_size=totals.training_size,
        prior_uses=totals.prior_uses,
    )
    row = RoundRow(
        round_number=now,
        clients=len(capacities),
        price=quote.price,
        ordered=float(bought.sum()) if decision.thresholds else decision.total,
        admitted=totals.admitted,
        spent=totals.spent,
        overspend=state.overspend + totals.spent - budget,
        cost_debt=server.cost_debt,
        training_size=totals.training_size,
        overflow=int(np.maximum(stored.occupancy - capacities, 0).sum()),
        distinct_samples=tally.distinct_samples,
        effective_samples=tally.effective_sample_size,
        under_way=under_way,
    )
    after = dataclasses.replace(
        state,
        round_number=row.round_number,
        server=server,
        allocation=decision.allocation,
        training=training,
        arrivals=state.arrivals.after_round(now, totals.bought, under_way),
        tally=tally,
        overspend=row.overspend,
    )
    return after, row


def simulate(
    policy: JointPolicy[State],
    problem: Problem,
    prices: Prices,
    seed: int,
    *,
    price_per_client: bool = False,
    resume: SimulationState[State] | None = None,
    until: int | None = None,
    each_round: Callable[[], None] | None = None,
) -> Run:
    """Play the rounds of a problem on the price path of a seed.

    Args:
        policy: decides.
        problem: the problem, with the number of rounds.
        prices: a number, a text such as ``"uniform:1,10"``, a price law, or a feed, whose prices
            are the same for all seeds.
        seed: for prices drawn from a law, cohorts and delays; use the same for policies that you
            compare.
        price_per_client: draw one price for each client instead of one for all.
        resume: continue from this state, with its own price path.
        until: stop after this round; the last one by default.
        each_round: called after every round, for a progress bar.
    """
    if not isinstance(policy, JointPolicy):
        raise ConfigurationError(
            f"policy must be a JointPolicy, got {shown(policy)}; tidegate.make_policy('tide', "
            "problem) returns one"
        )
    state = begin(policy, problem, seed) if resume is None else resume.copy()
    last = problem.num_rounds if until is None else until
    if not state.round_number < last <= problem.num_rounds:
        raise ConfigurationError(
            f"there is no round to simulate: {state.round_number} of {problem.num_rounds} are "
            f"done, and the run is to stop after round {last}"
        )
    law = law_of(prices)
    check_length(law, last)
    size = problem.num_clients if price_per_client else None
    path = with_prices_ahead(law, seed, size, problem.known_ahead, problem.num_rounds)
    members = problem.cohorts.rounds(generator(seed, COHORTS), problem.num_clients)
    rows, rounds = [], zip(path, members, strict=False)
    for (price, ahead), who in itertools.islice(rounds, state.round_number, last):
        state, row = play_round(policy, problem, state, price, who, ahead)
        rows.append(attrgetter(*ROW)(row))
        if each_round is not None:
            each_round()
    return _run(problem, seed, rows, state)


def _run(
    problem: Problem, seed: int, rows: list[tuple[Any, ...]], state: SimulationState[Any]
) -> Run:
    columns = dict(zip(ROW, np.array(rows, dtype=np.float64).T, strict=True))
    run = Run(problem=problem, seed=seed, columns=columns, final=state)
    columns["bound"] = bound_terms(run.sizes, problem.learning).total
    return run
