"""Several servers under one budget, beside one server for all: what is spent, and what is gained.

python benchmarks/shards.py --shards 10 100 --plot docs/pictures/shards.png
python benchmarks/shards.py --shards 1000 --seeds 1 --all-at-once

Every shard has clients of its own and prices of its own level, so that an equal division of the
budget would waste money. Messages between shards and coordinator are lost and late, shards are cut
off and come back, or stand still for a while.
"""

import argparse
import dataclasses
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tidegate._internal.arrays import FloatArray
from tidegate.admission.tide import Tide, TideState
from tidegate.policies import JointPolicy
from tidegate.policies.tide import tide
from tidegate.problem import Problem
from tidegate.server.shards import Coordinator, Grant, Purse, Report
from tidegate.simulation.rounds import begin, play_round
from tidegate.simulation.summary import estimate
from tidegate.theory.reuse import ReuseTally
from tidegate.wire import LARGEST_AMOUNT

RUN = "shards"
CLIENTS = 10
"""Of each shard."""
CAPACITY = 10
BUDGET = 0.55
"""For a slot and round, on average."""
LOWEST, HIGHEST = 0.5, 2.0
"""Levels of prices: a region pays so many times what the average does."""


@dataclass(frozen=True)
class Trouble:
    """What goes wrong between shards and coordinator."""

    lost: float = 0.0
    """Part of the messages."""
    longest_delay: int = 0
    """Rounds; each message has its own."""
    cut_off: tuple[float, int, int] = (0.0, 0, 0)
    """Part of the shards that nobody hears and that hear nobody, from a round to another."""
    standing: tuple[float, int, int] = (0.0, 0, 0)
    """Part of the shards that do nothing at all, from a round to another."""
    coordinator_away: tuple[int, int] = (0, 0)
    """Rounds in which the coordinator does nothing; it goes on from what it has saved."""
    trade_places: int | None = None
    """Round from which on the dearest region is the cheapest, and so on."""


TROUBLES = {
    "none": Trouble(),
    "delays up to 5 rounds": Trouble(longest_delay=5),
    "30 % of messages lost": Trouble(lost=0.3, longest_delay=3),
    "a third cut off for 80 rounds": Trouble(cut_off=(1 / 3, 200, 280)),
    "a sixth stands still for 80 rounds": Trouble(standing=(1 / 6, 200, 280)),
    "coordinator away for 80 rounds": Trouble(coordinator_away=(200, 280)),
    "dear and cheap regions trade places": Trouble(trade_places=250),
}
LONGER = {"a third cut off for 200 rounds": Trouble(cut_off=(1 / 3, 200, 400))}
"""Longer than budgets are promised ahead."""
ALL_AT_ONCE = {
    "none": Trouble(),
    "all at once": Trouble(
        lost=0.3,
        longest_delay=5,
        cut_off=(1 / 3, 200, 280),
        standing=(1 / 6, 250, 320),
        coordinator_away=(330, 370),
    ),
}


class Network:
    """Carries messages with the delays and losses of a seed."""

    def __init__(self, trouble: Trouble, names: Sequence[str], seed: int) -> None:
        self._trouble = trouble
        self._draw = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(7,)))
        part, *self._cut_rounds = trouble.cut_off
        self._cut = set(names[: round(part * len(names))])
        self._under_way: list[tuple[int, Report | Grant]] = []

    def send(self, now: int, messages: list[Any]) -> None:
        """Lose each, or let it arrive at once or some rounds later."""
        for message in messages:
            late = int(self._draw.integers(0, self._trouble.longest_delay + 1))
            lost = self._draw.random() < self._trouble.lost or self._is_cut(now, message)
            if not lost:
                self._under_way.append((now + late, message))

    def arrived(self, now: int, kind: type) -> list[Any]:
        """What arrives by now, of a kind, the late before the punctual."""
        here = [one for due, one in self._under_way if due <= now and isinstance(one, kind)]
        self._under_way = [
            (due, one) for due, one in self._under_way if due > now or not isinstance(one, kind)
        ]
        return [one for one in here if not self._is_cut(now, one)]

    def _is_cut(self, now: int, message: Report | Grant) -> bool:
        first, last = self._cut_rounds
        return first <= now < last and message.shard in self._cut


