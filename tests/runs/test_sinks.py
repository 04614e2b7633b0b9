"""Who watches a run sees what it does, and cannot stop it."""

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deployment import wait_for
from flwr.app import ArrayRecord, MetricRecord
from flwr.serverapp.strategy import FedAvg
from gated_apps import MODEL, gated_app
from mlflow.tracking import MlflowClient
from prometheus_client.parser import text_string_to_metric_families
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util.tensor_util import make_ndarray

from tidegate.flower import AdmissionControl, LocalGrid
from tidegate.integrations.mlflow import MLflow
from tidegate.integrations.prometheus import COUNTERS, GAUGES, Prometheus
from tidegate.integrations.tensorboard import TensorBoard
from tidegate.prices import PricePath, UniformPrice
from tidegate.report.live import summary
from tidegate.runs import sinks
from tidegate.runs.folder import METRICS
from tidegate.runs.journal import Journal
from tidegate.runs.reader import read_run
from tidegate.runs.sinks import Moment, Sink, Source

ROUNDS = 6


def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    """What is a list, or no number that a float can be, is told to nobody."""
    return MetricRecord({"accuracy": server_round / 10, "lists": [1.0, 2.0], "huge": 10**400})


def control(
    *told: Sink,
    folder: Path | None = None,
    rounds: int = ROUNDS,
    budget: float = 22.0,
    fails_in: int = 0,
    evaluate_fn: Callable[[int, ArrayRecord], MetricRecord] = evaluate,
) -> AdmissionControl:
    def judge(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        if fails_in and server_round == fails_in:
            raise ValueError("no more")
        return evaluate_fn(server_round, arrays)

    one = AdmissionControl(
        FedAvg(fraction_evaluate=0.0),
        "tide",
        budget=budget,
        prices=PricePath(UniformPrice(1, 10), seed=1),
        folder=folder,
        sinks=told,
    )
    grid = LocalGrid(gated_app(), [{"partition-id": number} for number in range(4)])
    one.start(grid, MODEL, rounds, evaluate_fn=judge)
    return one


class Kept:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.moments: list[Moment] = []
        self.metrics: list[tuple[int, Source, Mapping[str, float]]] = []
        self.decisions: list[tuple[int, float]] = []
        self.closed: list[bool] = []

    def decided(self, round_number: int, price: float) -> None:
        self.decisions.append((round_number, price))

    def settled(self, moment: Moment) -> None:
        self.moments.append(moment)

    def measured(self, round_number: int, source: Source, metrics: Mapping[str, float]) -> None:
        self.metrics.append((round_number, source, metrics))

    def close(self, *, failed: bool) -> None:
        self.closed.append(failed)


def test_a_sink_is_told_of_every_round_and_every_measurement() -> None:
    kept = Kept()
    one = control(kept)
    assert [moment.done for moment in kept.moments] == one.rounds
    assert kept.decisions == [(row.round_number, row.price) for row in one.rounds]
    assert {(one.budget, one.done.slots, one.away) for one in kept.moments} == {(22, 38, 0)}
    by_server = [(now, told) for now, source, told in kept.metrics if source == "server"]
    assert by_server == [(now, {"accuracy": now / 10}) for now in range(ROUNDS + 1)]
    by_clients = [now for now, source, told in kept.metrics if source == "train" and "loss" in told]
    assert by_clients == list(range(1, ROUNDS + 1))
    assert kept.closed == [False]


class Broken(Kept):
    """Fails always."""

    def settled(self, moment: Moment) -> None:
        raise OSError("the disk is full")

    def close(self, *, failed: bool) -> None:
        raise OSError("the disk is full")


def test_a_sink_that_fails_is_told_of_once_and_stops_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kept = Kept()
    with caplog.at_level("WARNING", logger="tidegate"):
        one = control(Broken(), kept)
    assert len(one.rounds) == len(kept.moments) == ROUNDS
    told = [record.message for record in caplog.records if "sink Broken failed" in record.message]
    assert told == [
        (
            "sink Broken failed: OSError('the disk is full'); the run continues, but the sink may "
            "miss data"
        )
    ]


class Hanging(Kept):
    """Does not come back for as long as it is held."""

    def __init__(self) -> None:
        super().__init__()
        self.held = threading.Event()

    def settled(self, moment: Moment) -> None:
        self.held.wait(60)
        super().settled(moment)


def test_a_sink_that_hangs_holds_nobody_up(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sinks, "SECONDS_AT_END", 0.2)
    monkeypatch.setattr(sinks, "MOST_WAITING", 5)
    hanging, kept = Hanging(), Kept()
    started = time.monotonic()
    with caplog.at_level("WARNING", logger="tidegate"):
        one = control(hanging, kept)
    assert time.monotonic() - started < 30
    assert len(one.rounds) == ROUNDS
    assert not hanging.moments
    assert "sink Hanging is too slow and misses some data; the run continues" in caplog.text
    assert "sink Hanging did not finish in time and may have lost its last data" in caplog.text
    assert not hanging.closed
    hanging.held.set()
    wait_for(lambda: hanging.closed or None, "the end, which is told however much is lost", 30)


@pytest.mark.timing
def test_all_slow_sinks_together_hold_up_the_end_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sinks, "SECONDS_AT_END", 1.5)
    several = [Hanging() for _ in range(6)]
    all_of_them, began = sinks.Sinks(several), time.monotonic()
    with all_of_them.open():
        all_of_them.settled(None)  # type: ignore[arg-type]
    assert time.monotonic() - began < 5
    for one in several:
        one.held.set()


