"""Metrics of all shards for Prometheus, read from their meeting place.

This is not a sink: it belongs to no server, and continues when any of them stops.
"""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from tidegate.errors import ConfigurationError, SupplierError
from tidegate.integrations.prometheus import MetricsPage
from tidegate.server.shards import Meeting

OF_ALL = {
    "budget": "What a round may cost in the long run, all shards together.",
    "round_number": "The last round that was divided.",
    "granted": "To all shards, up to that round.",
    "spent": "By all shards, as far as they have said.",
    "effective_samples": "Effective samples gained so far by all shards together.",
}
OF_EACH = {
    "round_number": "The last round that the shard has settled.",
    "heard": "When the shard was there last, in seconds since 1970.",
    "granted": "To the shard, up to the round that was divided last.",
    "promised_until": "The last round that the shard has a budget for.",
    "spent": "By the shard, as far as it has said.",
    "admitted": "Samples admitted.",
    "shadow_price": "What one unit of money more would be worth to the shard.",
    "cost_debt": "The shard's certificate: its overspend is never more.",
    "exposure": "What unanswered orders may turn out to have cost.",
    "fleet": "Clients that the shard plans for.",
    "effective_samples": "Effective samples gained so far.",
}


class _Shards(Collector):
    """Reads the meeting place on each scrape, so that all metrics are of one moment."""

    def __init__(self, meeting: Meeting, run: str) -> None:
        self._meeting, self._run = meeting, run

    def collect(self) -> Iterator[GaugeMetricFamily]:
        up = GaugeMetricFamily(
            "tidegate_shards_up", "Whether the meeting place answers.", labels=["run"]
        )
        try:
            view = self._meeting.look(self._run)
        except (SupplierError, ConfigurationError):
            up.add_metric([self._run], 0.0)
            yield up
            return
        up.add_metric([self._run], 1.0)
        yield up
        for name, text in OF_ALL.items():
            whole = GaugeMetricFamily(f"tidegate_shards_{name}", text, labels=["run"])
            whole.add_metric([self._run], getattr(view, name))
            yield whole
        for name, text in OF_EACH.items():
            each = GaugeMetricFamily(f"tidegate_shard_{name}", text, labels=["run", "shard"])
            for one in view.shards:
                value = getattr(one, name)
                if value is not None:
                    each.add_metric([self._run, one.shard], value)
            yield each

    def describe(self) -> list[GaugeMetricFamily]:
        """Return nothing: the registry would read the meeting place before any scrape."""
        return []


class ShardsExporter:
    """Serves ``/metrics`` of all shards of a run.

    Args:
        meeting: where they meet; it is only read.
        run: its name, and the label of every metric.
        port: to listen on; 0 takes a free one.
        address: of this machine; others cannot connect to the default.
    """

    def __init__(
        self, meeting: Meeting, run: str, port: int = 9465, address: str = "127.0.0.1"
    ) -> None:
        registry = CollectorRegistry()
        registry.register(_Shards(meeting, run))
        self._page = MetricsPage(registry, port, address)
        self.port = self._page.port
        """The port that it listens on."""

    def close(self) -> None:
        """Release the port."""
        self._page.close()