class Shard:
    """A part of the fleet, with a Tide of its own whose budget is granted round by round."""

    def __init__(self, name: str, num_rounds: int, level: float, budget: float) -> None:
        self.name = name
        self._problem = Problem(
            buffer_capacities=np.full(CLIENTS, CAPACITY),
            budget=budget,
            mean_price=5.5 * level,
            num_rounds=num_rounds,
        )
        self._policy = tide(self._problem)
        if not isinstance(self._policy.admission, Tide):
            raise TypeError(self._policy.admission)
        self._rule = self._policy.admission
        self.state = begin(self._policy, self._problem)
        self.purse = Purse(RUN, name)
        self.budget = 0.0
        self.spent = 0.0

    def play(self, now: int, price: float) -> Report | None:
        """One round; reports once there is something to say."""
        self.budget = self.purse.budget(now, self.state.server.earned)
        rate = self.purse.rate(now)
        rule = dataclasses.replace(self._rule, budget=self.budget, expected=rate)
        policy = dataclasses.replace(self._policy, admission=rule)
        self.state, row = play_round(policy, self._problem, self.state, price)
        self.spent += row.spent
        worth = rule.worth(self.state.server)
        if worth is None:
            return None
        spends, shadow_price = (min(value, LARGEST_AMOUNT) for value in worth)
        return Report(
            run=RUN, shard=self.name, round_number=now, spends=spends, shadow_price=shadow_price
        )


@dataclass
class Outcome:
    """Of one run."""

    spent: float
    """Money a round."""
    certificate_margin: float
    """The least of Σ Z_i - total overspend over rounds; below 0 only by rounding."""
    granted_margin: float
    """The least of C·t - Σ of all budgets up to t."""
    gained: list[float] = field(default_factory=list)
    """Effective samples so far, by rounds."""
    shadow_prices: list[list[float]] = field(default_factory=list)
    """Of every shard, by rounds."""


def levels(shards: int) -> FloatArray:
    """Of prices, from the cheapest region to the dearest, in an order that tells nothing."""
    spread = np.geomspace(LOWEST, HIGHEST, shards)
    return np.random.default_rng(1).permutation(spread)


def price_paths(shards: int, rounds: int, trouble: Trouble, seed: int) -> FloatArray:
    """One row a round: a price for each shard, independent from the others."""
    draw = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(8,)))
    paths = draw.uniform(1, 10, (rounds, shards))
    turn = rounds if trouble.trade_places is None else trouble.trade_places - 1
    paths[:turn] *= levels(shards)
    paths[turn:] *= LOWEST * HIGHEST / levels(shards)
    return paths


def play(shards: int, rounds: int, trouble: Trouble, seed: int, **options: Any) -> Outcome:
    """One run of several shards."""
    names = [f"shard-{number}" for number in range(shards)]
    budget = BUDGET * CLIENTS * CAPACITY * shards
    coordinator = Coordinator(RUN, budget, dict.fromkeys(names, CLIENTS * CAPACITY), **options)
    record = coordinator.to_record()
    network = Network(trouble, names, seed)
    paths, level = price_paths(shards, rounds, trouble, seed), levels(shards)
    fleet = {
        name: Shard(name, rounds, level[number], budget / shards)
        for number, name in enumerate(names)
    }
    part, *pause = trouble.standing
    still = set(names[len(names) - round(part * len(names)) :])
    outcome = Outcome(0.0, np.inf, np.inf)
    spent = granted = 0.0
    for now, prices in enumerate(paths, start=1):
        if not trouble.coordinator_away[0] <= now < trouble.coordinator_away[1]:
            coordinator = Coordinator.from_record(record)  # as after a restart
            grants = coordinator.divide(now, network.arrived(now, Report))
            record = coordinator.to_record()
            network.send(now, grants)
        for grant in network.arrived(now, Grant):
            fleet[grant.shard].purse.take(grant)
        for (name, shard), price in zip(fleet.items(), prices, strict=True):
            if pause[0] <= now < pause[1] and name in still:
                shard.budget = 0.0
                continue
            before = shard.spent
            report = shard.play(now, float(price))
            spent, granted = spent + shard.spent - before, granted + shard.budget
            network.send(now, [report] if report else [])
        debt = sum(shard.state.server.cost_debt for shard in fleet.values())
        outcome.certificate_margin = min(outcome.certificate_margin, debt - (spent - budget * now))
        outcome.granted_margin = min(outcome.granted_margin, budget * now - granted)
        outcome.gained.append(together([one.state.tally for one in fleet.values()]))
        outcome.shadow_prices.append(
            [one.state.server.solved.shadow_price for one in fleet.values()]
        )
    outcome.spent = spent / rounds
    return outcome


