"""What went wrong in a run is found in its folder, and marked where it was."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from recorded_run import ALL, ROUNDS, recorded_run

from tidegate.report.incidents import incidents
from tidegate.report.run_page import write_run_page
from tidegate.runs.journal import Journal
from tidegate.runs.reader import RunView, read_run

pytestmark = pytest.mark.long


def marks(view: RunView) -> dict[str, str]:
    return {one.mark: one.where for one in incidents(view)}


@pytest.mark.usefixtures("no_pictures")
def test_a_run_without_trouble_has_none(tmp_path: Path) -> None:
    recorded_run(tmp_path)
    view = read_run(tmp_path)
    assert len(view.rounds) == ROUNDS
    assert incidents(view) == []
    write_run_page(view, tmp_path / "page.html", now=0.0)
    page = (tmp_path / "page.html").read_text("utf-8")
    assert "Nobody" in page
    assert "What went wrong" not in page


@pytest.mark.usefixtures("no_pictures")
def test_a_restart_is_marked_before_the_round_that_came_next(tmp_path: Path) -> None:
    nexts = []
    for until in (3, 4):
        recorded_run(tmp_path, until=until)
        nexts.append(len(read_run(tmp_path).rounds) + 1)
    recorded_run(tmp_path)
    view = read_run(tmp_path)
    assert 1 < nexts[0] < nexts[1] < len(view.rounds) == ROUNDS
    where = f"rounds {nexts[0]}, {nexts[1]}"
    assert marks(view) == {"R": where}
    assert [one.spans for one in incidents(view)] == [[(n, n) for n in nexts]]  # a line for each
    write_run_page(view, tmp_path / "page.html", now=0.0)
    page = (tmp_path / "page.html").read_text("utf-8")
    assert "the server was restarted, 2 times</td>" in page
    assert "Restarts</h2>" in page
    assert "Not all" not in page
    labels = re.findall(r'aria-label="([^"]* by round: [^"]*)"', page)
    assert len(labels) > 5
    for label in labels:
        assert f"R: the server was restarted, 2 times, {where}." in label


def test_rounds_without_an_average_and_pauses_are_found(tmp_path: Path) -> None:
    recorded_run(tmp_path, failing=ALL)
    view = read_run(tmp_path)
    found = marks(view)
    unused = [number for number, used in view.averaged.items() if not used]
    assert unused == list(range(3, ROUNDS + 1))
    assert found["N"] == f"rounds 3 to {ROUNDS}"
    assert found["P"].startswith("round")


def test_clients_that_replied_with_an_error_are_told_from_those_away(tmp_path: Path) -> None:
    recorded_run(tmp_path, failing=0)
    view = read_run(tmp_path)
    short = [row.round_number for row in view.rounds if row.answered < row.fleet]
    assert short == list(range(3, ROUNDS + 1))
    (failed,) = incidents(view)
    assert failed.mark == "E"
    error = "RuntimeError: no disk; see server.log"
    assert failed.what == f"1 client failed: {error}"
    assert failed.where == f"rounds 3 to {ROUNDS}"
    rows = [replace(row, answered=row.answered - 1) for row in view.rounds]
    away = {one.mark: one for one in incidents(replace(view, rounds=rows))}
    assert away["A"].what == "1 node did not take part: offline, or no reply in time"
    assert away["A"].where == f"rounds 1 to {ROUNDS}"


def test_suppliers_spools_and_metrics_that_failed_are_found(tmp_path: Path) -> None:
    recorded_run(tmp_path)
    Journal(tmp_path).measured(5, "server", {"loss": float("nan")})
    view = read_run(tmp_path)
    first, second, *others = view.rounds
    rows = [
        replace(first, health={"failing_suppliers": 1}),
        replace(second, health={"failing_suppliers": 3, "full_spools": 2}),
        *others,
    ]
    found = {one.mark: one for one in incidents(replace(view, rounds=rows))}
    assert sorted(found) == ["D", "F", "S"]
    assert (found["S"].what, found["S"].where) == ("up to 3 suppliers failed", "rounds 1 to 2")
    assert found["F"].what.startswith("2 streams had no room")
    assert found["D"].where == "round 5"
