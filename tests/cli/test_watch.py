"""A run as somebody on call sees it: live, over a restart, and as numbers."""

import io
import json
import logging
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from recorded_run import ALL, ROUNDS
from recorded_run import recorded_run as play
from rich.console import Console

from tidegate.cli import main
from tidegate.flower.flower_internals import says_stopped, why_it_ends
from tidegate.report.alarms import KINDS, alarms
from tidegate.report.live import live_view, summary
from tidegate.report.run_page import write_run_page
from tidegate.report.run_state import run_state
from tidegate.runs.folder import METRICS
from tidegate.runs.journal import Journal
from tidegate.runs.lock import read_watched
from tidegate.runs.reader import read_run
from tidegate.runs.server_log import last_lines, logged

pytestmark = pytest.mark.usefixtures("no_pictures")


class Screen:
    """A command on a terminal of its own."""

    def __init__(self, process: subprocess.Popen[bytes], terminal: int) -> None:
        self.process = process
        self._terminal = terminal
        self.text = ""

    def shows(self, words: str, seconds: float = 120.0) -> bool:
        """Wait until something is on the screen."""
        end = time.monotonic() + seconds
        while words not in self.text and time.monotonic() < end:
            ready, _, _ = select.select([self._terminal], [], [], 0.2)
            if ready:
                try:
                    self.text += os.read(self._terminal, 65536).decode(errors="replace")
                except OSError:  # the other end is closed
                    break
        return words in self.text


