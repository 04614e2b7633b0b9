"""Alert rules and the dashboard, judged by Prometheus's own programs and by a real scrape."""

import json
import re
import shutil
import subprocess
import sys
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from deployment import free_port, kill, wait_for
from flwr.app import ArrayRecord, MetricRecord
from flwr.serverapp.strategy import FedAvg
from gated_apps import MODEL, gated_app

from tidegate.flower import AdmissionControl, LocalGrid
from tidegate.integrations.prometheus import COUNTERS, GAUGES, Prometheus
from tidegate.prices import PricePath, UniformPrice

FOLDER = Path(__file__).parents[2] / "monitoring"
ROUNDS = 4

needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("promtool") is None,
    reason="Prometheus is not installed (Debian: apt-get install prometheus)",
)


@pytest.mark.process
@needs_prometheus
@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "rules", "alerts.yml"],
        ["check", "config", "prometheus.yml"],
        ["test", "rules", "alerts.test.yml"],
    ],
    ids=" ".join,
)
def test_promtool_finds_nothing_wrong(arguments: list[str]) -> None:
    done = subprocess.run(
        ["promtool", *arguments], cwd=FOLDER, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def expressions() -> list[str]:
    """Of every panel of the dashboard."""
    dashboard = json.loads((FOLDER / "dashboard.json").read_text("utf-8"))
    return [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]


def test_dashboard_and_rules_speak_of_numbers_that_are_served() -> None:
    served = {f"tidegate_{name}" for name in GAUGES} | {
        f"tidegate_{name}_total" for name in COUNTERS
    }
    served |= {"tidegate_round", "tidegate_metric"}
    served |= {"tidegate_price_timestamp_seconds", "tidegate_round_timestamp_seconds"}
    rules = (FOLDER / "alerts.yml").read_text("utf-8")
    for text in (*expressions(), *re.findall(r"expr: (.*)", rules)):
        names = set(re.findall(r"tidegate_\w+", text))
        assert names
        assert names <= served, text


def test_every_alert_is_tested() -> None:
    alerts = re.findall(r"alert: (\w+)", (FOLDER / "alerts.yml").read_text("utf-8"))
    tests = (FOLDER / "alerts.test.yml").read_text("utf-8")
    assert len(alerts) == 15
    for alert in alerts:
        assert len(re.findall(rf"alertname: {alert}\b", tests)) >= 2, alert


@pytest.mark.process
def test_the_rules_are_those_of_the_table_of_alarms(tmp_path: Path) -> None:
    script = FOLDER.parent / "scripts" / "make-alerts"
    subprocess.run([sys.executable, script, tmp_path / "alerts.yml"], check=True)
    written = (tmp_path / "alerts.yml").read_text("utf-8")
    assert written == (FOLDER / "alerts.yml").read_text("utf-8")


class Server:
    """A real Prometheus."""

    def __init__(self, port: int) -> None:
        self._address = f"http://127.0.0.1:{port}"

    def get(self, path: str, **query: str) -> Any:
        """What its interface answers, if it does."""
        address = f"{self._address}{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(address, timeout=5) as answer:  # noqa: S310 - this machine
                return json.loads(answer.read())["data"]
        except OSError:
            return None

    def value(self, expression: str) -> list[float]:
        """An expression's values now."""
        found = self.get("/api/v1/query", query=expression)
        return [float(one["value"][1]) for one in found["result"]] if found else []


@contextmanager
def prometheus(folder: Path, target: int) -> Iterator[Server]:
    """Start it on our rules, with one target."""
    text = (FOLDER / "prometheus.yml").read_text("utf-8")
    text = text.replace("127.0.0.1:9464", f"127.0.0.1:{target}").replace("15s", "200ms")
    text = text.replace("[alerts.yml]", f"[{FOLDER / 'alerts.yml'}]")
    (folder / "prometheus.yml").write_text(text, "utf-8")
    port = free_port()
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                "prometheus", f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    try:
        yield Server(port)
    finally:
        kill(process)


@pytest.mark.process
@needs_prometheus
def test_a_real_prometheus_scrapes_a_run_and_knows_the_rules(tmp_path: Path) -> None:
    sink, seen = Prometheus(port=0, run="night"), threading.Event()

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        if server_round == ROUNDS:
            assert seen.wait(60)  # the run waits until it was looked at
        return MetricRecord({"accuracy": 0.5})

    one = AdmissionControl(
        FedAvg(fraction_evaluate=0.0),
        "tide",
        budget=22.0,
        prices=PricePath(UniformPrice(1, 10), seed=1),
        sinks=[sink],
    )
    grid = LocalGrid(gated_app(), [{"partition-id": number} for number in range(4)])
    run = threading.Thread(
        target=one.start, args=(grid, MODEL, ROUNDS), kwargs={"evaluate_fn": evaluate}
    )
    with prometheus(tmp_path, sink.port) as server:
        run.start()
        try:
            wait_for(lambda: server.value("tidegate_round") == [ROUNDS] or None, "a scrape", 60)
            assert server.value("tidegate_spent_total") == [
                pytest.approx(sum(row.spent for row in one.rounds))
            ]
            assert server.value('tidegate_metric{name="accuracy",source="server"}') == [0.5]
            for expression in expressions():
                assert server.value(expression.replace("$run", ".*")), expression
            rules = server.get("/api/v1/rules")["groups"][0]["rules"]
            assert len(rules) == 15
            assert all(rule["health"] != "err" for rule in rules)
        finally:
            seen.set()
            run.join()
