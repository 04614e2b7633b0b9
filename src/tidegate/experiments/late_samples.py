"""A supplier for experiments: every sample comes as it is, rounds after it was bought."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Context

from tidegate.client.supplier import Delivered, Outcome, Request
from tidegate.delays import Delays
from tidegate.experiments.job import Job

WAITED = "tidegate.waited"
"""Record of a node's state: the orders that each purchase under way has seen."""


class LateSamples:
    """Delivers after a delay that is drawn for each purchase, as in the simulation.

    A client asks once with every order what became of its purchases, so orders are rounds. How
    often it has asked is kept in the node's state: most engines make a new supplier for every
    message.
    """

    def __init__(self, delays: Delays, context: Context, seed: int) -> None:
        self._delays = delays
        self._seed = seed
        self._client = np.array([int(context.node_config["partition-id"])])
        self._state = context.state
        self._state.setdefault(WAITED, ConfigRecord())

    def ask(self, requests: Sequence[Request]) -> None:
        """Nothing needs to be asked of anybody."""

    def collect(self, keys: Sequence[str]) -> Iterator[Outcome]:
        """What has come by now; what has ended is forgotten."""
        seen = self._state.config_records[WAITED]
        waited = {key: int(str(seen.get(key, 0))) + 1 for key in keys}
        self._state[WAITED] = ConfigRecord(dict(waited))
        for key in keys:
            place = np.array([int(key.rpartition("/")[2])])  # in the client's stream, from 1 on
            if waited[key] >= self._delays.draw(self._seed, self._client, place)[0]:
                yield Delivered(key, None)

    def cancel(self, keys: Sequence[str]) -> Iterator[Outcome]:
        """Nobody gives up."""
        return iter(())

    def complete(self, sample: Any, answer: None) -> Any:
        """The sample as it is."""
        return sample


def late_samples(context: Context) -> LateSamples | None:
    """The supplier of an experiment's node; none where samples come at once."""
    job = Job.from_config(context.run_config)
    delays = Delays.read(job.delay)
    return None if delays.none else LateSamples(delays, context, job.seed)
