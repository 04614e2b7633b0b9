"""A sink for Prometheus, on a port of the server."""

import math
import threading
import time
from collections.abc import Iterator, Mapping, Sequence

from tidegate.errors import ConfigurationError
from tidegate.runs.sinks import Moment, Source
from tidegate.server.fleet_round import FleetRound

try:
    import prometheus_client
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        "prometheus_client is not installed; pip install 'tidegate[prometheus]'",
        name="prometheus_client",
    ) from missing

GAUGES = {
    "price": "Price of a sample in the round that was decided last.",
    "budget": "What a round may cost in the long run.",
    "overspend": "Spent above budget so far; below it if negative.",
    "cost_debt": "The certificate: overspend is never more.",
    "exposure": "What unanswered orders may turn out to have cost.",
    "fleet": "Clients that are planned for.",
    "away": "Clients that are planned for and cannot be reached.",
    "retired": "Clients that an operator has taken out for good.",
    "orders": "Clients that were sent an order in the last round.",
    "answered": "Clients that answered it in time.",
    "averaged": "Clients whose models went into the last average.",
    "exhausted": "Clients whose stream gave less than was ordered.",
    "set_aside": "Samples so far that clients could not read, acquire or store.",
    "expired": "Samples so far that left because they had been held for too long.",
    "erased": "Samples so far that left because their subject is forgotten.",
    "under_way": "Samples that clients have bought and that have not come yet.",
    "under_way_spent": "Committed for them.",
    "oldest_under_way": "Rounds since the oldest of them was bought.",
    "failing_suppliers": "Clients whose supplier could not be asked or did not answer.",
    "full_spools": "Clients whose stream has no room for more.",
    "at_ceiling": "Clients whose own ceiling has cut their last order.",
    "spool_dropped": "Messages that full streams have dropped so far.",
    "empty_clients": "Clients that hold no sample, and to which none is under way.",
    "refunded": "What suppliers have paid back so far.",
    "pause": "Rounds to come in which nothing is bought, because nothing could be used.",
    "slots": "Samples that the memory of the clients that were sent an order holds.",
    "training_size": "Samples that the last round trained on.",
    "distinct_samples": "Distinct samples trained on so far.",
    "effective_samples": "Effective samples gained so far.",
}
COUNTERS = {"spent": "Money spent, before refunds.", "admitted": "Samples admitted."}


class _Whole(prometheus_client.CollectorRegistry):
    """Metrics that are collected all at once: never some of one round and some of another.

    A scrape that names the metrics that it wants (``name[]=``) reads each by itself.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        super().__init__()

    def collect(self) -> Iterator[prometheus_client.Metric]:
        """Yield everything, as of one moment."""
        with self.lock:
            return iter(list(super().collect()))


class MetricsPage:
    """A page for Prometheus at ``/metrics``, until it is closed.

    Args:
        registry: the metrics.
        port: to listen on; 0 takes a free one.
        address: of this machine.
    """

    def __init__(
        self, registry: prometheus_client.CollectorRegistry, port: int, address: str
    ) -> None:
        try:
            self._server, self._thread = prometheus_client.start_http_server(
                port, address, registry=registry
            )
        except OSError as wrong:
            raise ConfigurationError(
                f"cannot listen on port {port} of {address} ({wrong.strerror}); give another, or "
                "0 for any free one"
            ) from wrong
        self.port = int(self._server.server_port)

    def close(self) -> None:
        """Release the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Prometheus:
    """Serves ``/metrics``.

    Args:
        port: to listen on; 0 takes a free one.
        address: of this machine; others cannot connect to the default.
        run: label of every metric, if one Prometheus watches several runs.
    """

    def __init__(self, port: int = 9464, address: str = "127.0.0.1", run: str = "") -> None:
        self._registry = _Whole()
        self._run = run
        self._refunded = 0.0
        self._gauges = {name: self._gauge(name, text) for name, text in GAUGES.items()}
        self._counters = {
            name: prometheus_client.Counter(
                f"tidegate_{name}", text, ["run"], registry=self._registry
            )
            for name, text in COUNTERS.items()
        }
        self._round = self._gauge("round", "The last round that was settled.")
        self._decided_at = self._gauge(
            "price_timestamp_seconds", "When the last price came, and orders were sent."
        )
        self._settled_at = self._gauge(
            "round_timestamp_seconds", "When the last round was settled."
        )
        self._metrics = prometheus_client.Gauge(
            "tidegate_metric",
            "What was measured about the model.",
            ["run", "source", "name"],
            registry=self._registry,
        )
        for gauge in (self._decided_at, self._settled_at):
            gauge.set(time.time())  # the first price has as much time as any other
        self._page = MetricsPage(self._registry, port, address)
        self.port = self._page.port
        """The port that it listens on."""

    def resumed(self, before: Sequence[FleetRound]) -> None:
        """Continue the totals from the books; none exist before, so that none falls to 0.

        Gauges show the last settled round, as far as its row tells.
        """
        with self._registry.lock:
            spent = math.fsum(row.spent for row in before)
            self._refunded = before[-1].refunded if before else 0.0
            self._counters["spent"].labels(self._run).inc(spent + self._refunded)
            self._counters["admitted"].labels(self._run).inc(sum(row.admitted for row in before))
            if before:
                last = before[-1]
                for name, value in last.numbers().items():
                    if name in self._gauges:
                        self._gauges[name].set(value)
                self._gauges["budget"].set((spent - last.overspend) / len(before))
                self._round.set(last.round_number)

    def decided(self, round_number: int, price: float) -> None:
        """Note the time, and the price."""
        with self._registry.lock:
            self._gauges["price"].set(price)
            self._decided_at.set(time.time())

    def settled(self, moment: Moment) -> None:
        """Set every gauge, and continue the totals."""
        values = moment.numbers()
        with self._registry.lock:
            for name, gauge in self._gauges.items():
                gauge.set(values[name])
            back = moment.done.refunded - self._refunded  # a counter must not fall
            self._refunded = moment.done.refunded
            self._counters["spent"].labels(self._run).inc(max(moment.done.spent + back, 0.0))
            self._counters["admitted"].labels(self._run).inc(moment.done.admitted)
            self._round.set(moment.done.round_number)
            self._settled_at.set(time.time())

    def measured(self, round_number: int, source: Source, metrics: Mapping[str, float]) -> None:
        """Set the newest value of each metric."""
        with self._registry.lock:
            for name, value in metrics.items():
                self._metrics.labels(self._run, source, name).set(value)

    def close(self, *, failed: bool) -> None:
        """Release the port."""
        self._page.close()

    def _gauge(self, name: str, text: str) -> "prometheus_client.Gauge":
        return prometheus_client.Gauge(
            f"tidegate_{name}", text, ["run"], registry=self._registry
        ).labels(self._run)
