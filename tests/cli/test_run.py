"""``tidegate run``: a Flower app in this process."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from real_data import DATA, needs_mnist

from tidegate.cli import main, rounds_bar
from tidegate.flower.app import AppError, run_app

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
    code, printed = run(capsys, app, "--clients", "3", "--set", "rounds = 4", "--set", "name=x y")
    assert (code, printed.strip()) == (0, "{'rounds': 4, 'name': 'x y'} 3")


def test_a_changed_value_takes_the_type_of_the_apps_own(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    more = "rate = 0.5\nfast = true\n"
    changes = {"name": "12", "rate": "2", "fast": "false", "rounds": "7"}
    given = [part for key, value in changes.items() for part in ("--set", f"{key}={value}")]
    app = app_with(tmp_path, "print(dict(context.run_config))", more)
    code, printed = run(capsys, app, *given)
    expected = {"rounds": 7, "name": "12", "rate": 2.0, "fast": False}
    assert (code, printed.strip()) == (0, str(expected))
    code, printed = run(capsys, app, "--set", "fast=yes")
    assert (code, len(printed.strip().splitlines())) == (2, 1)
    assert "fast = 'yes' must be true or false, such as the app's own true" in printed
    code, printed = run(capsys, app, "--set", "name='a b'")
    assert "'name': 'a b'" in printed


ROUNDS = """
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

server, client = ServerApp(), ClientApp()

@server.main()
def main(grid, context):
    measured = lambda now, arrays: MetricRecord({"accuracy": now / 8})
    FedAvg(fraction_evaluate=0.0).start(grid, ArrayRecord(), num_rounds=4, evaluate_fn=measured)

@client.train()
def train(message, context):
    if context.node_config["partition-id"] < context.run_config["rounds"]:
        raise OSError(f"no disk {context.node_config['partition-id']}")
    metrics = MetricRecord({"train_loss": 0.25, "num-examples": 1})
    return Message(RecordDict({"arrays": ArrayRecord(), "metrics": metrics}), reply_to=message)
