"""Who watches a run sees what it does, and cannot stop it."""

import json
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from deployment import wait_for
from flwr.app import ArrayRecord, MetricRecord
from told_runs import ROUNDS, told_run

from tidegate.report.live import summary
from tidegate.runs import sinks
from tidegate.runs.folder import METRICS
from tidegate.runs.journal import Journal
from tidegate.runs.reader import read_run
from tidegate.runs.sinks import Moment, Source


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
    one = told_run(kept)
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
        one = told_run(Broken(), kept)
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
        one = told_run(hanging, kept)
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
                told_run(folder=tmp_path)
            view = read_run(tmp_path)
            assert (len(view.starts), view.ending) == (1, "")
        return MetricRecord({"accuracy": 0.5})

    told_run(folder=tmp_path, evaluate_fn=start_another)
    before = read_run(tmp_path)
    with pytest.raises(ValueError, match="the checkpoint was made with"):
        told_run(folder=tmp_path, budget=23.0)
    assert read_run(tmp_path) == before


def test_a_run_that_fails_says_so_to_its_sinks(tmp_path: Path) -> None:
    kept = Kept()
    with pytest.raises(ValueError, match="no more"):
        told_run(kept, folder=tmp_path, fails_in=3)
    assert kept.closed == [True]
    assert len(kept.moments) == 3
    assert read_run(tmp_path).ending == "failed"
    other = Kept()
    with pytest.raises(ValueError, match="the checkpoint was made with"):
        told_run(other, folder=tmp_path, budget=23.0)
    assert other.closed == [True]  # also where a run is refused


def test_a_run_is_not_over_before_its_last_model_is_judged(tmp_path: Path) -> None:
    seen = []

    def look(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        view = read_run(tmp_path)
        seen.append((server_round, view.is_played, view.is_over))
        if view.is_played:
            assert "its last model is being evaluated" in summary(view, time.time())["state"]
        return MetricRecord({"accuracy": server_round / 10})

    told_run(folder=tmp_path, evaluate_fn=look)
    assert seen == [(now, now == ROUNDS, False) for now in range(ROUNDS + 1)]
    assert read_run(tmp_path).is_over


def test_a_folder_says_what_the_run_does(tmp_path: Path) -> None:
    one = told_run(folder=tmp_path)
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
    told_run(folder=tmp_path)
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
    told_run(folder=tmp_path, rounds=2)
    assert max(read_run(tmp_path).metrics["server/accuracy"]) == 2


@pytest.mark.parametrize("content", [None, b"", b"no database"])
def test_a_folder_without_a_run_is_refused(tmp_path: Path, content: Any) -> None:
    if content is not None:
        (tmp_path / "books.sqlite").write_bytes(content)
    with pytest.raises(ValueError, match=r"holds no run|books\.sqlite is damaged"):
        read_run(tmp_path)
