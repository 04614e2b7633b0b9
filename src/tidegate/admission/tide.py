"""Tide: full buffers, the oldest makes room, and a price threshold that rises with age.

Every round, from the prices seen so far and the money that is left for the rounds that are left:
the best rule for one slot (``theory.optimum``), sent to all clients as it is. The rule is solved
again only when it would change: after a tenth more prices, at a price higher than any before, or
when the money for a round has moved by a twentieth. The server needs sums alone: what was spent,
how many were admitted, and how many slots are empty.

The first fill costs many rounds' budget, and training should begin with it. From the second round
on, a price up to the average is taken for all empty slots at once, ahead of the budget. Where that
would cost too many rounds' budget, and in the first round, when nothing is known of prices,
only a price up to θ(0) is; up to the average price slots are then filled as far as the budget has
paid for them. Above the average they wait.
"""

import bisect
import math
from dataclasses import dataclass, field, replace

import numpy as np

from tidegate._internal.arrays import FloatArray
from tidegate.admission.debt import next_cost_debt
from tidegate.admission.price_memory import PriceMemory
from tidegate.admission.rule import FleetOrder, Quote, RoundTotals
from tidegate.theory.filling import filling_threshold
from tidegate.theory.optimum import plan_slots
from tidegate.theory.price_chain import PriceChain, plan_chain

LONGEST_LIFE = 1000
"""Rounds, and thresholds in an order. A budget that does not pay for replacing a sample in so many
rounds is spent as it comes in, at the cheapest rule's prices."""
MORE_PRICES = 1.1
"""A rule is solved again after so many times the rounds that it was solved for."""
OTHER_ALLOWANCE = 0.05
"""It is solved again when the money for a slot and round has moved by this part."""
LEAST_ALLOWANCE = 0.2
"""Of the budget: a rule to go on with when more was spent than is left."""
PRECISION = 1e-5
"""Relative, of what a rule costs; the prices seen say less."""
PACE = 100
"""Rounds in which what was overspent is saved, and vice versa; or those that are left, if fewer."""
DEAR_FILL = 15
"""Rounds' budget. A first fill that costs less at the average price is bought up to that price:
early training is worth it."""
SMOOTHING = 20
"""Rounds from which it is learned how many slots take part."""
PRICE_GROUPS = 4
"""Low to high; what follows what is learned where it is no chance."""
RECENT = 1024
"""Rounds that this is learned from."""
LONGEST_CHAIN = 256
"""Ages planned for at most where prices depend on each other: twice those that the rule for
independent prices needs, and 32. Longer lives are planned as if prices were independent."""
MOST_CLIENTS = 1000
"""Clients whose own prices are looked at in a round, evenly spaced."""


NOTHING = FleetOrder(0.0, (0.0,))
"""Before there was any money."""


@dataclass(frozen=True)
class Thresholds:
    """What was solved last, and for what."""

    round_number: int = 0
    allowance: float = 0.0
    """Money for a slot and round."""
    spends: float = 0.0
    """What the rule spends of it; less only where every sample is replaced in every round."""
    shadow_price: float = 0.0
    """μ: growth of ΣA² that one unit of money more would save, at what is spent; where all is
    replaced, the last that it saved."""
    highest: float = -1.0
    """Of the prices that were seen; a higher one may need another rule."""
    affordable: bool = True
    """Whether the allowance pays for the rule."""
    empty: float = 0.0
    """θ(0)."""
    edges: tuple[float, ...] = ()
    """Prices at which another group of prices begins; none where prices are independent."""
    by_group: tuple[tuple[float, ...], ...] = ()
    """For each group of prices, θ(1), θ(2), ... of a rule that spends the allowance or less."""


@dataclass(frozen=True, eq=False)
class TideState:
    """What the server keeps between rounds, whatever the size of the fleet."""

    round_number: int = 1
    """t, the round that comes next."""
    cost_debt: float = 0.0
    """Z(t)."""
    spent: float = 0.0
    """In all rounds before."""
    earned: float = 0.0
    """Budgets of all rounds before."""
    admitted: int = 0
    """In all rounds before."""
    taking_part: float = 1.0
    """The part of the slots whose clients took part in a round, lately."""
    prices: PriceMemory = field(default_factory=PriceMemory)
    recent: FloatArray = field(default_factory=lambda: np.zeros(RECENT))
    """The last prices; that of round t in place (t - 1) mod ``RECENT``."""
    solved: Thresholds = field(default_factory=Thresholds)