"""


@pytest.mark.parametrize(("failing", "code"), [(0, 0), (1, 0), (3, 1)])
def test_a_run_ends_with_what_was_measured_and_who_failed(
    failing: int, code: int, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    app = make_app(tmp_path, WHOLE)
    (tmp_path / "lonely.py").write_text(ROUNDS)
    found, printed = run(capsys, app, "--clients", "3", "--set", f"rounds={failing}")
    assert found == code, printed
    assert "[ROUND" not in printed
    assert re.search(r"4 rounds in [\d.]+ s;", printed)
    assert "accuracy 0.5" in printed
    assert ("train_loss 0.25" in printed) == (failing < 3)
    failures = f"{4 * failing} of 12 train messages to clients failed"
    assert (failures in printed) == (failing > 0)
    assert ("the first failed with OSError: no disk" in printed) == (failing > 0)
    assert printed.count("Traceback") == (failing > 0)
    assert printed.count("error: ") == (failing > 0)
    assert len(printed.splitlines()) < 25


def test_a_run_without_a_terminal_prints_a_line_now_and_then(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = make_app(tmp_path, WHOLE)
    (tmp_path / "lonely.py").write_text(ROUNDS)
    _, printed = run(capsys, app, "--clients", "2", "--set", "rounds=0")
    assert "round 2 of 4" not in printed  # a run of seconds needs none
    sys.modules.pop("lonely", None)
    monkeypatch.setattr(rounds_bar, "BETWEEN_LINES", 0.0)
    _, printed = run(capsys, app, "--clients", "2", "--set", "rounds=0")
    assert "round 2 of 4; train_loss 0.25; accuracy 0.125\n" in printed
    assert "round 4 of 4; train_loss 0.25; accuracy 0.375\n" in printed


def app_with(folder: Path, body: str, config: str = "") -> str:
    """An app whose server does this."""
    (folder / "lonely.py").write_text(
        "import logging\nfrom flwr.clientapp import ClientApp\n"
        "from flwr.serverapp import ServerApp\n"
        "from flwr.serverapp.strategy import FedAvg\nfrom tidegate.flower import AdmissionControl\n"
        "from tidegate.prices import PricePath, UniformPrice\n"
        "server, client = ServerApp(), ClientApp()\n\n@server.main()\n"
        f"def main(grid, context):\n    {body}\n"
    )
    return make_app(folder, WHOLE + config)


@pytest.fixture(autouse=True)
def _imported_anew() -> Iterator[None]:
    yield
    sys.modules.pop("lonely", None)


@pytest.mark.parametrize("wrong", ["int('x')", "open('/nowhere/at/all')", "1 / 0"])
def test_what_an_app_raises_is_shown_from_the_apps_own_code_on(
    wrong: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, printed = run(capsys, app_with(tmp_path, wrong))
    assert code == 1
    assert f"    {wrong}\n" in printed
    assert "tidegate/cli" not in printed
    told = printed.strip().splitlines()
    assert told[0] == "Traceback (most recent call last):"
    assert told[-1] == f"tidegate: the app in {tmp_path} raised {told[-2]}"
    assert len(told) < 8
    with pytest.raises(AppError, match="raised"):
        run_app(tmp_path, num_clients=2)


def test_an_app_that_is_not_python_is_shown_where(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, printed = run(capsys, app_with(tmp_path, "1 +"))
    assert code == 1
    assert "    1 +\n" in printed
    assert "raised SyntaxError: invalid syntax (lonely.py, line 11)" in printed
    assert len(printed.strip().splitlines()) < 8


def test_tables_in_the_config_have_names_with_dots(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    tables = "[tool.flwr.app.config.model]\nrate = 0.1\n[tool.flwr.app.config.model.deep]\nx = 1\n"
    app = app_with(tmp_path, "print(dict(context.run_config))", tables)
    code, printed = run(capsys, app, "--set", "model.rate=0.2")
    assert (code, printed.strip()) == (
        0,
        "{'rounds': 3, 'name': 'a', 'model.rate': 0.2, 'model.deep.x': 1}",
    )


def test_a_component_that_the_module_lacks_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    app = app_with(tmp_path, "pass")
    make_app(tmp_path, WHOLE.replace("lonely:server", "lonely:servr"))
    code, printed = run(capsys, app)
    assert code == 2
    assert "lonely has no 'servr'; did you mean server?" in printed


def test_flowers_whole_log_is_there_for_who_wants_it(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    app = make_app(tmp_path, WHOLE)
    (tmp_path / "lonely.py").write_text(ROUNDS)
    with caplog.at_level("INFO", logger="flwr"):
        code, printed = run(capsys, app, "--set", "rounds=0", "--verbose")
    assert code == 0
    assert "rounds in" not in printed
    assert [record.args for record in caplog.records if record.msg.startswith("[ROUND")] == [
        (now, 4) for now in (1, 2, 3, 4)
    ]


@pytest.mark.parametrize(
    ("text", "arguments", "reason"),
    [
        ("[project]", [], "has no [tool.flwr.app]: it is not a Flower app"),
        ("nonsense", [], "is not TOML"),
        (WHOLE, ["--set", "round=4"], "has no key 'round'; did you mean rounds?"),
        (WHOLE, ["--set", "zzz=4"], "has no key 'zzz'; it has rounds, name"),
        (WHOLE, ["--set", "rounds=abc"], "rounds = 'abc' must be a whole number, such as the a"),
        (WHOLE, ["--set", "rounds=1.5"], "rounds = '1.5' must be a whole number, such as the a"),
        (WHOLE, ["--set", "rounds"], "--set 'rounds' must have the form key=value"),
        (
            WHOLE,
            [],
            "serverapp = 'lonely:server', but the app has no module 'lonely'; check its s",
        ),
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


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("from .tsk import x", "'shoal.tsk', which the app does not have; check its spelling"),
        ("import nowhere1", "'nowhere1', which is not installed; install the app's dependencies"),
    ],
)
def test_an_import_that_fails_is_told_with_its_remedy(
    line: str, reason: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "shoal").mkdir()
    (tmp_path / "shoal" / "app.py").write_text(line)
    sys.modules.pop("shoal", None)
    code, printed = run(capsys, make_app(tmp_path, WHOLE.replace("lonely", "shoal.app")))
    assert code == 2
    assert f"shoal.app:server imports {reason}\n" in printed


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


STOPPED = """
import numpy as np
from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from tidegate.flower import AdmissionControl, ClientGate

