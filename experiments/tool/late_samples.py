"""A supplier for experiments: it delivers every sample unchanged, rounds after the purchase."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Context

from experiments.tool.job import Job
from tidegate.client.supplier import Delivered, Outcome, Request
from tidegate.problem.delays import Delays

WAITED = "tidegate.waited"
"""The record in a node's state with the orders since each purchase under way."""


class LateSamples:
    """A supplier that delivers after a delay drawn for each purchase, as in the simulation.

    A client collects its purchases once with every order, so orders count as rounds. The node's
    state holds this count, because most engines create a new supplier for every message.
    """

    def __init__(self, delays: Delays, context: Context, seed: int) -> None:
        self._delays = delays
        self._seed = seed
        self._client = np.array([int(context.node_config["partition-id"])])
        self._state = context.state
        self._state.setdefault(WAITED, ConfigRecord())

    def ask(self, requests: Sequence[Request]) -> None:
        """Do nothing: samples need no request."""

    def collect(self, keys: Sequence[str]) -> Iterator[Outcome]:
        """Yield the purchases that have arrived, and forget them."""
        seen = self._state.config_records[WAITED]
        waited = {key: int(str(seen.get(key, 0))) + 1 for key in keys}
        self._state[WAITED] = ConfigRecord(dict(waited))
        for key in keys:
            place = np.array([int(key.rpartition("/")[2])])  # in the client's stream, from 1 on
            if waited[key] >= self._delays.draw(self._seed, self._client, place)[0]:
                yield Delivered(key, None)

    def cancel(self, keys: Sequence[str]) -> Iterator[Outcome]:
        """Cancel nothing."""
        return iter(())

    def complete(self, sample: Any, answer: None) -> Any:
        """Return the sample unchanged."""
        return sample


def late_samples(context: Context) -> LateSamples | None:
    """Return the supplier of an experiment's node; None if samples come at once."""
    job = Job.from_config(context.run_config)
    delays = Delays.read(job.delay)
    return None if delays.none else LateSamples(delays, context, job.seed)