def together(tallies: Sequence[ReuseTally]) -> float:
    """Effective samples of all shards: three sums."""
    uses = sum(one.total_uses for one in tallies)
    return uses**2 / max(sum(one.squared_uses for one in tallies), 1)


def central(shards: int, rounds: int, trouble: Trouble, seed: int) -> list[float]:
    """Effective samples so far, by rounds, of one server for all of them, at the same prices."""
    prices = np.repeat(price_paths(shards, rounds, trouble, seed), CLIENTS, axis=1)
    problem = Problem(
        buffer_capacities=np.full(CLIENTS * shards, CAPACITY),
        budget=BUDGET * CLIENTS * CAPACITY * shards,
        mean_price=float(prices.mean()),
        num_rounds=rounds,
    )
    policy: JointPolicy[TideState] = tide(problem)
    state, gained = begin(policy, problem), []
    for row in prices:
        state, played = play_round(policy, problem, state, row)
        gained.append(played.effective_samples)
    return gained


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shards", type=int, nargs="+", default=[10])
    parser.add_argument("--rounds", type=int, default=600)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--all-at-once", action="store_true")
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    troubles = ALL_AT_ONCE if options.all_at_once else {**TROUBLES, **LONGER}
    print(f"{CLIENTS} clients of {CAPACITY} slots a shard, {options.rounds} rounds, "
          f"{options.seeds} seeds, mean ± 95 %\n")  # fmt: skip
    print("| shards | trouble | spent, part of the budget | effective, part of one server's | "
          "least margin of the certificate, rounds' budgets |\n|---|---|---|---|---|")  # fmt: skip
    drawn: dict[str, FloatArray] = {}
    for shards in options.shards:
        budget = BUDGET * CLIENTS * CAPACITY * shards
        for name, trouble in troubles.items():
            alone = [
                central(shards, options.rounds, trouble, seed) for seed in range(options.seeds)
            ]
            runs = [play(shards, options.rounds, trouble, seed) for seed in range(options.seeds)]
            spent = estimate([run.spent / budget for run in runs])
            gained = estimate([r.gained[-1] / one[-1] for r, one in zip(runs, alone, strict=True)])
            margin = min(min(run.certificate_margin, run.granted_margin) for run in runs)
            print(f"| {shards} | {name} | {spent.mean:.3f} ± {spent.half_width:.3f} | "
                  f"{gained.mean:.3f} ± {gained.half_width:.3f} | {margin / budget:.2g} |",
                  flush=True)  # fmt: skip
            parts = [np.array(r.gained) / np.array(one) for r, one in zip(runs, alone, strict=True)]
            drawn.setdefault(name, np.mean(parts, axis=0))
            if options.plot is not None and name == "none" and shards == options.shards[0]:
                prices = np.array(runs[0].shadow_prices)
    if options.plot is not None:
        draw(drawn, prices, options.plot)


def draw(gained: dict[str, FloatArray], shadow_prices: FloatArray, path: Path) -> None:
    """Shadow prices of the first run, and what is gained beside one server."""
    from matplotlib import pyplot as plt  # noqa: PLC0415 - only for a picture

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    rounds = np.arange(1, len(shadow_prices) + 1)
    left.semilogy(rounds, np.where(shadow_prices > 0, shadow_prices, np.nan), lw=0.8)
    left.set(xlabel="round", title="What one unit of money is worth, by shard")
    colours = ("0.3", "#009E73", "#56B4E9", "#0072B2", "#CC79A7", "#E69F00", "#7F5539", "#D55E00")
    for (name, values), colour in zip(gained.items(), itertools.cycle(colours), strict=False):
        right.plot(rounds, values, label=name, color=colour, lw=1.2)
    right.axhspan(0.98, 1.02, color="0.9", zorder=0)
    right.set(xlabel="round", title="Effective samples, part of one server's", ylim=(0.2, 1.1))
    right.legend(fontsize=7, loc="lower left")
    for axes in (left, right):
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
