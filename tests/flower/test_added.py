"""The documented diff, applied to a plain Flower app: it runs before, and under a budget after."""

import logging
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tidegate.flower import app as apps
from tidegate.flower.strategy import AdmissionControl

pytest.importorskip("sklearn", reason="the plain app reads scikit-learn's digits")

ROOT = Path(__file__).parents[2]
PLAIN = ROOT / "tests" / "helpers" / "plain_app"
PAGE = ROOT / "docs" / "howto" / "add-to-your-flower-app.md"


def patches() -> list[str]:
    text = PAGE.read_text("utf-8")
    return re.findall(r"^```diff\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def lines_added(patch: str) -> int:
    """Lines that are new or changed; empty ones do not count."""
    return sum(line.startswith("+") and line != "+" for line in patch.splitlines()[2:])


def run(folder: Path, clients: int) -> None:
    """In this process, each time as if the app had never been loaded."""
    for name in [name for name in sys.modules if name.split(".")[0] == "plain"]:
        del sys.modules[name]
    apps.run_app(folder, num_clients=clients)


@pytest.mark.process
@pytest.mark.skipif(shutil.which("patch") is None, reason="there is no patch program here")
def test_the_diff_applies_and_the_app_keeps_to_its_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(PLAIN, tmp_path / "app")
    with caplog.at_level(logging.INFO, logger="flwr"):
        run(tmp_path / "app", 4)
    assert "Received 4 results and 0 failures" in caplog.text

    for patch in patches():
        subprocess.run(
            ["patch", "-p1", "--no-backup-if-mismatch", "--fuzz=0"],
            cwd=tmp_path / "app", input=patch, text=True, check=True,
        )  # fmt: skip
    server, client = patches()
    assert lines_added(server) <= 3
    assert lines_added(client) <= 6

    started: list[AdmissionControl] = []
    begin = AdmissionControl._begin

    def noticed(self: AdmissionControl, *arguments: object) -> None:
        started.append(self)
        begin(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(AdmissionControl, "_begin", noticed)
    run(tmp_path / "app", 4)
    (control,) = started
    assert len(control.rounds) == 10
    assert all(row.answered == 4 for row in control.rounds)
    assert all(row.overspend <= row.cost_debt + 1e-9 for row in control.rounds)
    assert control.rounds[-1].training_size == 40  # every buffer is full
