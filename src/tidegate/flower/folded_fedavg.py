"""FedAvg that keeps no replies: it adds each to a sum as it arrives.

Flower passes all replies of a round to a strategy at once: 1,000 clients with 6.6 million
parameters are 26 GB. Here the server holds a sum and a few replies, whatever the number of clients.
"""

import logging
from collections.abc import Iterable
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg
from numpy.typing import NDArray

from tidegate.flower.updates import of_usual_form

logger = logging.getLogger(__name__)


class FoldedFedAvg(FedAvg):
    """FedAvg that takes replies one by one, with the same result up to rounding.

    Inside ``AdmissionControl`` it gets replies as they arrive. On its own, or inside another
    strategy that collects replies first, it needs as much memory as FedAvg.
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
        arrays = ArrayRecord(
            {name: Array(weighted.average(total)) for name, weighted in sums.items()}
        )
        return arrays, self.train_metrics_aggr_fn(of_usual_form(metrics), self.weighted_by_key)


class _Sum:
    """Arrays times their weights, added up in double precision."""

    def __init__(self) -> None:
        self._values: NDArray[np.float64] | None = None
        self._weights: dict[np.dtype[Any], float] = {}
        """Of arrays of each type: a single client does not decide the type for all."""

    def add(self, values: NDArray[Any], weight: float) -> None:
        """Add an array; integers and booleans have an average that is neither."""
        kind = values.dtype if values.dtype.kind == "f" else np.dtype(np.float64)
        self._weights[kind] = self._weights.get(kind, 0.0) + weight
        weighed = np.multiply(values, weight, dtype=np.float64)
        if self._values is None:
            self._values = np.asarray(weighed)
        else:
            self._values += weighed

    def average(self, total: float) -> NDArray[Any]:
        """Return the average, as FedAvg would."""
        kind = max(self._weights, key=self._weights.__getitem__)
        return np.asarray(self._values / total, dtype=kind)  # type: ignore[operator]
