"""The controller of a running fleet: it plans, orders, books and settles.

In a round, ``decide`` returns the order of every client that takes part, ``book`` accepts receipts,
on time or late, and ``close`` settles the round. The controller can be saved at any point between
them: restored after ``decide``, it returns the same orders again.
"""

import math
from collections.abc import Collection
from dataclasses import replace
from typing import Any, cast

from tidegate.admission.allocation import Allocation
from tidegate.admission.rule import AdmissionRule, GrantedRule
from tidegate.errors import ConfigurationError
from tidegate.policies.decision import cash, decide
from tidegate.server.fleet import FleetStock, Terms
from tidegate.server.fleet_round import FleetRound
from tidegate.server.ledger import Booking, Ledger
from tidegate.server.shards import Report
from tidegate.server.standing import Progress, RoundUnderWay, Standing
from tidegate.wire import LARGEST_AMOUNT, NO_LIMIT, Address, Introduction, Order, Receipt


class Controller:
    """Policy, fleet and ledger of one run."""

    def __init__(self, terms: Terms, run: str) -> None:
        Address(run=run)  # refuses a name that cannot be sent
        begun = Standing.start(terms, run)
        self._terms = terms
        self._at, self._ledger, self._fleet = begun.at, begun.ledger, begun.fleet
        self._rule_state = begun.rule_state

    @property
    def run(self) -> str:
        """The run's name."""
        return self._ledger.run

    @property
    def round_number(self) -> int:
        """The next round, or the one under way."""
        return self._at.round_number

    @property
    def ledger(self) -> Ledger:
        """What was ordered, admitted and paid."""
        return self._ledger

    @property
    def fleet(self) -> list[str]:
        """The clients that the policy plans for."""
        return self._fleet.clients

    @property
    def is_under_way(self) -> bool:
        """Whether a round has been decided and not yet closed."""
        return self._at.decision is not None

    @property
    def price(self) -> float:
        """What a sample costs in the round under way."""
        if self._at.decision is None:
            raise ValueError(f"round {self._at.round_number} has not been decided")
        return self._at.decision.price

    @property
    def away(self) -> int:
        """Clients in the plan that were offline when the last round began."""
        return self._fleet.away

    def join(self, introduction: Introduction, newest: Receipt | None = None) -> None:
        """Add a client, and settle what it did without a receipt reaching the server.

        Args:
            introduction: who the client is, its capacity, and its buffer.
            newest: the last receipt of this buffer, if any.
        """
        client, ledger = introduction.client, self._ledger
        is_new = client not in ledger or ledger.account(client).is_new
        self._ledger.welcome(
            introduction,
            newest,
            round_number=self._at.round_number,
            largest_buffer=self._terms.largest_buffer,
        )
        if is_new and introduction.holding:
            tally = self._at.tally.with_earlier(introduction.holding)
            self._at = replace(self._at, tally=tally)

    def is_silent(self, client: str) -> bool:
        """Return whether a client has not replied to an order of a closed round.

        It gets no new order before it has replied, or has introduced itself again.
        """
        if client not in self._ledger.accounts.unanswered:
            return False
        order = self._ledger.account(client).outstanding
        return order is not None and order.round_number < self._at.round_number

    def address(self, client: str) -> Address:
        """Return the address of an order: the client, and how far its books are known here."""
        return self._ledger.account(client).address(self.run, client)

    def decide(self, present: Collection[str], online: Collection[str]) -> dict[str, Order]:
        """Return the order of each client that takes part in this round.

        Args:
            present: the clients that take part.
            online: all clients that are online; one that is absent for K rounds in a row has left,
                and its part of the budget goes to the others at once.

        A round that was decided before keeps its orders; this returns those of clients that are
        online now.
        """
        if self._at.decision is not None:
            there = {*present, *online}
            return self._ledger.orders_of(self._at.round_number, self._fleet.clients, there)
        self._fleet.see(present, online)
        if self._rule_state is None:
            self._rule_state = self._fleet.policy.admission.start()
        budget = expected = usual = self._terms.budget
        if self._terms.purse is not None:
            earned = self._granted_rule.earned(self._rule_state)
            budget = self._terms.purse.budget(self._at.round_number, earned)
            expected = self._terms.purse.rate(self._at.round_number)
            usual = (earned + budget) / self._at.round_number
        policy = replace(self._fleet.policy, admission=self._rule(budget, expected))
        members = self._fleet.members(
            {client for client in present if self._ledger.account(client).outstanding is None}
        )
        round_number = self._at.round_number
        quote, members = self._fleet.quote(round_number, members)
        quote = replace(quote, delay=self._at.arrivals.delay)
        in_vain = policy.buys_in_vain(round_number, quote, self._terms.num_rounds)
        paused = in_vain or self._at.pause.rounds_left > 0
        clients = [client for _, client in members]
        self._rule_state = policy.admission.learn(self._rule_state, quote)
        unsettled = self._ledger.exposure + self._ledger.booked.spent
        decided = decide(
            policy,
            self._rule_state,
            quote,
            stock=FleetStock(self._fleet, clients, round_number),
            allocation=self._fleet.allocation or Allocation.start(policy.shares),
            round_number=round_number,
            who=self._fleet.numbers(members),
            cash=self._cash(budget, unsettled),
            unsettled=unsettled,
            budget=usual,
            paused=paused,
        )
        self._fleet.allocation = decided.allocation
        orders = {}
        for place, client in enumerate(clients):
            price = quote.price if quote.own is None else float(quote.own[place])
            count = NO_LIMIT if decided.counts is None else int(decided.counts[place])
            is_owed = decided.owed is not None and decided.owed[place] > 0
            thresholds = (price,) if is_owed else decided.thresholds  # it is owed at any price
            orders[client] = self._fleet.order(
                round_number, client, price, count, thresholds, paused=paused
            )
        for client, order in orders.items():
            self._ledger.send(client, order)
        ordered = None if decided.thresholds else decided.total
        slots = self._fleet.slots(members)
        decision = RoundUnderWay(quote.price, ordered, budget, expected, len(orders), slots)
        self._at = replace(self._at, decision=decision)
        return orders

    def book(self, client: str, receipt: Receipt) -> Booking:
        """Book a receipt; if it is on time, the model belongs in the average."""
        booking = self._ledger.book(client, receipt)
        decision = self._at.decision
        if booking.on_time and decision is not None:
            heard = replace(
                decision,
                answered=decision.answered + 1,
                exhausted=decision.exhausted + receipt.is_dry,
            )
            self._at = replace(self._at, decision=heard)
        return booking

    def close(self, *, used: bool = True) -> FleetRound:
        """Settle the round with everything that was booked since the last one.

        Args:
            used: whether any client's model was used; if not, purchases pause (``BuyingPause``).
        """
        at, decision = self._at, self._at.decision
        if decision is None:
            raise ValueError(f"round {at.round_number} has not been decided")
        totals = replace(self._ledger.close_round(at.round_number), slots=decision.slots)
        self._rule_state = self._rule(decision.budget, decision.expected).settle(
            self._rule_state, totals
        )
        tally = at.tally.after_round(
            admitted=totals.admitted,
            training_size=totals.training_size,
            prior_uses=totals.prior_uses,
        )
        # If no client stores anything, all purchases are under way, and none of them was in vain.
        in_vain = self._ledger.exposure + (totals.spent if totals.training_size else 0.0)
        self._at = after = Progress(
            round_number=at.round_number + 1,
            tally=tally,
            overspend=at.overspend + (totals.spent - decision.budget),
            pause=at.pause.after_round(used=used, spent=in_vain),
            arrivals=at.arrivals.after_round(
                at.round_number, totals.bought, self._ledger.under_way
            ),
        )
        return FleetRound(
            round_number=at.round_number,
            price=decision.price,
            ordered=float(totals.admitted) if decision.ordered is None else decision.ordered,
            fleet=len(self._fleet),
            orders=decision.orders,
            answered=decision.answered,
            exhausted=decision.exhausted,
            admitted=totals.admitted,
            spent=totals.spent,
            overspend=after.overspend,
            cost_debt=self._rule_state.cost_debt,
            exposure=self._ledger.exposure,
            slots=decision.slots,
            training_size=totals.training_size,
            distinct_samples=tally.distinct_samples,
            effective_samples=tally.effective_sample_size,
            pause=after.pause.rounds_left,
            retired=self._ledger.retired,
            under_way=self._ledger.under_way,
            under_way_spent=self._ledger.under_way_spent,
            oldest_under_way=self._ledger.oldest_under_way(at.round_number),
            empty_clients=self._ledger.accounts.sums.empty_clients,
            health=self._ledger.health,
            refunded=self._ledger.refunded,
        )

    @property
    def standing(self) -> Standing:
        """Everything that the next step depends on."""
        return Standing(self._terms, self._at, self._ledger, self._fleet, self._rule_state)

    @classmethod
    def resumed(cls, standing: Standing) -> "Controller":
        """Return the controller of a saved run."""
        controller = cls(standing.terms, standing.ledger.run)
        controller._at, controller._ledger = standing.at, standing.ledger
        controller._fleet, controller._rule_state = standing.fleet, standing.rule_state
        return controller

    def report(self) -> Report | None:
        """Return a shard's report to its coordinator; None before it has a rule."""
        purse = self._terms.purse
        if purse is None:
            raise ConfigurationError("this server is not a shard; give it a purse")
        if self._rule_state is None:
            return None
        rule = self._granted_rule.granted(self._terms.budget, self._terms.budget)
        worth = rule.worth(self._rule_state)
        if worth is None:
            return None
        return Report(
            run=purse.run,
            shard=purse.shard,
            round_number=self._at.round_number - 1,
            spends=min(worth[0], LARGEST_AMOUNT),
            shadow_price=min(worth[1], LARGEST_AMOUNT),
        )

    @property
    def _granted_rule(self) -> GrantedRule[Any]:
        """A shard's rule; its fleet refuses any other."""
        return cast("GrantedRule[Any]", self._fleet.policy.admission)

    def _rule(self, budget: float, expected: float) -> AdmissionRule[Any]:
        """Return the policy's rule for a round that may cost so much."""
        if self._terms.purse is None:
            return self._fleet.policy.admission
        return self._granted_rule.granted(budget, expected)

    def _cash(self, budget: float, unsettled: float) -> float:
        """Return the most that a round may cost; orders without a reply count as spent."""
        if self._fleet.ahead is None:
            return math.inf
        so_far, ahead = self._at.overspend + unsettled, self._fleet.ahead * self._terms.budget
        return cash(budget, self._at.round_number, so_far, ahead)
