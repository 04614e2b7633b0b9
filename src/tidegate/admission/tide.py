"""Tide: keep buffers full, replace the oldest sample below a price threshold that rises with age.

In every round Tide takes the best rule for one slot (``theory.optimum``), given the prices seen so
far and the money left for the remaining rounds, and sends it to all clients. It solves the rule
again only when it would change: after a tenth more prices, at a price higher than any before, or
when the money for a round has changed by a twentieth. The server needs only sums: money spent,
samples admitted and empty slots.

The first fill costs many rounds' budget, but training needs it. From the second round on, Tide
fills all empty slots at once at a price up to the average, ahead of the budget. If that would cost
too many rounds' budget, and in the first round, when Tide knows nothing about prices, it does so
only up to θ(0); up to the average price it then fills slots as far as the budget has paid for them.
Above the average it waits.

With a cap of U uses (``most_uses``), a slot is empty again once its sample was used U times. The
rule takes this into account and replaces most samples earlier. If the budget pays for full buffers,
Tide fills such a slot at any price; otherwise up to a price that keeps as many slots in use as the
budget can.
"""

import math
from dataclasses import dataclass, field, replace

import numpy as np

from tidegate._internal.arrays import FloatArray
from tidegate.admission.debt import next_cost_debt
from tidegate.admission.price_memory import EVERY, Forecasts, PriceMemory, rounds_since_change
from tidegate.admission.rule import FleetOrder, Quote, RoundTotals
from tidegate.admission.thresholds import OTHER_ALLOWANCE, Thresholds, solve

MORE_PRICES = 1.1
"""Tide solves a rule again after this many times the rounds that it was solved for."""
LEAST_ALLOWANCE = 0.2
"""The least part of the budget to plan with, even if the run has overspent by more."""
PACE = 100
"""Rounds over which Tide saves overspent money, or spends saved money; or all that are left."""
DEAR_FILL = 15
"""Rounds' budget. If the first fill costs less at the average price, Tide buys it up to that price:
early training is worth it."""
DEAR_REPLACEMENT = 5
"""Rounds' budget. If filling the slots that a cap on uses has emptied costs less, Tide fills them
at any price that the rule allows; otherwise like the slots of clients that have just joined."""
SMOOTHING = 20
"""Rounds over which Tide averages the slots that take part."""
PRICE_GROUPS = 4
"""Groups of prices, low to high, if the next price depends on the present one."""
RECENT = 1024
"""The last rounds from which Tide learns which group follows which."""
MOST_CLIENTS = 1000
"""The most clients whose own prices Tide reads in a round, evenly spaced."""


NOTHING = FleetOrder(0.0, (0.0,))
"""The order while there is no money yet."""


@dataclass(frozen=True, eq=False)
class TideState:
    """The state between rounds; its size does not depend on the fleet."""

    round_number: int = 1
    """t, the round that comes next."""
    cost_debt: float = 0.0
    """Z(t)."""
    spent: float = 0.0
    """Money spent in all rounds before."""
    earned: float = 0.0
    """The sum of the budgets of all rounds before."""
    admitted: int = 0
    """Samples admitted in all rounds before, and those held before round 1."""
    taking_part: float = 1.0
    """The part of the slots whose clients take part in a round, averaged over recent rounds."""
    prices: PriceMemory = field(default_factory=PriceMemory)
    recent: FloatArray = field(default_factory=lambda: np.zeros(RECENT))
    """The last prices; that of round t is at (t - 1) mod ``RECENT``."""
    solved: Thresholds = field(default_factory=Thresholds)
    changed: int = 0
    """The last round before prices changed for good; 0 if they have not."""
    forecasts: Forecasts = field(default_factory=Forecasts)

    def believed(self, ahead: tuple[float, ...]) -> tuple[float, ...]:
        """Return the forecasts of the next prices, as far ahead as recent ones were good enough."""
        return self.forecasts.believed(ahead, self.round_number, self.in_order)

    @property
    def in_order(self) -> FloatArray:
        """The last prices of the present level, oldest first."""
        if self.round_number < RECENT:
            return self.recent[self.changed : self.round_number]
        last = min(self.round_number - self.changed, RECENT)
        return np.roll(self.recent, -(self.round_number % RECENT))[-last:]

    def of_the_present_level(self) -> "TideState":
        """Return the state without prices of an earlier level; the same state without a change."""
        if self.round_number % EVERY:
            return self
        prices = self.in_order
        kept = rounds_since_change(prices)
        if kept is None:
            return self
        memory = PriceMemory()
        for price in prices[-kept:]:
            memory = memory.with_prices(np.array([price]), np.ones(1))
        return replace(self, prices=memory, changed=self.round_number - kept, solved=Thresholds())