def test_a_server_that_is_refused_writes_nothing_about_the_run_of_another(tmp_path: Path) -> None:
    def start_another(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        if server_round == 2:
            with pytest.raises(ValueError, match="another run is using"):
                control(folder=tmp_path)
            view = read_run(tmp_path)
            assert (len(view.starts), view.ending) == (1, "")
        return MetricRecord({"accuracy": 0.5})

    control(folder=tmp_path, evaluate_fn=start_another)
    before = read_run(tmp_path)
    with pytest.raises(ValueError, match="the checkpoint was made with"):
        control(folder=tmp_path, budget=23.0)
    assert read_run(tmp_path) == before


def test_a_scrape_in_the_middle_of_a_round_waits_for_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    page, scraped, seen = Prometheus(port=0), threading.Event(), []
    row = replace(control(rounds=1).rounds[0], overspend=7.0, cost_debt=7.0)
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


def test_a_run_that_fails_says_so_to_its_sinks(tmp_path: Path) -> None:
    kept = Kept()
    with pytest.raises(ValueError, match="no more"):
        control(kept, folder=tmp_path, fails_in=3)
    assert kept.closed == [True]
    assert len(kept.moments) == 3
    assert read_run(tmp_path).ending == "failed"
    other = Kept()
    with pytest.raises(ValueError, match="the checkpoint was made with"):
        control(other, folder=tmp_path, budget=23.0)
    assert other.closed == [True]  # also where a run is refused


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

    one = control(page, evaluate_fn=look)
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
        control(folder=tmp_path, fails_in=3)
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

    control(page, folder=tmp_path, evaluate_fn=look)
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
    one = control(TensorBoard(tmp_path))
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
    one = control(sink)
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


def test_a_run_is_not_over_before_its_last_model_is_judged(tmp_path: Path) -> None:
    seen = []

    def look(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        view = read_run(tmp_path)
        seen.append((server_round, view.is_played, view.is_over))
        if view.is_played:
            assert "its last model is being evaluated" in summary(view, time.time())["state"]
        return MetricRecord({"accuracy": server_round / 10})

    control(folder=tmp_path, evaluate_fn=look)
    assert seen == [(now, now == ROUNDS, False) for now in range(ROUNDS + 1)]
    assert read_run(tmp_path).is_over


def test_a_folder_says_what_the_run_does(tmp_path: Path) -> None:
    one = control(folder=tmp_path)
    view = read_run(tmp_path)
    assert view.rounds == one.rounds
    assert (view.policy, view.budget, view.num_rounds) == ("tide", 22.0, ROUNDS)
    assert view.is_over
    assert view.metrics["server/accuracy"] == {now: now / 10 for now in range(ROUNDS + 1)}
    assert list(view.ended_at) == list(range(1, ROUNDS + 1))
    assert view.away == []
    assert view.ending == "over"
    assert view.options["hard_capacity"] is True
    assert sum(client.total_spent for client in view.clients) == pytest.approx(
        sum(row.spent for row in one.rounds)
    )
    assert sum(client.stored for client in view.clients) == one.rounds[-1].training_size


def test_half_a_line_of_a_server_that_died_spoils_nothing(tmp_path: Path) -> None:
    control(folder=tmp_path)
    before = read_run(tmp_path)
    with (tmp_path / METRICS).open("a") as lines:
        lines.write('{"round": 99, "sour')
    with (tmp_path / "rounds.jsonl").open("a") as lines:
        lines.write('{"round_n')
    assert read_run(tmp_path) == before
    again = Journal(tmp_path)
    again.begin()
    again.measured(7, "server", {"accuracy": 0.9})
    assert read_run(tmp_path).metrics["server/accuracy"][7] == 0.9
    last = (tmp_path / METRICS).read_text().splitlines()[-1]
    assert json.loads(last)["round"] == 7


def test_a_new_run_in_a_folder_does_not_keep_measurements_of_another(tmp_path: Path) -> None:
    Journal(tmp_path).measured(50, "server", {"accuracy": 0.9})
    control(folder=tmp_path, rounds=2)
    assert max(read_run(tmp_path).metrics["server/accuracy"]) == 2


@pytest.mark.parametrize("content", [None, b"", b"no database"])
def test_a_folder_without_a_run_is_refused(tmp_path: Path, content: Any) -> None:
    if content is not None:
        (tmp_path / "books.sqlite").write_bytes(content)
    with pytest.raises(ValueError, match=r"holds no run|books\.sqlite is damaged"):
        read_run(tmp_path)
