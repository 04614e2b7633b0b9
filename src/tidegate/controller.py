"""The server of a fleet that is running: who belongs to it, what each is ordered, what came of it.

One round: ``decide`` gives every client that takes part its order, ``book`` takes in receipts, on
time or late, and ``close`` settles. In between, all that the next step depends on can be saved:
a controller that is brought back after ``decide`` gives the same orders again.
"""

import io
import logging
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from tidegate.admission.allocation import LARGEST_ADMISSION, Allocation
from tidegate.arrays import BoolArray, FloatArray, IntArray
from tidegate.ledger import Booking, Ledger
from tidegate.policies import JointPolicy
from tidegate.prices import PriceFeed
from tidegate.problem import LearningConstants, Problem
from tidegate.saving import read, write
from tidegate.theory.reuse import ReuseTally
from tidegate.wire import LARGEST_AMOUNT, Address, Order, Receipt, Retention, WireError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What a run is given, whoever takes part in it."""

    policy: Callable[[Problem], JointPolicy[Any]]
    """Makes the policy for a fleet, and makes it again when clients come or go."""
    policy_name: str
    """What a saved run must have been made with."""
    budget: float
    """C."""
    prices: PriceFeed
    num_rounds: int
    """T."""
    learning: LearningConstants = field(default_factory=LearningConstants)


@dataclass(frozen=True)
class FleetRound:
    """What one round of a running fleet did."""

    round_number: int
    price: float
    """Averaged over clients by their shares, where each has its own."""
    ordered: float
    """Λ(t), real-valued."""
    fleet: int
    """Clients that are planned for."""
    orders: int
    """Clients that were sent an order."""
    answered: int
    """Those of them whose receipt came in time."""
    exhausted: int
    """Those of these whose stream or acquisition gave less than was ordered."""
    admitted: int
    """Samples booked in this round, those of late receipts too."""
    spent: float
    """Paid for them."""
    overspend: float
    """Σ (C_τ - C) up to this round."""
    cost_debt: float
    """Z(t+1)."""
    exposure: float
    """What unanswered orders may turn out to have cost."""
    training_size: int
    """n(t), of the clients that answered in time."""
    distinct_samples: int
    """N(t)."""
    effective_samples: float
    """N_eff(t)."""


@dataclass(frozen=True)
class _Decision:
    """A round that is under way."""

    price: float
    ordered: float
    orders: int
    answered: int = 0
    exhausted: int = 0


@dataclass(frozen=True)
class _Saved:
    """What changes from round to round at the server, in the shape of its policy."""

    server: Any
    allocation: Allocation


class Controller:
    """Policy, fleet and ledger of one run."""

    def __init__(self, terms: Terms, run: str) -> None:
        self._terms = terms
        self._round_number = 1
        self._ledger = Ledger(run)
        self._absences: dict[str, int] = {}
        self._policy: JointPolicy[Any] | None = None
        self._allocation: Allocation | None = None
        self._server: Any = None
        self._tally = ReuseTally()
        self._overspend = 0.0
        self._decision: _Decision | None = None

    @property
    def run(self) -> str:
        """The run's name."""
        return self._ledger.run

    @property
    def round_number(self) -> int:
        """The round that comes next, or is under way."""
        return self._round_number

    @property
    def ledger(self) -> Ledger:
        """What was ordered, admitted and paid."""
        return self._ledger

    @property
    def fleet(self) -> list[str]:
        """The clients that are planned for."""
        return list(self._absences)

    def join(self, client: str, buffer_capacity: int, newest: Receipt | None = None) -> None:
        """Know a client from now on; what it did without being heard is settled.

        Args:
            client: its name.
            buffer_capacity: B_m; it stays the same for the run.
            newest: the last receipt that the client gave in this run, if any.
        """
        self._ledger.open(client, buffer_capacity)
        known = self._ledger.account(client).buffer_capacity
        if known != buffer_capacity:
            raise WireError(
                f"{client} has a capacity of {buffer_capacity} now, and had {known} before; "
                "it must stay the same in a run"
            )
        booked_round = self._ledger.account(client).last_round
        if booked_round and (newest is None or newest.round_number < booked_round):
            lost = self._ledger.begin_again(client)
            logger.warning(
                "%s has lost its buffer: round %d was booked, and it knows of none after %d. It "
                "begins again; %.4g that it may have paid unheard is booked as spent",
                *(client, booked_round, 0 if newest is None else newest.round_number, lost),
            )
        elif newest is not None:
            self._settle_unheard(client, newest)

    def address(self, client: str) -> Address:
        """Whom an order is for, and how far that client's books are known here."""
        account = self._ledger.account(client)
        return Address(run=self.run, client=client, booked_round=account.last_round)

    def decide(self, present: Collection[str], online: Collection[str]) -> dict[str, Order]:
        """The order of each client that takes part in this round.

        Args:
            present: those that take part.
            online: all that can be reached; who is neither for K rounds in a row has left, and
                what was meant for it goes to the others at once.

        A round that was decided before keeps its orders; it gives those that can be reached now.
        """
        if self._decision is not None:
            return self._same_again({*present, *online})
        self._count_absences({*present, *online})
        policy, fleet = self._planned(), self.fleet
        price, prices = self._prices(policy, fleet)
        chosen = set(present)
        takes_part = np.array([client in chosen for client in fleet])
        room, limit = self._room(policy, takes_part)
        order = policy.admission.decide(self._server, price, limit)
        counts, self._allocation = self._whole().allocate(order.total_admission, room)
        orders = {}
        for number, (client, count) in enumerate(zip(fleet, counts.tolist(), strict=True)):
            if takes_part[number]:
                orders[client] = self._order(number, client, count, float(prices[number]))
                self._ledger.send(client, orders[client])
        self._decision = _Decision(price, order.total_admission, len(orders))
        return orders

    def book(self, client: str, receipt: Receipt) -> Booking:
        """Book a receipt; one that is on time belongs into the average."""
        booking = self._ledger.book(client, receipt)
        if booking.on_time and self._decision is not None:
            self._decision = replace(
                self._decision,
                answered=self._decision.answered + 1,
                exhausted=self._decision.exhausted + receipt.exhausted,
            )
        return booking

    def close(self) -> FleetRound:
        """Settle the round with all that was booked since the last one."""
        decision = self._decision
        if decision is None or self._policy is None:
            raise ValueError(f"round {self._round_number} has not been decided")
        totals = self._ledger.close_round(self._round_number)
        self._server = self._policy.admission.settle(self._server, totals)
        self._tally = self._tally.after_round(
            admitted=totals.admitted,
            training_size=totals.training_size,
            prior_uses=totals.prior_uses,
        )
        self._overspend += totals.spent - self._terms.budget
        self._round_number += 1
        self._decision = None
        return FleetRound(
            round_number=self._round_number - 1,
            price=decision.price,
            ordered=decision.ordered,
            fleet=len(self._absences),
            orders=decision.orders,
            answered=decision.answered,
            exhausted=decision.exhausted,
            admitted=totals.admitted,
            spent=totals.spent,
            overspend=self._overspend,
            cost_debt=self._server.cost_debt,
            exposure=self._ledger.exposure,
            training_size=totals.training_size,
            distinct_samples=self._tally.distinct_samples,
            effective_samples=self._tally.effective_sample_size,
        )

    def to_record(self) -> dict[str, Any]:
        """All that the next step depends on, as JSON and a NumPy archive can carry it."""
        record: dict[str, Any] = {
            "terms": self._fixed_terms(),
            "round_number": self._round_number,
            "ledger": self._ledger.to_record(),
            "absences": self._absences,
            "tally": asdict(self._tally),
            "overspend": self._overspend,
            "decision": None if self._decision is None else asdict(self._decision),
            "state": None,
        }
        if self._allocation is not None:
            state = io.BytesIO()
            write(_Saved(self._server, self._allocation), state)
            record["state"] = state.getvalue()
            record["replanned"] = bool(len(self._allocation.credits))
        return record

    @classmethod
    def from_record(cls, terms: Terms, record: Mapping[str, Any]) -> "Controller":
        """The controller that ``to_record`` gave, on the same terms."""
        controller = cls(terms, record["ledger"]["run"])
        for name, value in record["terms"].items():
            mine = controller._fixed_terms()[name]
            if value != mine:
                raise ValueError(
                    f"the checkpoint was made with {name} = {value}, this run has {mine}; "
                    "resume with the same, or start a new run in another folder"
                )
        controller._round_number = record["round_number"]
        controller._ledger = Ledger.from_record(record["ledger"])
        controller._absences = dict(record["absences"])
        controller._tally = ReuseTally(**record["tally"])
        controller._overspend = record["overspend"]
        if record["decision"] is not None:
            controller._decision = _Decision(**record["decision"])
        if record["state"] is not None:
            policy = controller._planned()
            owed = np.zeros(len(policy.shares)) if record["replanned"] else None
            shape = _Saved(policy.admission.start(), Allocation.start(policy.shares, owed))
            saved = read(shape, io.BytesIO(record["state"]))
            controller._server, controller._allocation = saved.server, saved.allocation
        return controller

    def _fixed_terms(self) -> dict[str, Any]:
        """What must be the same when a run is resumed."""
        terms = self._terms
        return {
            "budget": terms.budget,
            "num_rounds": terms.num_rounds,
            "policy": terms.policy_name,
            "mean_price": terms.prices.mean(terms.num_rounds),
            "learning": asdict(terms.learning),
        }

    def _count_absences(self, reachable: Collection[str]) -> None:
        """Let newcomers in, and those go who stayed away until all that they stored expired."""
        absences = dict.fromkeys(reachable, 0)
        for number, (client, absent) in enumerate(self._absences.items()):
            _, horizon = self._retention(number)
            if client not in reachable and (absent + 1 < horizon or not horizon):
                absences[client] = absent + 1
        if not absences:
            raise ValueError(
                f"round {self._round_number} has no client to order from; "
                "the log says why each that was asked is left out"
            )
        if absences.keys() != self._absences.keys():
            self._replan(sorted(absences))
        # In the order of names, which is the same on every engine and in every process.
        self._absences = dict(sorted(absences.items()))

    def _replan(self, fleet: list[str]) -> None:
        """Plan for another fleet; those who stay keep what they are owed in parts of a sample."""
        old, before = self._allocation, {client: n for n, client in enumerate(self._absences)}
        self._policy = None
        self._absences = dict.fromkeys(fleet, 0)
        shares = self._planned().shares
        if old is None:
            self._allocation = Allocation.start(shares)
            return
        owed = old.unserved
        kept = [float(owed[before[client]]) if client in before else 0.0 for client in fleet]
        self._allocation = Allocation.start(shares, np.array(kept))

    def _retention(self, number: int) -> tuple[Retention, int]:
        """The rule and K of a client of the fleet."""
        return self._planned().retention.for_client(number, len(self._absences))

    def _planned(self) -> JointPolicy[Any]:
        """The policy for the fleet as it is."""
        if self._policy is None:
            self._policy = self._terms.policy(
                Problem(
                    buffer_capacities=[
                        self._ledger.account(client).buffer_capacity for client in self._absences
                    ],
                    budget=self._terms.budget,
                    mean_price=self._terms.prices.mean(self._terms.num_rounds),
                    num_rounds=self._terms.num_rounds,
                    learning=self._terms.learning,
                )
            )
            if self._server is None:
                self._server = self._policy.admission.start()
        return self._policy

    def _whole(self) -> Allocation:
        if self._allocation is None:
            raise ValueError("the fleet has not been planned for")
        return self._allocation

    def _prices(self, policy: JointPolicy[Any], fleet: list[str]) -> tuple[float, FloatArray]:
        """The price of an order as it will be split, and every client's own."""
        price = self._terms.prices.at(self._round_number, fleet)
        if isinstance(price, Mapping):
            own = [self._checked(price.get(client), client) for client in fleet]
            prices = np.array(own, dtype=np.float64)
            return float(policy.shares @ prices), prices
        one = self._checked(price, "all clients")
        return one, np.full(len(fleet), one, dtype=np.float64)

    def _checked(self, price: object, whose: str) -> float:
        try:
            value = float(price)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            value = math.nan
        if not 0 <= value <= LARGEST_AMOUNT:
            raise ValueError(
                f"the price of round {self._round_number} for {whose} must be a number from 0 to "
                f"{LARGEST_AMOUNT:g}, got {price!r}"
            )
        return value

    def _room(
        self, policy: JointPolicy[Any], takes_part: BoolArray
    ) -> tuple[IntArray | None, float]:
        """What each client has room for, as far as was heard, and all together."""
        if not policy.hard_capacity:
            absent = not takes_part.all()
            return (np.where(takes_part, LARGEST_ADMISSION, 0) if absent else None), math.inf
        free = [self._room_of(number, client) for number, client in enumerate(self._absences)]
        room = np.where(takes_part, np.array(free, dtype=np.int64), 0)
        return room, float(room[policy.shares > 0].sum())

    def _room_of(self, number: int, client: str) -> int:
        account = self._ledger.account(client)
        _, horizon = self._retention(number)
        carried = account.carried_samples(self._round_number, horizon)
        return max(account.buffer_capacity - carried, 0)

    def _order(self, number: int, client: str, count: int, price: float) -> Order:
        """One client's order; one that never changes is filled before its first round."""
        retention, horizon = self._retention(number)
        if retention == "frozen":
            new = not self._ledger.account(client).last_round
            count = self._room_of(number, client) if new else 0
            price = price if self._planned().charge_prefill else 0.0
        return Order(
            run=self.run,
            round_number=self._round_number,
            price=price,
            retention=retention,
            retention_horizon=horizon,
            count=count,
        )

    def _same_again(self, reachable: Collection[str]) -> dict[str, Order]:
        """The orders of a round that was decided before; who had none waits for the next."""
        return {
            client: order
            for client in self._absences
            if client in reachable
            for order in self._ledger.account(client).outstanding
            if order.round_number == self._round_number
        }

    def _settle_unheard(self, client: str, newest: Receipt) -> None:
        """Book what a client did in rounds that are over; an open round's receipt will come."""
        account = self._ledger.account(client)
        sent = {account.last_round, *(order.round_number for order in account.outstanding)}
        if newest.round_number not in sent:
            raise WireError(
                f"{client} is at round {newest.round_number} of run {self.run!r}, of which "
                "nothing is known here: resume from its checkpoint, or name another run"
            )
        if newest.round_number < self._round_number:
            self.book(client, newest)
