"""A fleet, its memory, and its budget."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tidegate._internal.arguments import check_number, check_whole_number, shown
from tidegate._internal.arrays import FloatArray, IntArray
from tidegate.cohorts import Cohorts
from tidegate.errors import ConfigurationError
from tidegate.problem.delays import Delays
from tidegate.problem.earlier_samples import NOTHING, EarlierSamples
from tidegate.problem.learning_constants import LearningConstants
from tidegate.wire import LARGEST_AMOUNT, LARGEST_CAPACITY

MOST_ROUNDS = 10_000_000
"""A plan looks at every round: ten million take seconds."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Problem:
    """A fleet, its memory, and its budget.

    >>> problem = Problem(buffer_capacities=[8, 12], budget=11.0, mean_price=5.5, num_rounds=100)
    >>> problem.total_capacity, problem.num_clients
    (20, 2)
    >>> problem.capacity_shares
    array([0.4, 0.6])
    """

    buffer_capacities: Sequence[int] | IntArray
    """B_m: samples that each client's memory is meant to hold."""
    budget: float
    """C: what may be spent in a round, in the long run."""
    mean_price: float | Sequence[float] | FloatArray
    """c̄: average price of one sample over the run; one number, or one a client."""
    num_rounds: int
    """T."""
    cohorts: Cohorts = field(default_factory=Cohorts)
    """Which clients take part in a round; all by default."""
    delays: Delays = field(default_factory=Delays)
    """How long a purchase takes; by default a sample trains in the round that buys it."""
    train_on: int | Sequence[int] | IntArray | None = None
    """Samples that each client trains on in a round, the least used of those it stores: one number
    or one a client; None for all."""
    known_ahead: int = 0
    """Rounds whose prices are known in advance, as electricity prices are for a day."""
    learning: LearningConstants = field(default_factory=LearningConstants)
    earlier: EarlierSamples = NOTHING
    """What clients hold before round 1; nothing by default."""

    def __post_init__(self) -> None:
        given = np.asarray(self.buffer_capacities)
        if given.ndim != 1 or given.size == 0:
            raise ConfigurationError(
                "buffer_capacities must list at least one client's capacity, such as [8, 12], got "
                f"{shown(self.buffer_capacities)}"
            )
        if not np.issubdtype(given.dtype, np.integer):
            raise ConfigurationError(f"buffer_capacities must be whole numbers, got {given.dtype}")
        if given.min() < 1:
            raise ConfigurationError(
                f"every client needs room for at least 1 sample, got {given.min()}; "
                "leave out clients without memory"
            )
        if given.max() > LARGEST_CAPACITY:
            raise ConfigurationError(
                f"a client's capacity must be at most {LARGEST_CAPACITY}, got {given.max()}; "
                "count larger units (batches) instead of samples"
            )
        capacities = given.astype(np.int64)
        capacities.setflags(write=False)
        object.__setattr__(self, "buffer_capacities", capacities)
        if np.shape(self.mean_price) not in ((), given.shape):
            raise ConfigurationError(
                f"mean_price must be one number or one a client ({given.size}), "
                f"got {np.size(self.mean_price)}"
            )
        if np.asarray(self.mean_price).dtype.kind not in "iuf":
            raise ConfigurationError(f"mean_price must be a number, got {shown(self.mean_price)}")
        lowest, highest = 1 / LARGEST_AMOUNT, LARGEST_AMOUNT
        limit = f"positive and finite, from {lowest:g} to {highest:g}"
        unit = "count money in another unit"
        for name, value in (("budget", self.budget), ("mean_price", self.average_price)):
            check_number(name, value, limit, lambda given: lowest <= given <= highest, unit)
        check_whole_number("num_rounds", self.num_rounds, most=MOST_ROUNDS)
        object.__setattr__(self, "train_on", self._training())
        check_whole_number("known_ahead", self.known_ahead, least=0, most=MOST_ROUNDS)
        held = self.earlier.occupancy
        if held.size and held.shape != capacities.shape:
            raise ConfigurationError(
                f"earlier samples must be counted for every client ({given.size}), got "
                f"{held.size}; [0] is for a client that stores none"
            )
        if held.size and (held > capacities).any():
            client = int(np.argmax(held - capacities))
            raise ConfigurationError(
                f"client {client} has room for {capacities[client]} samples, but stores "
                f"{held[client]} earlier ones; count the others as left"
            )

    def _training(self) -> IntArray | None:
        """Return what each client trains on; None if that is all that it stores."""
        if self.train_on is None:
            return None
        training = np.asarray(self.train_on)
        if training.shape not in ((), self.capacities.shape) or training.dtype.kind not in "iu":
            raise ConfigurationError(
                f"train_on must be a whole number, or one a client ({self.num_clients}), got "
                f"{shown(self.train_on)}"
            )
        if training.min() < 1:
            raise ConfigurationError(
                f"a client trains on at least 1 sample, got train_on={training.min()}"
            )
        training = np.minimum(training, self.capacities)
        return None if (training == self.capacities).all() else training

    @property
    def capacities(self) -> IntArray:
        """B_m as a read-only array."""
        return np.asarray(self.buffer_capacities, dtype=np.int64)

    @property
    def num_clients(self) -> int:
        """M."""
        return len(self.buffer_capacities)

    @property
    def total_capacity(self) -> int:
        """ΣB_m."""
        return int(self.capacities.sum())

    @functools.cached_property
    def mean_fraction_train(self) -> float:
        """q: the part of the fleet that a round reaches on average."""
        return self.cohorts.mean_fraction_train(self.num_rounds, self.num_clients)

    @property
    def slots_a_round(self) -> float:
        """q·ΣB_m: slots whose samples a round trains on, on average, if they are full."""
        return self.mean_fraction_train * self.total_capacity

    @property
    def chance(self) -> float:
        """The part of what full buffers store that trains in a round."""
        return 1.0 if self.train_on is None else int(np.sum(self.train_on)) / self.total_capacity

    @property
    def capacity_shares(self) -> FloatArray:
        """Each client's part of every admission: B_m / ΣB_m, as λ_m = B_m / K makes it."""
        return self.capacities / self.total_capacity

    @property
    def average_price(self) -> float:
        """c̄ of a sample that is split among the clients by their shares."""
        return float(np.sum(self.capacity_shares * np.asarray(self.mean_price)))

    @property
    def affordable_admission(self) -> float:
        """C / c̄: samples a round that the budget pays for at the average price."""
        return self.budget / self.average_price

    def among(self, num_clients: int) -> "Problem":
        """Return the same problem for only the first clients, with the whole budget."""
        prices = self.mean_price
        if np.shape(prices):
            prices = np.asarray(prices)[:num_clients]
        training = None if self.train_on is None else np.asarray(self.train_on)[:num_clients]
        return replace(
            self,
            buffer_capacities=self.capacities[:num_clients],
            train_on=training,
            mean_price=prices,
            earlier=replace(self.earlier, stored=self.earlier.by_client[:num_clients]),
        )