@contextmanager
def watching(folder: Path) -> Iterator[Screen]:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "tidegate", "watch", str(folder), "--every", "0.1"],
        stdin=theirs, stdout=theirs, stderr=theirs,
        env={**os.environ, "COLUMNS": "130", "LINES": "40", "TERM": "xterm"},
    )  # fmt: skip
    os.close(theirs)
    try:
        yield Screen(process, ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


@pytest.mark.process
def test_it_waits_for_a_run_goes_on_over_a_restart_and_ends_with_it(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with watching(folder) as screen:
        assert screen.shows("waiting for a run"), screen.text
        play(folder, until=3)
        assert screen.shows("round 4 of 8"), screen.text  # it died while it judged the fourth
        assert screen.process.poll() is None
        play(folder)
        assert screen.shows("round 8 of 8, over since"), screen.text
        assert screen.process.wait(60) == 0


@pytest.mark.process
def test_ctrl_c_ends_it_without_a_word(tmp_path: Path) -> None:
    with watching(tmp_path / "none") as screen:
        assert screen.shows("waiting for a run")
        screen.process.send_signal(signal.SIGINT)
        assert screen.process.wait(60) == 0
        assert "Traceback" not in screen.text


def look(arguments: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> str:
    with pytest.raises(SystemExit) as stopped:
        main(["watch", *arguments])
    out, error = capsys.readouterr()
    assert (stopped.value.code or 0) == code, error
    return out


def test_its_numbers_are_those_of_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = play(tmp_path)
    capsys.readouterr()
    told = json.loads(look([str(tmp_path), "--json"], capsys))
    spent = sum(row.spent for row in one.rounds)
    assert told["spent"] == pytest.approx(spent)
    assert told["allowed"] == pytest.approx(22 * ROUNDS)
    assert told["overspend"] == pytest.approx(spent - 22 * ROUNDS)
    assert told["certificate_holds"] is True
    assert told["peak_stored"] == max(row.training_size for row in one.rounds)
    assert told["metrics"]["server/accuracy"] == 0.8
    assert told["away"] == []
    shown = look([str(tmp_path)], capsys)  # no terminal: once
    assert f"{spent:,.4g} of 176" in shown
    assert f", {22 * ROUNDS - spent:,.4g} under budget" in shown
    assert "0.8 in round 8, highest 0.8" in shown


def test_who_is_away_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    play(tmp_path, until=4, failing=2)
    capsys.readouterr()
    shown = look([str(tmp_path), "--once"], capsys, code=1)  # its server has stopped
    assert "2 (failed): RuntimeError: no disk" in " ".join(shown.split())
    assert "fix this error in the client app" in shown
    assert "supernode list" not in shown
    assert "3 of 4 replied" in shown
    view = read_run(tmp_path)
    silent = replace(view, clients=[replace(one, failed=False) for one in view.clients])
    console = Console(width=140, record=True, file=io.StringIO())
    console.print(live_view(silent))
    shown = console.export_text()
    assert "2 (has not replied)" in shown
    assert "supernode list" in shown


def test_a_run_that_stands_still_is_called_quiet(tmp_path: Path) -> None:
    play(tmp_path, until=4)
    assert summary(read_run(tmp_path), 0.0)["state"].endswith(
        "its server has stopped before the end"
    )
    lines = (tmp_path / METRICS).read_text("utf-8").splitlines(keepends=True)
    (tmp_path / METRICS).write_text("".join(lines[:-1]), "utf-8")  # as if it had been killed
    view = read_run(tmp_path)
    assert not view.is_gone  # this very process
    gone = replace(view, is_gone=True)
    assert summary(gone, time.time())["state"] == (
        "round 5 of 8, its server is gone; start it again with this folder to resume"
    )
    last = max(view.ended_at.values())
    soon, late = (summary(view, last + seconds)["state"] for seconds in (2, 3600))
    assert soon == "round 5 of 8, waiting for an evaluation, the next price or nodes for 2 s"
    assert "for 3,600 s: QUIET, a round takes" in late
    Journal(tmp_path).begin()  # another server that waits for its nodes
    told = summary(read_run(tmp_path), time.time() + 2)["state"]
    assert told.startswith("round 5 of 8, waiting for an evaluation, the next price or nodes for")
    assert "QUIET" not in told
    Journal(tmp_path).decided(6, 3.0)
    assert "waiting for answers for" in summary(read_run(tmp_path), last + 3600)["state"]
    assert live_view(view, wide=False, now=last + 3600)


SERVER = """
import signal, sys
from pathlib import Path
sys.path[:0] = {path!r}
import recorded_run
answer = recorded_run.LocalGrid.send_and_receive
asked = []
def slowly(self, *given, **more):
    asked.append(1)
    if len(asked) > {answers}:
        print("nobody answers", flush=True)
        signal.pause()
    return answer(self, *given, **more)
recorded_run.LocalGrid.send_and_receive = slowly
recorded_run.recorded_run(Path({folder!r}))
"""
"""A server whose clients answer for a while."""


@contextmanager
def serving(folder: Path, answers: int) -> Iterator[subprocess.Popen[bytes]]:
    text = SERVER.format(path=sys.path, folder=str(folder), answers=answers)
    with subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            assert b"nobody answers\n" in iter(server.stdout.readline, b"")
            yield server
        finally:
            server.kill()


def shown_of(folder: Path, width: int, now: float) -> str:
    console = Console(width=width, record=True, file=io.StringIO())
    view = live_view(read_watched(folder), wide=width >= 120, now=now, log=last_lines(folder, 3))
    console.print(view)
    return console.export_text()


@pytest.mark.process
def test_a_dead_server_is_told_from_slow_clients_within_one_interval(tmp_path: Path) -> None:
    """Clients stop answering: the server lives. Then it is killed, and nobody has reaped it yet."""
    with serving(tmp_path, answers=7) as server, watching(tmp_path) as screen:
        assert screen.shows("waiting for answers"), screen.text
        assert screen.shows(f"the server is alive, process {server.pid}"), screen.text
        waiting = time.time() + 3600
        for width in (80, 120):
            slow = " ".join(shown_of(tmp_path, width, waiting).split())
            assert "SLOW CLIENTS: the server is alive and has waited for replies of round" in slow
            assert "SERVER DEAD" not in slow
        before = time.monotonic()
        server.send_signal(signal.SIGKILL)
        assert screen.shows("SERVER DEAD", 60), screen.text
        took = time.monotonic() - before
        assert "start the same run again with this folder: it continues with" in screen.text
        told = json.loads(
            subprocess.run(
                [sys.executable, "-m", "tidegate", "watch", str(tmp_path), "--json"],
                capture_output=True, check=True,
            ).stdout
        )  # fmt: skip
        assert server.returncode is None  # a zombie still has its number
    assert took < 5, took  # an interval is 0.1 s; the rest is drawing on a busy machine
    assert told["server"] == "dead"
    assert told["alarms"][0] | {"what": "", "to_do": ""} == {
        "level": "red", "name": "SERVER DEAD", "what": "", "to_do": "",
    }  # fmt: skip
    assert any("orders answered" in line for line in told["log"]), told["log"]
    for width in (80, 120):
        dead = shown_of(tmp_path, width, waiting)
        assert "SLOW CLIENTS" not in dead
        assert "no process holds the run's lock" in dead
        assert max(map(len, dead.splitlines())) <= width


def colours(folder: Path) -> set[str]:
    """Of the frame and of words that stand out."""
    console = Console(width=120, record=True, file=io.StringIO(), force_terminal=True)
    console.print(live_view(read_watched(folder)))
    shown = console.export_text(styles=True)
    codes = {"green": "\x1b[32m", "yellow": "\x1b[33m", "red": "\x1b[31m"}
    return {name for name, code in codes.items() if f"{code}╭" in shown}


def box_of_page(folder: Path) -> str:
    """The colour and the words of the box at the top of the run's page."""
    page = folder / "page.html"
    write_run_page(read_watched(folder), page, time.time())
    (box,) = re.findall(
        r'<div class="tile ((?:green|yellow|red).*?)</header>', page.read_text("utf-8"), re.DOTALL
    )
    return str(box)


@pytest.mark.long
def test_colours_say_how_it_is(tmp_path: Path) -> None:
    play(tmp_path / "well")
    assert colours(tmp_path / "well") == {"green"}
    assert box_of_page(tmp_path / "well").startswith("green")
    play(tmp_path / "away", failing=2)
    assert colours(tmp_path / "away") == {"yellow"}
    assert "CLIENTS FAIL:</strong> " in box_of_page(tmp_path / "away")
    play(tmp_path / "silent", failing=ALL)
    assert colours(tmp_path / "silent") == {"red"}
    assert box_of_page(tmp_path / "silent").startswith("red")


def test_clients_that_buy_less_than_ordered_are_yellow_until_the_run_is_over(
    tmp_path: Path,
) -> None:
    for until, expected in ((4, True), (ROUNDS, False)):
        folder = tmp_path / str(until)
        play(folder, until=until)
        view = read_run(folder)
        rows = [*view.rounds[:-1], replace(view.rounds[-1], exhausted=2)]
        shown = replace(view, rounds=rows)
        found = alarms(shown, summary(shown, time.time()), run_state(shown, time.time()))
        assert ("CLIENTS BUY LESS" in {one.name for one in found}) is expected


def test_what_the_log_says_is_shown_below(tmp_path: Path) -> None:
    play(tmp_path, failing=ALL, until=4)
    lines = shown_of(tmp_path, 80, time.time()).splitlines()
    told = " ".join(line.strip("│ ") for line in lines[-5:])
    assert "WARNING no client's model was used in round 5" in told
    assert "ERROR the server stops: ServerStopsError" in told
    assert "SERVER STOPPED: the server app ended before its last round" in " ".join(lines)


def test_a_script_is_told_of_a_red_alarm(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    play(tmp_path / "silent", failing=ALL)
    play(tmp_path / "away", failing=2)
    capsys.readouterr()
    silent, away = str(tmp_path / "silent"), str(tmp_path / "away")
    assert "NOTHING LEARNED" in look([silent, "--once"], capsys, code=1)
    assert json.loads(look([silent, "--once", "--json"], capsys, code=1))["alarms"]
    look([silent, "--json"], capsys)
    assert "CLIENTS FAIL" in look([away, "--once"], capsys)  # yellow


def test_a_run_that_somebody_stopped_is_told_from_one_that_failed(tmp_path: Path) -> None:
    play(tmp_path, until=4)
    assert colours(tmp_path) == {"red"}
    refused = httpx.Response(401, request=httpx.Request("POST", "https://127.0.0.1/pull"))
    with pytest.raises(httpx.HTTPStatusError), logged(tmp_path, why_it_ends):
        refused.raise_for_status()  # as Flower's client does after flwr stop
    shown = " ".join(shown_of(tmp_path, 120, time.time()).split())
    assert "SERVER STOPPED: somebody stopped the run (flwr stop), or" in shown
    assert "to go on, start the same run again with this folder" in shown
    assert "mozilla" not in shown
    assert colours(tmp_path) == {"yellow"}
    with pytest.raises(OSError, match="full"), logged(tmp_path, why_it_ends):
        raise OSError("the disk is full")
    assert colours(tmp_path) == {"red"}
    with logged(tmp_path, why_it_ends, says_stopped):  # Flower logs this and ends its process
        with pytest.raises(httpx.HTTPStatusError) as wrong:
            refused.raise_for_status()
        logging.getLogger("flwr").error("Failed to push task output: %s", str(wrong.value))
    assert colours(tmp_path) == {"yellow"}
    elsewhere = "Server error '503 Away' for url 'http://here:9401/x'"
    pushed = {"msg": "Failed to push task output: %s", "args": (elsewhere,)}
    assert not says_stopped(logging.makeLogRecord(pushed))
    assert "401" not in "".join(last_lines(tmp_path, 9))


def test_the_guide_explains_every_alarm() -> None:
    page = (Path(__file__).parents[2] / "docs/howto/when-something-is-red.md").read_text("utf-8")
    alone = ("SPENDING AHEAD", "DEBT GROWING", "MEMORY UNUSED", "PURCHASES LATE")
    names = {kind["name"] for kind in KINDS.values()} - set(alone)  # of Prometheus alone
    assert [name for name in names if f"| {name} |" not in page] == []


def test_a_folder_without_a_run_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["watch", str(tmp_path), "--once"])
    assert stopped.value.code == 2
    assert "holds no run" in capsys.readouterr().err
    play(tmp_path / "inside", until=1)
    with pytest.raises(SystemExit):
        main(["watch", str(tmp_path), "--once"])
    told = " ".join(capsys.readouterr().err.split())
    assert f"{tmp_path} holds no run; did you mean {tmp_path / 'inside'}?" in told


def test_a_model_that_has_diverged_does_not_look_well(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    play(tmp_path, diverging_from=5)
    capsys.readouterr()
    told = json.loads(look([str(tmp_path), "--json"], capsys))
    assert told["metrics"]["server/accuracy"] is None
    shown = look([str(tmp_path)], capsys)
    assert "nan in round 8, highest 0.4" in shown
    assert "××××" in shown
    assert set(read_run(tmp_path).metrics["server/accuracy"]) == set(range(ROUNDS + 1))


def test_purchases_suppliers_and_spools_are_told_on_screen_and_page(tmp_path: Path) -> None:
    play(tmp_path)
    view = read_run(tmp_path)
    troubles: dict[str, Any] = {"under_way": 2, "under_way_spent": 7.5, "oldest_under_way": 9}
    more: dict[str, Any] = {
        "health": {"failing_suppliers": 1, "full_spools": 2, "spool_dropped": 40},
        "empty_clients": 1,
        "refunded": 12.5,
    }
    rows = [*view.rounds[:-1], replace(view.rounds[-1], **troubles, **more)]
    first, second, *rest = view.clients
    clients = [
        replace(first, troubles=["suppliers", "spools"]),
        replace(second, troubles=["spools", "empty"]),
    ]
    console = Console(width=160, record=True, file=io.StringIO())
    page, sentences = (
        tmp_path / "page.html",
        (
            f"upplier of 1 client could not be asked or did not reply ({first.name})",
            f"tream of 2 clients has no room for more messages ({first.name}, {second.name})",
            "40 messages dropped unread by full streams so far",
            f"1 client without a sample ({second.name})",
        ),
    )
    for shown, times in ((view, 0), (replace(view, rounds=rows, clients=[*clients, *rest]), 1)):
        console.print(live_view(shown))
        write_run_page(shown, page, time.time())
        screen, written = console.export_text(), page.read_text("utf-8")
        assert [screen.count(one) for one in sentences] == [times] * len(sentences)
        assert [written.count(one) for one in sentences] == [times] * len(sentences)
        back = "Suppliers refunded 12.5, which lowered what the rounds spent."
        assert written.count(back) == times
        late = "2 samples bought for 7.5 and not here yet, the oldest since 9 rounds"
        assert screen.count(late) == times
        assert written.count("2 samples, for 7.5, did not arrive before the run ended") == times


@pytest.mark.long
def test_a_pause_in_buying_is_told_on_screen_and_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Purchases in rounds 1, 3 and 6; after the third of them, 4 rounds without."""
    play(tmp_path, poisoned=True, until=5)
    capsys.readouterr()
    view = read_run(tmp_path)
    pauses = [row.pause for row in view.rounds]
    assert pauses == [1, 0, 2, 1, 0, 4]
    told = json.loads(look([str(tmp_path), "--json"], capsys))
    assert told["buying_paused_for"] == 4
    console = Console(width=140, record=True, file=io.StringIO())
    console.print(live_view(view))
    shown = console.export_text()
    assert "paused" in shown
    assert "clients buy nothing in the next 4 rounds, unless a model can be used before" in shown
    page = tmp_path / "page.html"
    write_run_page(view, page, time.time())
    text = page.read_text("utf-8")
    assert "buying is paused: clients buy nothing in the next 4 rounds" in text
    assert "Buying was paused in 3 of the rounds, first in round 2" in text
    play(tmp_path / "well")
    well = read_run(tmp_path / "well")
    write_run_page(well, page, time.time())
    assert "Buying" not in page.read_text("utf-8")
    console.print(live_view(well))
    assert "paused" not in console.export_text()


def test_a_client_cannot_write_on_the_screen(tmp_path: Path) -> None:
    play(tmp_path, run="ward[/7]")
    Journal(tmp_path).measured(8, "train", {"[/x] [red]": 1.0})
    console = Console(width=140, record=True, file=io.StringIO())
    console.print(live_view(read_run(tmp_path)))
    shown = console.export_text()
    assert "train/[/x] [red]" in shown
    assert "ward[/7], tide, 22 a round" in shown
