"""A user's mistake ends with one line that helps, and never with a traceback."""

import os
import shlex
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidegate.cli import main
from tidegate.cli.app import COMMANDS, command_of

FILES = {
    "bad.toml": "budget = = 3",
    "unknown.toml": "bugdet = 55",
    "typed.toml": 'budget = "much"',
    "prices.csv": "eur\n1.5\n2.5\n",
    "no-app/readme": "",
    "broken-app/pyproject.toml": "[tool.flwr.app]\npublisher = 'me'\n",
    "lost-app/pyproject.toml": (
        "[tool.flwr.app]\npublisher = 'me'\n[tool.flwr.app.components]\n"
        "serverapp = 'nowhere.server:app'\nclientapp = 'nowhere.client:app'\n"
    ),
    "damaged/books.sqlite": "this is no archive",
    "damaged/rounds.jsonl": "",
    "full/file": "",
}

MISTAKES = {
    "plan --budget -5": "greater than 0",
    "plan --budget nan": "finite number",
    "plan --capacities 8,nine --budget 5": "'nine' is not a capacity",
    "plan --capacities 10x0 --budget 5": "this is 0 clients",
    "plan --capacities 10": "add --budget",
    "plan --capacities 10x100000000000 --budget 5": "give 1 to 100,000,000",
    "plan --price uniform:9,1": "is above the highest",
    "plan --price unifrom:1,9": "unknown price law",
    "plan --price constant:0": "are all 0",
    "plan --price trace:nowhere.csv:eur": "there is no file nowhere.csv; give the path",
    "plan --price trace:full:eur": "full is a folder; give a CSV file in it",
    "plan --price trace:prices.csv:usd": "it has eur",
    "plan --price trace:prices.csv:eur --rounds 5": "add --rounds 2",
    "plan --rounds 0": "greater than or equal to 1",
    "plan --gamma 1.5": "less than 1",
    "plan --fraction-train 0": "greater than 0",
    "plan --experiment mnits": "choose from mnist",
    "plan --problem bad.toml": "is not TOML",
    "plan --problem unknown.toml": "did you mean",
    "plan --problem typed.toml": "budget",
    "plan --problem nowhere.toml": "nowhere.toml: No such file",
    "plan --policy tied": "tide",
    "plan --preset as_prinetd": "as_printed",
    "plan --html plan.pdf": "must end in .html",
    "plan --html no/plan.html": "its folder does not exist",
    "buffers nowhere --sweep": "nowhere is not a folder",
    "buffers full --sweep": "there are no buffers or spools in full",
    "forget nowhere --subject x": "nowhere is not a folder",
    "forget full --subject=": "must be a name",
    "audit nowhere": "nowhere does not exist",
    "audit full": "there are no buffers in full",
    "simulate --seeds 0": "is not in the range",
    "simulate --plot picture.xyz": "must end in one of",
    "simulate --out rows.txt": "must end in .csv",
    "simulate --out full": "it is a folder",
    "simulate --budget -1": "greater than 0",
    "simulate --spend-ahead -1": "greater than or equal",
    "simulate --delay later": "must be a whole number of rounds",
    "optimum --budget 55": "no command optimum any more: tidegate plan says",
    "whatif run": "tidegate plan --from RUN",
    "sweep buffers": "tidegate buffers FOLDER --sweep",
    "compare one other": "tidegate report RUN OTHER",
    "plan --memory 2": "--memory needs --from RUN",
    "new full": "already exists",
    "new Not-A-Name": "cannot be the name of an app",
    "run nowhere": "there is no folder nowhere; `tidegate new nowhere` writes an app",
    "run no-app": "no-app",
    "run broken-app": "must give serverapp",
    "run lost-app": "the app has no module 'nowhere'",
    "run no-app --set budget": "must have the form key=value",
    "run nowhere.toml": "nowhere.toml",
    "rehearse nowhere": "nowhere",
    "rehearse no-app --out full": "full already exists; give --out a new folder",
    "rehearse no-app --kill --rounds 1": "--kill needs",
    "run typed.toml": "is a file; give the folder of a Flower app",
    "watch nowhere --once": "there is no folder nowhere; give that of a run",
    "watch damaged --once": "is damaged",
    "watch full --json": "holds no run",
    "retire nowhere site-0": "there is no folder nowhere; give",
    "retire damaged site-0": "is damaged",
    "retire nowhere": "Missing argument",
    "plan --from nowhere": "there is no folder nowhere; give",
    "plan --from damaged": "is damaged",
    "report nowhere": "there is no folder nowhere; give that of a run",
    "report prices.csv": "is a file; give its folder",
    "watch damaged/rounds.jsonl --once": "is a file; give the run's folder, damaged",
    "simulate --policy tide,acdpp": "give --policy once for each",
    "run prices.csv": "is a file; give the folder of a Flower app",
    "report full": "does not hold a run",
    "buffers nowhere": "nowhere is not a folder",
    "export nowhere --to samples": "nowhere is not a folder",
    "buffers --remove-unused 0": "is not in the range",
    "paln": "No such command",
    "plan --bugdet 5": "No such option",
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(text, "utf-8")
    return tmp_path


@pytest.mark.parametrize(("command", "reason"), MISTAKES.items(), ids=MISTAKES)
def test_a_mistake_is_told_in_a_line(
    command: str, reason: str, here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(shlex.split(command))
    out, error = capfd.readouterr()
    assert stopped.value.code == 2
    assert reason in " ".join(error.replace("│", " ").split())
    assert "Traceback" not in error
    assert not out


def test_there_are_many_and_every_command_is_among_them() -> None:
    assert len(MISTAKES) >= 30
    assert {*COMMANDS} <= {command.split()[0] for command in MISTAKES}
    for name, line in COMMANDS.items():
        assert (command_of(name).help or "").splitlines()[0] == line
    assert len(COMMANDS) <= 12


@pytest.mark.parametrize("name", COMMANDS)
def test_help_teaches_by_an_example(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([name, "--help"])
    assert stopped.value.code == 0
    assert f"  tidegate {name} " in capfd.readouterr().out + " "


def test_the_nearest_command_is_named_once(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["wacth"])
    assert capfd.readouterr().err.count("Did you mean 'watch'?") == 1


@pytest.fixture
def unreadable(here: Path) -> Iterator[Path]:
    folder = here / "closed"
    folder.mkdir()
    folder.chmod(0)
    yield folder
    folder.chmod(stat.S_IRWXU)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every folder")
def test_a_folder_that_may_not_be_read(unreadable: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["watch", str(unreadable), "--once"])
    assert stopped.value.code == 2
    assert "Traceback" not in capfd.readouterr().err


WITHOUT = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == {0!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
{1}
"""
"""A Python where a package is not installed."""


@pytest.mark.process
@pytest.mark.parametrize(
    ("package", "arguments", "extra"),
    [
        ("matplotlib", ["simulate", "--plot", "x.png"], "tidegate[plot]"),
        ("matplotlib", ["plan", "--html", "x.html"], "tidegate[report]"),
        ("jinja2", ["report", "."], "tidegate[report]"),
        ("flwr", ["run", "no-app"], "tidegate[flower]"),
    ],
)
def test_a_missing_extra_is_named(
    package: str, arguments: list[str], extra: str, here: Path
) -> None:
    call = f"from tidegate.cli import main; main({arguments!r})"
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT.format(package, call)],
        capture_output=True, text=True, check=False, cwd=here,
    )  # fmt: skip
    assert done.returncode == 2
    assert f"pip install '{extra}" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.process
@pytest.mark.parametrize("name", ["prometheus", "tensorboard", "mlflow"])
def test_a_sink_without_its_library_names_the_extra(name: str) -> None:
    package = {"prometheus": "prometheus_client"}.get(name, name)
    code = WITHOUT.format(package, f"import tidegate.integrations.{name}")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert f"pip install 'tidegate[{name}]'" in done.stderr


def test_a_port_that_is_taken_is_named() -> None:
    from tidegate.integrations.prometheus import Prometheus

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ValueError, match=f"cannot listen on port {port} of 127.0.0.1"):
            Prometheus(port=port)