@dataclass(frozen=True, eq=False)
class Tide:
    """Thresholds by age, learned from prices and the money left.

    The budget may differ from round to round (``dataclasses.replace``): Tide saves money beyond the
    expected rate, and spends it over many rounds. At an expected rate of 0 it spends only savings.
    """

    budget: float
    """C."""
    num_rounds: int | None
    """T; None for a run without a last round."""
    total_capacity: int
    """ΣB_m."""
    fraction_train: float = 1.0
    """The part of the slots that a round is expected to reach, before the first round."""
    expected: float | None = None
    """The budget of each later round, if it differs from that of this one."""
    price_groups: int = PRICE_GROUPS
    """Groups of prices, for prices that depend on the price before; 1 for none."""
    most_uses: int | None = None
    """U, the most rounds in which a sample trains; None for no cap."""
    chance: float = 1.0
    """The part of what full buffers store that trains in a round."""
    stored: int = 0
    """n(0), samples that clients hold before round 1."""

    def start(self) -> TideState:
        """Return a state without prices and spending."""
        return TideState(taking_part=self.fraction_train, admitted=self.stored)

    def learn(self, state: TideState, quote: Quote) -> TideState:
        """Remember the price, and solve again if the rule would change."""
        recent = state.recent.copy()
        recent[(state.round_number - 1) % RECENT] = quote.price
        seen = replace(state, prices=state.prices.with_prices(*self._seen(quote)), recent=recent)
        seen = replace(seen, forecasts=seen.forecasts.heard(state.round_number, quote.ahead))
        if quote.own is None:
            seen = seen.of_the_present_level()
        allowance = self._allowance(state, quote) / (self.total_capacity * state.taking_part)
        old, ahead = seen.solved, seen.believed(quote.ahead)
        if not allowance:
            return seen
        if (
            state.round_number - seen.changed < MORE_PRICES * (old.round_number - seen.changed) + 1
            and abs(allowance - old.allowance) <= OTHER_ALLOWANCE * old.allowance
            and quote.highest <= old.highest
            and bool(ahead) == old.looked_ahead
        ):
            return seen
        groups = self.price_groups if quote.own is None else 1
        prices = seen.prices, seen.in_order
        solved = solve(
            *(*prices, allowance, groups, self.most_uses, ahead, old.informed, self.chance)
        )
        highest = max(quote.highest, old.highest)
        solved = replace(solved, round_number=state.round_number, highest=highest)
        return replace(seen, solved=solved)

    def decide(self, state: TideState, quote: Quote, limit: float) -> FleetOrder:
        """Return the rule of this round."""
        solved, saved = state.solved, state.earned + self.budget - state.spent
        if not solved.by_group:
            return NOTHING
        money = math.inf
        if self.num_rounds is not None:
            money = saved + self._rate * (self._left(state, quote) - 1)
        if not self._rate:
            money = min(money, saved)
        waiting = self._waits(state, quote)
        usual = solved.empty if waiting else max(solved.empty, state.prices.mean)
        by_age, emptied = solved.at(quote.price, state.believed(quote.ahead), self.most_uses)
        filling = usual if emptied is None else min(emptied, quote.highest)
        if filling < quote.highest and state.prices.is_constant:
            # Waiting gains nothing, and would empty all slots at the same time.
            filling, money = quote.highest, min(money, saved)
        if filling < usual or (filling > usual and self._replaces(state, quote)):
            thresholds: tuple[float, ...] = (filling, *by_age)
        elif waiting and quote.own is None and quote.price > solved.empty:
            # Spend money as it comes in, up to the average price; stored samples stay.
            price = quote.price if quote.price <= state.prices.mean else 0.0
            thresholds = (price, 0.0)
            money = min(money, saved)
        else:
            thresholds = (usual, *by_age)
        if not solved.affordable:
            money = min(money, saved)
        return FleetOrder(math.inf, thresholds, money)

    def settle(self, state: TideState, totals: RoundTotals) -> TideState:
        """Update money and counts by what clients paid and admitted."""
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
        """Return the rule with this round's budget, and the expected budget of each later round."""
        return replace(self, budget=budget, expected=expected)

    def earned(self, state: TideState) -> float:
        """Return the sum of the budgets of all rounds so far."""
        return state.earned

    def worth(self, state: TideState) -> tuple[float, float] | None:
        """Return the planned money a round, and the worth of one more unit.

        None before there is a rule.
        """
        if not state.solved.by_group:
            return None
        slots = self.total_capacity * state.taking_part
        return state.solved.spends * slots, state.solved.shadow_price

    def _seen(self, quote: Quote) -> tuple[FloatArray, FloatArray]:
        """Return the prices of a round, and the part of the slots that each stands for."""
        if quote.own is None or quote.parts is None:
            return np.array([quote.price]), np.ones(1)
        step = math.ceil(len(quote.own) / MOST_CLIENTS)
        weights = quote.parts[::step]
        return quote.own[::step], weights / weights.sum()

    def _allowance(self, state: TideState, quote: Quote) -> float:
        """Return the money for a round: the budget, and a part of what was saved or overspent."""
        pace = PACE if self.num_rounds is None else min(self._left(state, quote), PACE)
        ahead = state.earned + (self.budget - self._rate) - state.spent
        return max(self._rate + ahead / pace, LEAST_ALLOWANCE * self._rate)

    @property
    def _rate(self) -> float:
        """Money a round in the long run."""
        return self.budget if self.expected is None else self.expected

    def _left(self, state: TideState, quote: Quote) -> int:
        """Return the rounds that are left, including this one, whose purchases can still train."""
        return max((self.num_rounds or 0) - quote.delay - state.round_number + 1, 1)

    def _waits(self, state: TideState, quote: Quote) -> bool:
        """Return whether empty slots wait for θ(0).

        They do in round 1, when Tide knows nothing about prices, and if filling them at the average
        price costs too much: at first all slots, later those of clients that have joined.
        """
        is_first = state.admitted < self.total_capacity
        empty = quote.empty_slots
        if not (is_first if empty is None else empty):
            return False
        knows_one = state.round_number == 1 and quote.own is None
        slots = self.total_capacity - self.stored if is_first else empty or 0
        return knows_one or slots * state.prices.mean > DEAR_FILL * self._rate

    def _replaces(self, state: TideState, quote: Quote) -> bool:
        """Return whether so few slots are empty that the cap on uses can have emptied them."""
        is_first = state.admitted < self.total_capacity
        dear = (quote.empty_slots or 0) * quote.price > DEAR_REPLACEMENT * self._rate
        return not (is_first or dear)
