"""``tidegate run``: a Flower app in this process."""

import sys
from pathlib import Path

import pytest
from real_data import DATA, needs_mnist

from tidegate.cli import main

ROOT = Path(__file__).parents[2]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as stopped:
        main(["run", *arguments])
    captured = capsys.readouterr()
    return int(stopped.value.code or 0), captured.out + captured.err


@needs_mnist
def test_the_quickstart_runs_and_saves_its_rounds(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    settings = {"num-server-rounds": 2, "data": DATA, "folder": tmp_path / "run", "seed": 3}
    changes = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    code, printed = run(capsys, str(ROOT / "examples" / "quickstart"), "--clients", "2", *changes)
    assert code == 0, printed
    assert len((tmp_path / "run" / "rounds.jsonl").read_text().splitlines()) == 2


def make_app(folder: Path, text: str) -> str:
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")
    return str(folder)


WHOLE = """
[tool.flwr.app.components]
serverapp = "lonely:server"
clientapp = "lonely:client"
[tool.flwr.app.config]
rounds = 3
name = "a"
"""


def test_an_apps_own_config_reaches_it_with_the_changes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    app = make_app(tmp_path, WHOLE)
    (tmp_path / "lonely.py").write_text(
        "from flwr.clientapp import ClientApp\nfrom flwr.serverapp import ServerApp\n"
        "server, client = ServerApp(), ClientApp()\n\n@server.main()\n"
        "def main(grid, context):\n"
        "    print(dict(context.run_config), len(list(grid.get_node_ids())))\n"
    )
    code, printed = run(capsys, app, "--clients", "3", "--set", "rounds=4", "--set", "name=x y")
    sys.modules.pop("lonely")
    assert (code, printed.strip()) == (0, "{'rounds': 4, 'name': 'x y'} 3")


@pytest.mark.parametrize(
    ("text", "arguments", "reason"),
    [
        ("[project]", [], "has no [tool.flwr.app]: it is not a Flower app"),
        ("nonsense", [], "is not TOML"),
        (WHOLE, ["--set", "round=4"], "has no key 'round'; did you mean rounds?"),
        (WHOLE, ["--set", "zzz=4"], "has no key 'zzz'; it has rounds, name"),
        (WHOLE, ["--set", "rounds"], "--set 'rounds' must read key=value"),
        (WHOLE, [], "lonely:server needs 'lonely', which is not installed"),
        ("[tool.flwr.app]", [], "must give serverapp as module:object, got ''"),
    ],
)
def test_a_mistake_is_told_in_one_line(
    text: str,
    arguments: list[str],
    reason: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    code, printed = run(capsys, make_app(tmp_path, text), *arguments)
    assert code == 2
    assert reason in printed
    assert len(printed.strip().splitlines()) == 1


def test_a_folder_without_an_app_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, printed = run(capsys, str(tmp_path / "nowhere"))
    assert code == 2
    assert "holds no Flower app: it has no pyproject.toml" in printed


def test_without_flower_the_remedy_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("tidegate.flower")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "flwr", None)
    monkeypatch.setitem(sys.modules, "flwr.app", None)
    code, printed = run(capsys, ".")
    assert code == 2
    assert "pip install 'tidegate[flower]'" in printed