@dataclass(frozen=True, eq=False)
class Tide:
    """Thresholds by age, learned from prices and money left.

    The budget may be another one in every round (``dataclasses.replace``): what comes in beyond
    the rate that is expected is saved, and spent over many rounds. At a rate of 0 what was saved is
    spent, and no more.
    """

    budget: float
    """C."""
    num_rounds: int | None
    """T; none for a run without end."""
    total_capacity: int
    """ΣB_m."""
    fraction_train: float = 1.0
    """The part of them that a round reaches, as far as is known before the first."""
    expected: float | None = None
    """What the rounds to come will get each, where that is not the budget of this one."""
    price_groups: int = PRICE_GROUPS
    """Groups between which the next price may depend on the present one; 1 for none."""

    def start(self) -> TideState:
        """Nothing seen, nothing spent."""
        return TideState(taking_part=self.fraction_train)

    def learn(self, state: TideState, quote: Quote) -> TideState:
        """Remember the price, and solve again if the rule would change."""
        recent = state.recent.copy()
        recent[(state.round_number - 1) % RECENT] = quote.price
        seen = replace(state, prices=state.prices.with_prices(*self._seen(quote)), recent=recent)
        allowance = self._allowance(state) / (self.total_capacity * state.taking_part)
        old = state.solved
        if not allowance:
            return seen
        if (
            state.round_number < MORE_PRICES * old.round_number + 1
            and abs(allowance - old.allowance) <= OTHER_ALLOWANCE * old.allowance
            and quote.highest <= old.highest
        ):
            return seen
        groups = self.price_groups if quote.own is None else 1
        solved = _solve(seen, allowance, groups)
        return replace(seen, solved=replace(solved, highest=max(quote.highest, old.highest)))

    def decide(self, state: TideState, quote: Quote, limit: float) -> FleetOrder:
        """The rule of this round."""
        solved, saved = state.solved, state.earned + self.budget - state.spent
        if not solved.by_group:
            return NOTHING
        money = math.inf
        if self.num_rounds is not None:
            money = saved + self._rate * (self._left(state) - 1)
        if not self._rate:
            money = min(money, saved)
        waiting = self._waits(state, quote)
        if waiting and quote.own is None and quote.price > solved.empty:
            # Pay as you go, up to the average price; samples that are stored stay.
            price = quote.price if quote.price <= state.prices.mean else 0.0
            thresholds: tuple[float, ...] = (price, 0.0)
            money = min(money, saved)
        else:
            empty = solved.empty if waiting else max(solved.empty, state.prices.mean)
            group = bisect.bisect_right(solved.edges, quote.price)
            thresholds = (empty, *solved.by_group[group])
        if not solved.affordable:
            money = min(money, saved)
        order, _ = FleetOrder(math.inf, thresholds).within(money, quote, limit)
        return order

    def settle(self, state: TideState, totals: RoundTotals) -> TideState:
        """Money and samples as they really were."""
        taking_part = state.taking_part
        if totals.slots:
            part = min(totals.slots / self.total_capacity, 1.0)
            taking_part += (part - taking_part) / SMOOTHING
        return replace(
            state,
            round_number=state.round_number + 1,
            taking_part=taking_part,
            cost_debt=next_cost_debt(state.cost_debt, totals.spent, self.budget),
            spent=state.spent + totals.spent,
            earned=state.earned + self.budget,
            admitted=state.admitted + totals.admitted,
        )

    def granted(self, budget: float, expected: float) -> "Tide":
        """The rule for a round that may cost so much, with what rounds to come will get each."""
        return replace(self, budget=budget, expected=expected)

    def earned(self, state: TideState) -> float:
        """What all rounds so far were granted."""
        return state.earned

    def worth(self, state: TideState) -> tuple[float, float] | None:
        """Money a round that the rule plans to spend, and what one unit more would be worth then.

        None before there is a rule.
        """
        if not state.solved.by_group:
            return None
        slots = self.total_capacity * state.taking_part
        return state.solved.spends * slots, state.solved.shadow_price

    def _seen(self, quote: Quote) -> tuple[FloatArray, FloatArray]:
        """The prices of a round, and what part of the slots each stands for."""
        if quote.own is None or quote.parts is None:
            return np.array([quote.price]), np.ones(1)
        step = math.ceil(len(quote.own) / MOST_CLIENTS)
        weights = quote.parts[::step]
        return quote.own[::step], weights / weights.sum()

    def _allowance(self, state: TideState) -> float:
        """Money for a round: the budget, and a part of what was saved or overspent."""
        pace = PACE if self.num_rounds is None else min(self._left(state), PACE)
        ahead = state.earned + (self.budget - self._rate) - state.spent
        return max(self._rate + ahead / pace, LEAST_ALLOWANCE * self._rate)

    @property
    def _rate(self) -> float:
        """Money a round in the long run."""
        return self.budget if self.expected is None else self.expected

    def _left(self, state: TideState) -> int:
        """Rounds that are left of a run with an end, this one included."""
        return max((self.num_rounds or 0) - state.round_number + 1, 1)

    def _waits(self, state: TideState, quote: Quote) -> bool:
        """Whether empty slots wait for θ(0).

        They do while nothing is known of prices, and where the average one is too dear for a fill:
        the first, of all slots, and later that of those that are empty because clients have joined.
        """
        is_first = state.admitted < self.total_capacity
        empty = quote.empty_slots
        if not (is_first if empty is None else empty):
            return False
        knows_one = state.round_number == 1 and quote.own is None
        slots = self.total_capacity if is_first else empty or 0
        return knows_one or slots * state.prices.mean > DEAR_FILL * self._rate


def _solve(state: TideState, allowance: float, groups: int) -> Thresholds:
    """The best rule for an allowance, if the prices seen are all there are."""
    law = state.prices.distribution()
    plan = plan_slots(law, allowance, longest_life=LONGEST_LIFE, precision=PRECISION)
    independent = Thresholds(
        round_number=state.round_number,
        allowance=allowance,
        spends=min(plan.spent, allowance),
        shadow_price=plan.best.multiplier or 2 / max(law.highest, allowance),
        affordable=plan.spent <= (1 + OTHER_ALLOWANCE) * allowance,
        empty=filling_threshold(law, plan),
        by_group=(plan.less.thresholds,),
    )
    ages = 2 * len(plan.less.thresholds) + 32
    if (
        groups == 1
        or not plan.best.multiplier
        or ages > LONGEST_CHAIN
        or not independent.affordable
    ):
        return independent
    chain = PriceChain.from_prices(_in_order(state), groups)
    if chain is None:
        return independent
    rules = plan_chain(chain, allowance, plan.best, ages)
    if rules is None:
        return independent
    _, less = rules
    return replace(independent, edges=chain.edges, by_group=less.by_group())


def _in_order(state: TideState) -> FloatArray:
    """The last prices, oldest first."""
    if state.round_number < RECENT:
        return state.recent[: state.round_number]
    return np.roll(state.recent, -(state.round_number % RECENT))
