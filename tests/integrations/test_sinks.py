"""Prometheus, TensorBoard and MLflow show what a run did."""

import threading
import time
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deployment import wait_for
from flwr.app import ArrayRecord, MetricRecord
from mlflow.tracking import MlflowClient
from prometheus_client.parser import text_string_to_metric_families
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util.tensor_util import make_ndarray
from told_runs import ROUNDS, told_run

from tidegate.integrations.mlflow import MLflow
from tidegate.integrations.prometheus import COUNTERS, GAUGES, Prometheus
from tidegate.integrations.tensorboard import TensorBoard
from tidegate.runs.reader import read_run
from tidegate.runs.sinks import Moment


def page_of(port: int) -> dict[tuple[str, str], float]:
    """What Prometheus would read."""
    address = f"http://127.0.0.1:{port}/metrics"
    with urllib.request.urlopen(address, timeout=5) as answer:
        text = answer.read().decode()
    return {
        (sample.name, sample.labels.get("name", "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_scrape_in_the_middle_of_a_round_waits_for_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    page, scraped, seen = Prometheus(port=0), threading.Event(), []
    row = replace(told_run(rounds=1).rounds[0], overspend=7.0, cost_debt=7.0)
    set_debt = page._gauges["cost_debt"].set

    def scrape() -> None:
        seen.append(page_of(page.port))
        scraped.set()

    def scrape_before_the_debt_is_set(debt: float) -> None:
        scraper.start()
        assert not scraped.wait(1.0)
        set_debt(debt)

    scraper = threading.Thread(target=scrape)
    monkeypatch.setattr(page._gauges["cost_debt"], "set", scrape_before_the_debt_is_set)
    page.settled(Moment(row, budget=1.0, away=0, averaged=0))
    scraper.join()
    page.close(failed=False)
    assert seen[0]["tidegate_overspend", ""] == seen[0]["tidegate_cost_debt", ""] == 7.0


def test_prometheus_can_read_all_of_it_while_the_run_goes_on() -> None:
    page = Prometheus(port=0, run="r")
    began = page_of(page.port)
    for name in ("price", "round"):  # no alarm before the first round has had its time
        assert began[f"tidegate_{name}_timestamp_seconds", ""] == pytest.approx(time.time(), abs=60)
    pages = []

    def look(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        def there() -> bool | None:
            return page_of(page.port)["tidegate_round", ""] == server_round or None

        wait_for(there, f"round {server_round} on the page", 30)
        pages.append(page_of(page.port))
        return MetricRecord({"accuracy": server_round / 10})

    one = told_run(page, evaluate_fn=look)
    last = pages[-1]
    assert last["tidegate_round", ""] == ROUNDS
    assert last["tidegate_spent_total", ""] == pytest.approx(sum(r.spent for r in one.rounds))
    assert last["tidegate_admitted_total", ""] == sum(r.admitted for r in one.rounds)
    assert last["tidegate_cost_debt", ""] == one.rounds[-1].cost_debt
    assert {f"tidegate_{name}" for name in GAUGES} <= {name for name, _ in last}
    told = Moment(one.rounds[0], budget=1.0, away=0, averaged=4).numbers()
    assert set(GAUGES) | set(COUNTERS) == set(told) - {"ordered"}
    with pytest.raises(urllib.error.URLError):  # the port is free again
        page_of(page.port)


def test_totals_for_prometheus_go_on_from_the_books_after_a_restart(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no more"):
        told_run(folder=tmp_path, fails_in=3)
    spent = sum(row.spent for row in read_run(tmp_path).rounds)
    assert spent > 0
    page, pages = Prometheus(port=0), []
    assert not [name for name, _ in page_of(page.port) if name.startswith("tidegate_spent")]

    def look(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        def there() -> bool | None:
            return page_of(page.port).get(("tidegate_spent_total", "")) is not None or None

        wait_for(there, "money on the page", 30)
        pages.append(page_of(page.port)["tidegate_spent_total", ""])
        if server_round == 3:  # resumed, and nothing is settled since
            shown, last = page_of(page.port), read_run(tmp_path).rounds[-1]
            assert shown["tidegate_round", ""] == last.round_number == 3
            assert shown["tidegate_budget", ""] == pytest.approx(22.0)
            for name in ("overspend", "fleet", "slots", "cost_debt", "price"):
                assert shown[f"tidegate_{name}", ""] == getattr(last, name) != 0, name
        if server_round > 3:
            told = sum(row.spent for row in read_run(tmp_path).rounds)
            wait_for(
                lambda: (
                    page_of(page.port)["tidegate_spent_total", ""] == pytest.approx(told) or None
                ),
                "the round's money on the page",
                30,
            )
        return MetricRecord({"accuracy": 0.5})

    told_run(page, folder=tmp_path, evaluate_fn=look)
    assert pages[0] == pytest.approx(spent)
    assert pages == sorted(pages)


def test_what_was_measured_is_set_while_nobody_reads() -> None:
    page = Prometheus(port=0, run="r")
    tells = threading.Thread(
        target=page.measured, args=(1, "server", {"accuracy": 0.5, "loss": 2.0})
    )
    with page._registry.lock:
        tells.start()
        tells.join(0.2)
        assert tells.is_alive()
    tells.join()
    assert page_of(page.port)["tidegate_metric", "loss"] == 2.0
    page.close(failed=False)


def test_tensorboard_shows_the_curves(tmp_path: Path) -> None:
    one = told_run(TensorBoard(tmp_path))
    curves = EventAccumulator(str(tmp_path)).Reload()

    def points(name: str) -> list[tuple[int, Any]]:
        return [
            (event.step, float(make_ndarray(event.tensor_proto))) for event in curves.Tensors(name)
        ]

    assert points("tidegate/spent") == [
        (row.round_number, pytest.approx(row.spent)) for row in one.rounds
    ]
    assert points("server/accuracy") == [
        (now, pytest.approx(now / 10)) for now in range(ROUNDS + 1)
    ]


@pytest.mark.long
def test_mlflow_has_the_metrics(tmp_path: Path) -> None:
    place = f"sqlite:///{tmp_path / 'mlflow.db'}"
    sink = MLflow("fleet", place, run_name="first")
    one = told_run(sink)
    client = MlflowClient(place)
    history = client.get_metric_history(sink.run_id, "tidegate/cost_debt")
    assert [(metric.step, metric.value) for metric in history] == [
        (row.round_number, row.cost_debt) for row in one.rounds
    ]
    info = client.get_run(sink.run_id)
    assert (info.info.run_name, info.info.status) == ("first", "FINISHED")
    again = MLflow("fleet", place)  # the experiment is there already
    assert again.run_id != sink.run_id
    MLflow("fleet", place, run_id=sink.run_id)
    assert client.get_run(sink.run_id).info.status == "RUNNING"
