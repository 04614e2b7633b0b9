"""Averaging that keeps no reply: each is added to a sum as it arrives, and forgotten.

Flower hands a strategy all replies of a round at once: 1,000 clients with 6.6 million parameters
are 26 GB. Here the server holds a sum and a few replies, whatever the number of clients.
"""

import logging
import time
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg
from numpy.typing import NDArray

from tidegate.flower.local_grid import LocalGrid
from tidegate.flower.messages import AT_ONCE
from tidegate.flower.private import NodeInfo, Run
from tidegate.flower.updates import of_usual_form

SECONDS_BETWEEN = 1.0
"""Before the grid is asked again for those that have not arrived."""

logger = logging.getLogger("flwr.tidegate")


class FoldedFedAvg(FedAvg):
    """FedAvg, with the same result up to rounding, that takes replies one by one.

    Inside ``AdmissionControl`` replies come to it as they arrive. Alone, or around it another
    strategy that gathers replies first, it is FedAvg with the memory of FedAvg.
    """

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Average models and metrics by weight."""
        total, sums = 0.0, dict[str, _Sum]()
        metrics: list[RecordDict] = []
        for reply in replies:
            measured = {} if reply.has_error() else dict(reply.content.metric_records)
            weight = next(iter(measured.values()), MetricRecord()).get(self.weighted_by_key, 0)
            if isinstance(weight, list) or not weight:
                continue
            total += weight
            for record in reply.content.array_records.values():
                for name, array in record.items():
                    sums.setdefault(name, _Sum()).add(array.numpy(), weight)
            metrics.append(RecordDict({**measured}))
        logger.info("aggregate_train: folded %d results", len(metrics))
        if not total:
            return None, None
        arrays = ArrayRecord({name: Array(one.average(total)) for name, one in sums.items()})
        return arrays, self.train_metrics_aggr_fn(of_usual_form(metrics), self.weighted_by_key)


class _Sum:
    """Arrays times their weights, added up in double precision."""

    def __init__(self) -> None:
        self._values: NDArray[np.float64] | None = None
        self._kind = np.dtype(np.float16)

    def add(self, values: NDArray[Any], weight: float) -> None:
        """One more; whole numbers and truth values have an average that is neither."""
        kind = values.dtype if values.dtype.kind == "f" else np.dtype(np.float64)
        self._kind = np.promote_types(self._kind, kind)
        weighed = np.multiply(values, weight, dtype=np.float64)
        if self._values is None:
            self._values = np.asarray(weighed)
        else:
            self._values += weighed

    def average(self, total: float) -> NDArray[Any]:
        """As FedAvg would give it."""
        return np.asarray(self._values / total, dtype=self._kind)  # type: ignore[operator]


class Arrivals(Grid):
    """A grid whose replies are handed on as they arrive, a few at a time."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    def set_run(self, run: Run) -> None:
        """Serve another run."""
        self._grid.set_run(run)

    @property
    def run(self) -> Run:
        """The run that is served."""
        return self._grid.run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """Make a message."""
        return self._grid.create_message(content, message_type, dst_node_id, group_id, ttl)

    def get_node_ids(self) -> Iterable[int]:
        """All nodes."""
        return self._grid.get_node_ids()

    def get_nodes(self) -> Iterable[NodeInfo]:
        """All nodes, with their names."""
        return self._grid.get_nodes()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send messages."""
        return self._grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """The replies to these messages that have arrived."""
        return self._grid.pull_messages(message_ids)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send messages now; give their replies one after another, until the timeout."""
        if isinstance(self._grid, LocalGrid):
            return self._grid.one_by_one(messages)
        end = time.monotonic() + (np.inf if timeout is None else timeout)
        return self._arriving(list(self._grid.push_messages(messages)), end)

    def _arriving(self, message_ids: list[str], end: float) -> Iterator[Message]:
        while message_ids:
            missing: list[str] = []
            for start in range(0, len(message_ids), AT_ONCE):
                asked = message_ids[start : start + AT_ONCE]
                replies = list(self._grid.pull_messages(asked))
                heard = {reply.metadata.reply_to_message_id for reply in replies}
                missing += [one for one in asked if one not in heard]
                while replies:
                    yield replies.pop()
            if time.monotonic() >= end:
                return
            message_ids = missing
            if message_ids:
                time.sleep(SECONDS_BETWEEN)
