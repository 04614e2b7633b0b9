"""What modules of Tidegate log is in Flower's log, once."""

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from tidegate.flower import AdmissionControl  # noqa: F401 - lets Tidegate log to Flower's
from tidegate.runs.server_log import LOG, logged

LOGGERS = ("tidegate.server.ledger", "tidegate.flower.strategy")
"""Of a module of the core, and of one that knows Flower."""
WARN = "; ".join(f"logging.getLogger({name!r}).warning('from %s', {name!r})" for name in LOGGERS)
INFORM = WARN.replace(".warning(", ".info(")
APP = f"""
import logging
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
import tidegate.flower

server, client = ServerApp(), ClientApp()

@server.main()
def main(grid, context):
    {WARN}
"""
COMPONENTS = """
[tool.flwr.app.components]
serverapp = "warning_app:server"
clientapp = "warning_app:client"
"""


def printed(*arguments: str) -> str:
    """What a new interpreter prints to both streams."""
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ).stdout


@pytest.mark.process
@pytest.mark.parametrize("said", [WARN, INFORM])
def test_flowers_console_shows_each_line_once(said: str) -> None:
    text = printed("-c", f"import logging, tidegate.flower; {said}")
    kind = "WARNING" if said == WARN else "INFO"
    lines = [line for line in text.splitlines() if "from tidegate" in line]
    assert [line.rpartition(" ")[2] for line in lines] == list(LOGGERS)
    assert all(kind in line for line in lines)


@pytest.mark.process
def test_a_level_of_ones_own_holds() -> None:
    quiet = "logging.getLogger('tidegate').setLevel('ERROR')"
    assert "from" not in printed("-c", f"import logging; {quiet}; import tidegate.flower; {WARN}")


@pytest.mark.process
@pytest.mark.parametrize("options", [(), ("--verbose",)])
def test_tidegate_run_shows_each_line_once(tmp_path: Path, options: tuple[str, ...]) -> None:
    (tmp_path / "pyproject.toml").write_text(COMPONENTS)
    (tmp_path / "warning_app.py").write_text(APP)
    text = printed("-m", "tidegate", "run", str(tmp_path), *options)
    for name in LOGGERS:
        assert text.count(f"from {name}") == 1, text


def test_the_runs_folder_has_each_line_once(tmp_path: Path) -> None:
    with logged(tmp_path):
        for name in LOGGERS:
            logging.getLogger(name).info("from %s", name)
            logging.getLogger(name).warning("from %s", name)
    lines = (tmp_path / LOG).read_text("utf-8").splitlines()
    assert [line.partition(" UTC ")[2] for line in lines] == [
        f"{kind} from {name}" for name in LOGGERS for kind in ("INFO", "WARNING")
    ]