server, gate = ServerApp(), ClientGate(lambda context: range(100), buffer_capacity=4)
client = ClientApp(mods=[gate])

@server.main()
def main(grid, context):
    def after(now, arrays):
        if now == context.run_config["rounds"]:
            raise KeyboardInterrupt
    strategy = AdmissionControl(
        FedAvg(fraction_evaluate=0.0), "tide", budget=9.0, prices=1.0,
        folder=context.run_config["name"] or None,
    )
    strategy.start(grid, ArrayRecord({"w": Array(np.zeros(2))}), num_rounds=5, evaluate_fn=after)

@client.train()
def train(message, context):
    gate.samples(context)
    arrays = message.content.array_records["arrays"]
    return Message(RecordDict({"arrays": arrays}), reply_to=message)
"""


@pytest.mark.parametrize("first", ["raise KeyboardInterrupt", "pass"])
def test_ctrl_c_before_the_first_round_says_so(
    first: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    app = make_app(tmp_path, WHOLE)
    text = STOPPED.replace("def main(grid, context):", f"def main(grid, context):\n    {first}")
    text = text.replace("gate.samples", "raise KeyboardInterrupt\n    gate.samples")
    (tmp_path / "lonely.py").write_text(text)
    folder = "" if first == "pass" else tmp_path / "run"
    code, printed = run(capsys, app, "--clients", "2", "--set", f"name={folder}")
    assert code == 130, printed
    if first == "pass":
        assert "stopped before the first round ended; nothing was saved, because" in printed
    else:
        assert "stopped before the first round; nothing was bought or saved" in printed
        assert "no folder" not in printed


@pytest.mark.parametrize("saved", [True, False])
def test_ctrl_c_says_after_which_round_and_how_to_go_on(
    saved: bool,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rounds_bar, "BETWEEN_LINES", 0.0)
    app = make_app(tmp_path, WHOLE)
    (tmp_path / "lonely.py").write_text(STOPPED)
    name = f"name={tmp_path / 'run' if saved else ''}"
    code, printed = run(capsys, app, "--clients", "2", "--set", "rounds=2", "--set", name)
    assert code == 130, printed
    if not saved:
        assert "nothing was saved, because AdmissionControl was given no folder" in printed
        assert "saves the run with --set folder=run\n" in printed
        return
    assert f"stopped after round 2, saved in {tmp_path / 'run'}; run the same command" in printed
    assert "somebody interrupted the run (Ctrl-C)" in (tmp_path / "run" / "server.log").read_text()
    with pytest.raises(SystemExit) as watched:
        main(["watch", str(tmp_path / "run"), "--once"])
    assert watched.value.code == 0, "not red: somebody wanted it"
    assert "SERVER STOPPED: somebody interrupted the run (Ctrl-C), after" in capsys.readouterr().out
    code, printed = run(capsys, app, "--clients", "2", "--set", "rounds=9", "--set", name)
    assert code == 0, printed
    assert "round 3 of 5\n" in printed
    assert "round 1 of" not in printed
    assert len((tmp_path / "run" / "rounds.jsonl").read_text().splitlines()) == 5
