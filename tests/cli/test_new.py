"""The app that ``tidegate new`` writes: Flower's layout, and it runs as it is."""

import io
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from flwr.cli.build import build_fab_from_disk

from tidegate.cli import main, rounds_bar
from tidegate.cli.new import TEMPLATE
from tidegate.client.auditing import audit_file
from tidegate.runs.reader import read_run


def command(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stopped:
        main(list(arguments))
    return int(stopped.value.code or 0)


def test_the_app_has_flowers_layout_and_its_own_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command("new", "north-sea") == 0
    assert command("new", "my_fleet2") == 0
    assert 'name = "my_fleet2"' in Path("my_fleet2/pyproject.toml").read_text("utf-8")
    Path("south-sea").mkdir()
    monkeypatch.chdir(tmp_path / "south-sea")
    assert command("new", ".") == 0
    assert 'name = "south-sea"' in Path("pyproject.toml").read_text("utf-8")
    monkeypatch.chdir(tmp_path)
    written = {path.relative_to("north-sea").as_posix() for path in Path("north-sea").rglob("*.*")}
    modules = {f"north_sea/{name}.py" for name in ("__init__", "client_app", "server_app", "task")}
    assert written == {".gitignore", "pyproject.toml", "README.md", *modules}
    for path in Path("north-sea").rglob("*.*"):
        assert "my_fleet" not in path.read_text("utf-8").replace("my-fleet", "my_fleet"), path


def test_a_second_app_of_the_same_name_is_told_that_the_folder_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command("new", "north-sea") == 0
    monkeypatch.syspath_prepend(tmp_path / "north-sea")  # as `pip install -e north-sea` does
    assert command("new", "north-sea") == 2
    assert (
        "tidegate: north-sea already exists and is not empty; choose another name"
        in capsys.readouterr().err
    )


@pytest.mark.filterwarnings("ignore:GitWildMatchPattern")  # Flower, beside a newer pathspec
def test_a_run_in_the_apps_folder_is_not_sent_to_the_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command("new", "west-sea") == 0
    sent = packed(Path("west-sea"))
    assert "west_sea/task.py" in sent
    for place in ("run", "results/first"):
        folder = f"folder=west-sea/{place}"
        changes = ["--set", folder, "--set", "num-server-rounds=1", "--clients", "2"]
        assert command("run", "west-sea", *changes) == 0
    for name in [name for name in sys.modules if name.startswith("west_sea")]:
        sys.modules.pop(name)
    assert Path("west-sea/results/first/rounds.jsonl").exists()
    assert packed(Path("west-sea")) == sent


def test_the_run_beside_has_the_same_money_and_takes_samples_as_they_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(rounds_bar, "BETWEEN_LINES", 0.0)
    assert command("new", "east-sea") == 0
    few = ["--set", "num-server-rounds=4", "--set", "buffer-capacity=2", "--clients", "2"]
    assert command("run", "east-sea", "--set", "folder=run", "--set", "run=mine", *few) == 0
    table, progress = capsys.readouterr()
    assert re.findall(r"^(.*)round 3 of 4", progress, re.MULTILINE) == ["", "as they come: "]
    mine, plain = read_run(Path("run")), read_run(Path("run/as-they-come"))
    assert (mine.run, plain.run) == ("mine", "mine-as-they-come")
    assert [row.spent for row in mine.rounds] == [row.spent for row in plain.rounds]
    assert [client.candidates for client in mine.clients] == [20, 20]
    assert [client.candidates for client in plain.clients] == [0, 0]
    assert all(client.read == client.total_admitted for client in plain.clients)
    for name in ("accuracy", "rare digits read"):
        both = (f"{view.metrics[f'server/{name}'][4]:.4g}" for view in (mine, plain))
        assert re.search(rf"{name} +{' +'.join(both)}", table)
    assert command("report", "run") == 0
    page = Path("run/report.html").read_text("utf-8")
    assert "as-they-come: " in page
    choosing = "not how well clients chose them"
    assert choosing in page
    assert command("report", "run/as-they-come") == 0
    assert choosing not in Path("run/as-they-come/report.html").read_text("utf-8")
    capsys.readouterr()
    for folder, count in (("run", 1), ("run/as-they-come", 0)):
        assert command("plan", "--from", folder) == 0
        assert capsys.readouterr().out.count("clients chose which samples to buy") == count
    assert command("run", "east-sea", "--set", "folder=other", "--alone", *few) == 0
    assert not Path("other/as-they-come").exists()
    for name in [name for name in sys.modules if name.startswith("east_sea")]:
        sys.modules.pop(name)


def packed(app: Path) -> set[str]:
    """What Flower sends to nodes."""
    with zipfile.ZipFile(io.BytesIO(build_fab_from_disk(app))) as package:
        return set(package.namelist())


@pytest.mark.process
def test_the_same_command_resumes_the_app(tmp_path: Path) -> None:
    """A run that stops half-way and goes on is the run that never stopped."""

    def run(folder: str, rounds: int) -> None:
        options = ["--set", f"folder={folder}", "--set", "policy=constant_admission"]
        options += ["--set", "run=same", "--clients", "3", "--set", f"stop-after={rounds}"]
        options += ["--alone"]
        done = subprocess.run(
            [sys.executable, "-m", "tidegate", "run", "fleet", *options],
            cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
        assert ("stopped half-way" in done.stderr) == (rounds < 50), done.stderr
        assert "has lost its buffer" not in done.stderr

    make = [sys.executable, "-m", "tidegate", "new", "fleet"]
    subprocess.run(make, cwd=tmp_path, check=True, capture_output=True)
    server = tmp_path / "fleet" / "fleet" / "server_app.py"
    text = server.read_text("utf-8")
    stop = """        if server_round >= int(config["stop-after"]):
            raise RuntimeError("stopped half-way")
        model = {"""
    assert text.count("        model = {") == 1
    server.write_text(text.replace("        model = {", stop), "utf-8")
    settings = tmp_path / "fleet" / "pyproject.toml"
    settings.write_text(f"{settings.read_text('utf-8')}stop-after = 99\n", "utf-8")
    run("whole", 99)
    run("parts", 20)
    run("parts", 99)
    assert read_run(tmp_path / "parts").rounds == read_run(tmp_path / "whole").rounds
    assert len(audit_file(tmp_path / "parts" / "buffers" / "clients.sqlite")) == 3


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("My Fleet", "cannot be the name of an app"),
        ("1st", "cannot be the name of an app"),
        ("lambda", "cannot be the name of an app"),
        ("numpy", "the Python package 'numpy' exists already"),
        ("there", "already exists"),
    ],
)
def test_names_that_cannot_be_are_refused(
    name: str,
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("there").mkdir()
    Path("there/file").touch()
    assert command("new", name) == 2
    assert reason in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"there"}


def test_the_template_is_part_of_the_package() -> None:
    assert (TEMPLATE / "pyproject.toml").exists()
