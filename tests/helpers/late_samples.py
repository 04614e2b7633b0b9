"""A supplier that delivers every sample after a drawn delay, and a fleet of gates that have one."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tidegate.client.gate import Gate
from tidegate.client.store import Store
from tidegate.client.streams import IndexedStream
from tidegate.client.supplier import Delivered, Outcome, Request
from tidegate.policies import ControlOptions
from tidegate.policies.presets import make_policy
from tidegate.prices import PriceLaw, PricePath
from tidegate.problem import Problem
from tidegate.problem.delays import Delays
from tidegate.server.controller import Controller
from tidegate.server.fleet import Terms
from tidegate.server.fleet_round import FleetRound
from tidegate.wire import Introduction


class DelayedSamples:
    """Delays are drawn as the simulation draws them; the test moves ``now``."""

    def __init__(self, delays: Delays, seed: int, client: int) -> None:
        self._delays, self._seed, self._client = delays, seed, np.array([client])
        self._due: dict[str, int] = {}
        self.now = 0

    def ask(self, requests: Sequence[Request]) -> None:
        for one in requests:
            place = np.array([int(one.key.rpartition("/")[2])])
            delay = int(self._delays.draw(self._seed, self._client, place)[0])
            self._due.setdefault(one.key, self.now + delay)

    def collect(self, keys: Sequence[str]) -> Iterator[Outcome]:
        return (Delivered(key, None) for key in keys if self._due[key] <= self.now)

    def cancel(self, keys: Sequence[str]) -> Iterator[Outcome]:
        return iter(())

    def complete(self, sample: Any, answer: None) -> Any:
        return sample


class LateFleet:
    """A controller and real gates; samples come as late as the problem says."""

    def __init__(
        self, name: str, problem: Problem, options: ControlOptions, law: PriceLaw, seed: int
    ) -> None:
        terms = Terms(
            policy=lambda given: make_policy(name, given, options),
            policy_name=name,
            budget=problem.budget,
            prices=PricePath(law, seed),
            num_rounds=problem.num_rounds,
            fraction_train=problem.mean_fraction_train,
            learning=problem.learning,
        )
        self.controller = Controller(terms, "r")
        self.names = [f"client-{number:02d}" for number in range(problem.num_clients)]
        self.stores, self._suppliers, self._gates = {}, {}, {}
        for number, client in enumerate(self.names):
            capacity = int(problem.capacities[number])
            trains = 0 if problem.train_on is None else int(np.asarray(problem.train_on)[number])
            store = Store(None, "r", client, capacity, train_on=trains)
            self.stores[client] = store
            self._suppliers[client] = late = DelayedSamples(problem.delays, seed, number)
            supplier = None if problem.delays.none else late
            self._gates[client] = Gate(store, IndexedStream(range(100_000)), supplier=supplier)
            hello = Introduction(run="r", client=client, buffer_capacity=capacity, buffer_id="b")
            self.controller.join(replace(hello, train_on=trains))

    def play(self, present: Collection[str] = ()) -> FleetRound:
        """One round with these clients, or with all."""
        for supplier in self._suppliers.values():
            supplier.now = self.controller.round_number
        for client, order in self.controller.decide(present or self.names, self.names).items():
            self.controller.book(client, self._gates[client].apply(order))
        return self.controller.close()
