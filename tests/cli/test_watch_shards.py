"""All shards of a run as somebody on call sees them, and as Prometheus does: from the database."""

import io
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import replace

import pytest
from deployment import wait_for
from meetings import found_by, registration, report, settled, visit
from postgres import PASSWORD, Postgres, needs_postgres
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console

from tidegate.cli import main
from tidegate.integrations.postgres import PostgresMeeting
from tidegate.integrations.prometheus.shards import ShardsExporter
from tidegate.report.shards_live import shards_summary, shards_view
from tidegate.server.shards import Meeting
from tidegate.server.shards.memory import MemoryMeeting


def two_shards(meeting: Meeting) -> None:
    """East has played two rounds, and west has only registered."""
    for name in ("east", "west"):
        meeting.register(registration("fleet", name))
    for now in (1, 2, 3):
        rounds = [settled(one, 9.0) for one in range(1, now)]
        news = report("fleet", "east", now - 1) if rounds else None
        meeting.exchange(visit("fleet", "east", now, rounds=rounds, report=news))


def scraped(port: int) -> dict[tuple[str, str], float]:
    """Numbers by name and shard."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    return {
        (one.name, one.labels.get("shard", "")): one.value
        for family in families
        for one in family.samples
    }


def printed(meeting: Meeting, later: float) -> str:
    view = meeting.look("fleet")
    now = max(one.heard or 0.0 for one in view.shards) + later
    out = io.StringIO()
    Console(file=out, width=120).print(shards_view(view, now))
    return out.getvalue()


def test_the_screen_tells_who_was_heard_when_and_what_money_is_worth_there() -> None:
    meeting = MemoryMeeting()
    two_shards(meeting)
    text = printed(meeting, later=7300.0)
    assert "run fleet: 2 shards, round 3 is divided" in text
    assert "18 spent and 90 granted of 90" in text
    east, west = (line.split() for line in text.splitlines() if "east" in line or "west" in line)
    assert east[1:-1] == ["east", "2", "2", "h", "ago", "2", "30", "18", "1", "to", "5", "10"]
    assert west[1:-1] == ["west", "0", "never", "0", "60", "0", "-", "to", "5", "0"]
    view = meeting.look("fleet")
    assert "MORE WAS GRANTED" not in text
    out = io.StringIO()
    Console(file=out, width=120).print(shards_view(replace(view, budget=20.0), 0.0))
    assert "MORE WAS GRANTED THAN THE BUDGET" in out.getvalue()
    told = shards_summary(view, (view.shards[0].heard or 0.0) + 5.0)
    assert told["shards"]["east"]["seconds_since_heard"] == pytest.approx(5.0)
    assert told["shards"]["west"]["seconds_since_heard"] is None


@pytest.fixture(scope="module")
def database() -> Iterator[Postgres]:
    with Postgres() as server, found_by(server):
        two_shards(PostgresMeeting())
        yield server


@pytest.mark.process
@needs_postgres
def test_the_command_reads_the_database(
    database: Postgres, capsys: pytest.CaptureFixture[str]
) -> None:
    for more in ([], ["--json"]):
        with pytest.raises(SystemExit) as ended:
            main(["watch", "fleet", "--shards", "env", *more])
        assert ended.value.code == 0
        if not more:
            assert "18 spent and 90 granted of 90" in capsys.readouterr().out
    told = json.loads(capsys.readouterr().out)
    assert (told["granted"], told["spent"], told["allowed"]) == (pytest.approx(90.0), 18.0, 90.0)
    assert told["shards"]["east"]["shadow_price"] == 1.0
    for given, words in (
        (["none", "--shards", "env"], "has no run 'none'; the newest are 'fleet'"),
        (["fleet", "--shards", f"password={PASSWORD}"], "service must be the name of a section"),
        (["fleet", "--shards", "nowhere"], "nowhere"),
        (["fleet", "--prometheus", "0"], "--prometheus needs --shards"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(["watch", *given])
        assert ended.value.code
        error = " ".join(capsys.readouterr().err.split())
        assert words in error
        assert PASSWORD not in error


@pytest.mark.process
@needs_postgres
def test_prometheus_is_served_over_a_restart_of_the_database(database: Postgres) -> None:
    exporter = ShardsExporter(PostgresMeeting(), "fleet", port=0)
    try:
        found = scraped(exporter.port)
        assert found["tidegate_shards_up", ""] == 1
        assert found["tidegate_shards_granted", ""] == pytest.approx(90.0)
        assert found["tidegate_shard_spent", "east"] == 18
        assert found["tidegate_shard_granted", "west"] == pytest.approx(60.0)
        assert ("tidegate_shard_shadow_price", "west") not in found
        database.kill()
        assert scraped(exporter.port) == {("tidegate_shards_up", ""): 0}
        database.start()
        assert scraped(exporter.port)["tidegate_shard_round_number", "east"] == 2
        with pytest.raises(ValueError, match=f"port {exporter.port} of 127.0.0.1 "):
            ShardsExporter(PostgresMeeting(), "fleet", exporter.port)
    finally:
        exporter.close()


@pytest.mark.process
@needs_postgres
def test_the_command_serves_prometheus_until_it_is_interrupted(database: Postgres) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "tidegate", "watch", "fleet", "--shards", "env",
         "--prometheus", "0"],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        port = int(line.split(":")[-1].split("/")[0])
        assert wait_for(lambda: scraped(port) or None, "numbers")["tidegate_shards_up", ""] == 1
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
