"""The control plane alone: counts of samples, prices and money; no learning, no network.

One round, read downwards: the price is revealed, the rule decides a total, the allocation splits
it, the buffers expire and admit, the fleet's sums come back, and the rule settles.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic

import numpy as np

from tidegate.admission.allocation import Allocation
from tidegate.admission.debt import cash
from tidegate.admission.rule import FleetOrder, Quote, RoundTotals, State
from tidegate.arrays import CountArray, FloatArray, IntArray
from tidegate.policies import JointPolicy
from tidegate.prices import Price, PriceLaw
from tidegate.problem import Problem
from tidegate.randomness import PRICES, generator
from tidegate.retention.buffers import Buffers
from tidegate.retention.oldest_first import OldestFirstBuffers
from tidegate.theory.bounds import SampleSizes, bound_terms
from tidegate.theory.reuse import ReuseTally


@dataclass(frozen=True, eq=False)
class SimulationState(Generic[State]):
    """Everything that the next round depends on."""

    round_number: int
    """Rounds played so far."""
    server: State
    allocation: Allocation
    buffers: Buffers
    tally: ReuseTally
    occupancy_sums: IntArray
    """Σ_t n_m(t) so far, for each client."""
    overspend: float
    """Σ_t (C_t - C) so far."""


@dataclass(frozen=True)
class RoundRow:
    """What one round did."""

    round_number: int
    price: float
    """Averaged over clients by their shares, where each has its own."""
    ordered: float
    """Λ(t), real-valued; what a rule led to where the order was a rule."""
    admitted: int
    """Samples that trained for the first time."""
    spent: float
    overspend: float
    """Σ (C_τ - C) up to this round."""
    cost_debt: float
    """Z(t+1), after the round: never below the overspend."""
    training_size: int
    """n(t), all clients together."""
    overflow: int
    """Samples stored above the capacity of their client."""
    distinct_samples: int
    """N(t)."""
    effective_samples: float
    """N_eff(t)."""


@dataclass(frozen=True, eq=False)
class Run:
    """One policy on one path of prices; ``columns`` holds one entry a round."""

    problem: Problem
    seed: int
    columns: dict[str, FloatArray]
    """The fields of ``RoundRow``, and ``bound``."""
    mean_occupancy: FloatArray
    """Average n_m over the rounds so far, for each client."""
    final: SimulationState[Any]

    @property
    def sizes(self) -> SampleSizes:
        """What Theorem 1 needs to know of the run."""
        return SampleSizes(
            self.columns["training_size"],
            self.columns["distinct_samples"],
            self.columns["effective_samples"],
        )

    @property
    def certificate_margin(self) -> float:
        """The least of Z(t+1) - overspend(t) over the rounds; below 0 only by rounding."""
        return float(np.min(self.columns["cost_debt"] - self.columns["overspend"]))

    @property
    def certificate_holds(self) -> bool:
        """Whether total overspend up to t was at most Z(t+1), at every t."""
        debt, overspend = self.columns["cost_debt"], self.columns["overspend"]
        largest = float(max(debt.max(), np.abs(overspend).max(), self.columns["spent"].max()))
        rounding = 4 * len(debt) * np.finfo(float).eps * largest
        return bool(self.certificate_margin >= -rounding)


def begin(policy: JointPolicy[State], problem: Problem) -> SimulationState[State]:
    """The state before round 1."""
    return SimulationState(
        round_number=0,
        server=policy.admission.start(),
        allocation=Allocation.start(policy.shares),
        buffers=policy.retention.buffers(problem.capacities),
        tally=ReuseTally(),
        occupancy_sums=np.zeros(problem.num_clients, dtype=np.int64),
        overspend=0.0,
    )


def play_round(
    policy: JointPolicy[State], problem: Problem, state: SimulationState[State], price: Price
) -> tuple[SimulationState[State], RoundRow]:
    """Play one round at this price."""
    quote = Quote.of(price, policy.shares)
    server = policy.admission.learn(state.server, quote)
    room, limit = None, math.inf
    if policy.hard_capacity:
        room = state.buffers.room(problem.capacities)
        limit = float(room.sum())
    order, most = policy.admission.decide(server, quote, limit), None
    if policy.strict_spending:
        money = cash(problem.budget, state.round_number + 1, state.overspend)
        order, most = order.within(money, quote, limit)
    admissions, allocation = _admissions(state, order, price, room, most)

    buffers = state.buffers.step(admissions)
    occupancy, fresh = buffers.occupancy, buffers.fresh
    paid_for = fresh if policy.charge_prefill else admissions
    totals = RoundTotals(
        admitted=int(fresh.sum()),
        spent=float(np.sum(price * paid_for)),
        training_size=int(occupancy.sum()),
        expiring=int(buffers.expiring.sum()),
        prior_uses=buffers.prior_uses,
        slots=problem.total_capacity,
    )
    server = policy.admission.settle(server, totals)
    tally = state.tally.after_round(
        admitted=totals.admitted,
        training_size=totals.training_size,
        prior_uses=totals.prior_uses,
    )
    row = RoundRow(
        round_number=state.round_number + 1,
        price=quote.price,
        ordered=float(totals.admitted) if order.thresholds else order.total_admission,
        admitted=totals.admitted,
        spent=totals.spent,
        overspend=state.overspend + totals.spent - problem.budget,
        cost_debt=server.cost_debt,
        training_size=totals.training_size,
        overflow=int(np.maximum(occupancy - problem.capacities, 0).sum()),
        distinct_samples=tally.distinct_samples,
        effective_samples=tally.effective_sample_size,
    )
    after = SimulationState(
        round_number=row.round_number,
        server=server,
        allocation=allocation,
        buffers=buffers,
        tally=tally,
        occupancy_sums=state.occupancy_sums + occupancy,
        overspend=row.overspend,
    )
    return after, row


def _admissions(
    state: SimulationState[State],
    order: FleetOrder,
    price: Price,
    room: IntArray | None,
    most: int | None,
) -> tuple[CountArray, Allocation]:
    """What each client takes in: its part of a total, or what a rule leads to."""
    if not order.thresholds:
        return state.allocation.allocate(order.total_admission, room, most)
    if not isinstance(state.buffers, OldestFirstBuffers):
        raise TypeError(f"a rule by age needs oldest-first buffers, got {state.buffers!r}")
    wanted = state.buffers.wanted(order.thresholds, price)
    if math.isinf(order.total_admission):
        return wanted.astype(np.int32), state.allocation
    limits, allocation = state.allocation.allocate(order.total_admission, room, most)
    return np.minimum(wanted, limits).astype(np.int32), allocation


def simulate(
    policy: JointPolicy[State],
    problem: Problem,
    price_law: PriceLaw,
    seed: int,
    *,
    price_per_client: bool = False,
    resume: SimulationState[State] | None = None,
    until: int | None = None,
    each_round: Callable[[], None] | None = None,
) -> Run:
    """Play the rounds of a problem on the price path of a seed.

    Args:
        policy: what decides.
        problem: what is given, with the number of rounds.
        price_law: where prices come from.
        seed: of the price path; the same for every policy that is compared.
        price_per_client: draw one price for each client instead of one for all.
        resume: go on from this state, with the path that belongs to it.
        until: stop after this round; the last one by default.
        each_round: called after every round, for a progress bar.
    """
    state = begin(policy, problem) if resume is None else resume
    last = problem.num_rounds if until is None else until
    if not state.round_number < last <= problem.num_rounds:
        raise ValueError(
            f"no round to play: {state.round_number} of {problem.num_rounds} are done, "
            f"and the run should stop after round {last}"
        )
    size = problem.num_clients if price_per_client else None
    path = price_law.rounds(generator(seed, PRICES), size)
    rows = []
    for price in itertools.islice(path, state.round_number, last):
        state, row = play_round(policy, problem, state, price)
        rows.append(dataclasses.astuple(row))
        if each_round is not None:
            each_round()
    return _run(problem, seed, rows, state)


def _run(
    problem: Problem, seed: int, rows: list[tuple[Any, ...]], state: SimulationState[Any]
) -> Run:
    names = [entry.name for entry in dataclasses.fields(RoundRow)]
    table = np.array(rows, dtype=np.float64)
    columns = dict(zip(names, table.T, strict=True))
    run = Run(
        problem=problem,
        seed=seed,
        columns=columns,
        mean_occupancy=state.occupancy_sums / state.round_number,
        final=state,
    )
    columns["bound"] = bound_terms(run.sizes, problem.learning).total
    return run
