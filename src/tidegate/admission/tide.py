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

With a cap on uses (``most_uses``), a slot is empty again once its sample was used as often as it
may be. The rule knows this beforehand and replaces most samples earlier. Where the budget pays for
full buffers, such a slot is filled at any price; where it does not, up to a price that keeps as
many slots in use as the budget can.

Where samples come d rounds after they were bought, those that they replace have trained d rounds
more by then: the rule looks up the threshold of that age.
"""

import math
from dataclasses import dataclass, field, replace

import numpy as np

from tidegate._internal.arrays import FloatArray
from tidegate._internal.saving import ADDED
from tidegate.admission.debt import next_cost_debt
from tidegate.admission.forecasts import Forecasts
from tidegate.admission.price_change import EVERY, rounds_since_change
from tidegate.admission.price_memory import PriceMemory
from tidegate.admission.rule import FleetOrder, Quote, RoundTotals
from tidegate.admission.thresholds import OTHER_ALLOWANCE, Thresholds, solve

MORE_PRICES = 1.1
"""A rule is solved again after so many times the rounds that it was solved for."""
LEAST_ALLOWANCE = 0.2
"""Of the budget: a rule to go on with when more was spent than is left."""
PACE = 100
"""Rounds in which what was overspent is saved, and vice versa; or those that are left, if fewer."""
DEAR_FILL = 15
"""Rounds' budget. A first fill that costs less at the average price is bought up to that price:
early training is worth it."""
DEAR_REPLACEMENT = 5
"""Rounds' budget. Slots that a cap on uses has emptied are filled at any price that the rule allows
if that costs less; if more, they are filled as those of clients that have joined are."""
SMOOTHING = 20
"""Rounds from which it is learned how many slots take part."""
PRICE_GROUPS = 4
"""Low to high; what follows what is learned where it is no chance."""
RECENT = 1024
"""Rounds that this is learned from."""
MOST_CLIENTS = 1000
"""Clients whose own prices are looked at in a round, evenly spaced."""


NOTHING = FleetOrder(0.0, (0.0,))
"""Before there was any money."""


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
    changed: int = field(default=0, metadata=ADDED)
    """The last round before prices changed for good; 0 if they have not."""
    forecasts: Forecasts = field(default_factory=Forecasts, metadata=ADDED)

    def believed(self, ahead: tuple[float, ...]) -> tuple[float, ...]:
        """What is told of the next rounds' prices, as far as it was good enough lately."""
        return self.forecasts.believed(ahead, self.round_number, self.in_order)

    @property
    def in_order(self) -> FloatArray:
        """The last prices, oldest first, as far back as they are of the present level."""
        if self.round_number < RECENT:
            return self.recent[self.changed : self.round_number]
        last = min(self.round_number - self.changed, RECENT)
        return np.roll(self.recent, -(self.round_number % RECENT))[-last:]

    def of_the_present_level(self) -> "TideState":
        """Without the prices of a level that is over; the same where that did not change."""
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
    most_uses: int | None = None
    """U, rounds in which a sample trains at most; none for no cap."""

    def start(self) -> TideState:
        """Nothing seen, nothing spent."""
        return TideState(taking_part=self.fraction_train)

    def learn(self, state: TideState, quote: Quote) -> TideState:
        """Remember the price, and solve again if the rule would change."""
        recent = state.recent.copy()
        recent[(state.round_number - 1) % RECENT] = quote.price
        seen = replace(state, prices=state.prices.with_prices(*self._seen(quote)), recent=recent)
        seen = replace(seen, forecasts=seen.forecasts.told(state.round_number, quote.ahead))
        if quote.own is None:
            seen = seen.of_the_present_level()
        allowance = self._allowance(state) / (self.total_capacity * state.taking_part)
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
        solved = solve(*prices, allowance, groups, self.most_uses, ahead, old.informed)
        highest = max(quote.highest, old.highest)
        solved = replace(solved, round_number=state.round_number, highest=highest)
        return replace(seen, solved=solved)

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
        usual = solved.empty if waiting else max(solved.empty, state.prices.mean)
        by_age, emptied = solved.at(quote.price, state.believed(quote.ahead), self.most_uses)
        filling = usual if emptied is None else min(emptied, quote.highest)
        late = round(quote.delay * state.taking_part)  # rounds of a client, as ages are
        by_age = by_age[late:] or by_age[-1:]
        if filling < usual or (filling > usual and self._replaces(state, quote)):
            thresholds: tuple[float, ...] = (filling, *by_age)
        elif waiting and quote.own is None and quote.price > solved.empty:
            # Pay as you go, up to the average price; samples that are stored stay.
            price = quote.price if quote.price <= state.prices.mean else 0.0
            thresholds = (price, 0.0)
            money = min(money, saved)
        else:
            thresholds = (usual, *by_age)
        if not solved.affordable:
            money = min(money, saved)
        order, _ = FleetOrder(math.inf, thresholds, money).within(money, quote, limit)
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

    def _replaces(self, state: TideState, quote: Quote) -> bool:
        """Whether empty slots are few enough to be those of samples that were used U times."""
        is_first = state.admitted < self.total_capacity
        dear = (quote.empty_slots or 0) * quote.price > DEAR_REPLACEMENT * self._rate
        return not (is_first or dear)
