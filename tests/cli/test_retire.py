"""``tidegate retire``: what it says, what it refuses, and what other commands show afterwards."""

import json
from pathlib import Path

import pytest
from recorded_run import recorded_run as play

from tidegate.cli import main
from tidegate.runs.reader import read_run

GONE = "partition-3"


def told(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    assert ended.value.code == code
    shown = capsys.readouterr()
    return " ".join((shown.err if code else shown.out).split())


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Stopped after six rounds; the last client fails from the third on, and owes an answer."""
    play(tmp_path, until=5, failing=3)
    return tmp_path


@pytest.mark.usefixtures("no_pictures")
def test_nobody_waits_for_it_any_more(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert GONE in json.loads(told(capsys, "watch", str(run), "--json"))["away"]
    said = told(capsys, "retire", str(run), GONE)
    assert said == "partition-3 is retired when the server is started again"
    watched = json.loads(told(capsys, "watch", str(run), "--json"))
    assert (watched["away"], watched["retired"], watched["clients"]) == ([], [GONE], 4)
    shown = told(capsys, "watch", str(run))
    assert "1 retired" in shown
    assert "has not replied" not in shown
    told(capsys, "report", str(run))
    page = (run / "report.html").read_text("utf-8")
    assert "<td>retired</td>" in page
    assert "has not replied" not in page


def test_the_server_takes_it_up_when_it_is_started_again(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spent = {one.name: one.total_spent for one in read_run(run).clients}
    told(capsys, "retire", str(run), GONE)
    rounds = play(run).rounds
    assert [row.retired for row in rounds] == [0] * 6 + [1] * 2
    assert {row.exposure for row in rounds[6:]} == {0.0}
    view = read_run(run)
    assert [(one.name, one.total_spent >= spent[GONE]) for one in view.retired] == [(GONE, True)]
    said = told(capsys, "retire", str(run), "partition-0")
    assert said == "partition-0 is retired if the run is continued: all its rounds are done"


def test_asking_twice_is_the_same_as_once(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told(capsys, "retire", str(run), GONE)
    before = (run / "retired.jsonl").read_bytes()
    assert told(capsys, "retire", str(run), GONE, GONE) == "partition-3 is retired already"
    assert (run / "retired.jsonl").read_bytes() == before


def test_it_can_be_undone(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys, "retire", str(run), GONE, "--undo") == "partition-3 is not retired"
    told(capsys, "retire", str(run), GONE)
    said = told(capsys, "retire", str(run), GONE, "--undo")
    assert said == "partition-3 takes part again when the server is started again"
    assert read_run(run).retired == []


def test_json_for_a_script(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = json.loads(told(capsys, "retire", str(run), GONE, "partition-1", "--json"))
    assert said == {
        "run": "recorded",
        "changed": [GONE, "partition-1"],
        "retired": ["partition-1", GONE],
        "takes_effect": "when the server is started again",
    }


def test_a_name_that_is_not_known_is_refused_before_anything_is_asked(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = told(capsys, "retire", str(run), GONE, "partitoin-3", code=2)
    assert "no client 'partitoin-3'; did you mean partition-3? (partition-0, partition-1" in said
    assert not (run / "retired.jsonl").exists()
    assert "tidegate watch lists" in told(capsys, "retire", str(run), "other", code=2)
