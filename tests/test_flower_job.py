"""The nightly job on the newest Flower: its own steps, with another ``check-flower`` and ``gh``."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from tidegate.flower.flower_internals import NEWEST_TRIED

pytestmark = [pytest.mark.process, pytest.mark.no_cover]

ROOT = Path(__file__).parents[1]
JOB = ROOT / ".github" / "workflows" / "flower.yml"
INTERNALS = "src/tidegate/flower/flower_internals.py"
GH = """#!/usr/bin/env bash
case "$1 $2" in
"issue list") cat open-titles ;;
"issue create")
    printf '%s\\n' "$4" >>opened
    cat >body
    ;;
*) exit 9 ;;
esac
"""


class Night:
    """A checkout in which a night's check prints and returns what the test says."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for place in ("scripts/report-flower", INTERNALS):
            (folder / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / place, folder / place)
        (folder / "bin").mkdir()
        self.write("bin/gh", GH)
        (folder / "open-titles").touch()

    def write(self, place: str, text: str) -> None:
        (self.folder / place).write_text(text, "utf-8")
        (self.folder / place).chmod(0o755)

    def passes(self, printed: str, *, status: int) -> list[str]:
        """Run the job's own steps; the titles of all issues that were opened so far."""
        self.write(
            "scripts/check-flower", f"#!/bin/sh\ntest $1 = newest\n{printed}\nexit {status}\n"
        )
        outcome = "success"
        for step in steps():
            command = re.sub(r"\$\{\{ steps\.check\.outcome \}\}", outcome, step["run"])
            done = self.shell(command)
            if step.get("id") == "check":
                outcome = "failure" if done.returncode else "success"
                assert done.returncode == status
            else:
                assert done.returncode == 0, done.stderr
        opened = self.folder / "opened"
        return opened.read_text("utf-8").splitlines() if opened.exists() else []

    def shell(self, command: str) -> subprocess.CompletedProcess[str]:
        """As the runner does where a step says ``shell: bash``."""
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", command],
            cwd=self.folder, env={**os.environ, "PATH": path}, capture_output=True, text=True,
            check=False, timeout=60,
        )  # fmt: skip


def job() -> dict[Any, Any]:
    content: dict[Any, Any] = yaml.safe_load(JOB.read_text("utf-8"))
    return content


def steps() -> list[dict[str, Any]]:
    """Those that run a command, in order; the second also where the first has failed."""
    listed = [step for step in job()["jobs"]["newest"]["steps"] if "run" in step]
    assert [step.get("id") for step in listed] == ["check", None]
    assert listed[0]["shell"] == "bash"
    assert "!cancelled()" in listed[1]["if"]
    return listed


def test_the_job_runs_every_night_and_may_open_issues() -> None:
    content = job()
    assert content[True]["schedule"]  # YAML reads `on` as true
    assert content["permissions"]["issues"] == "write"
    assert all((ROOT / step["run"].split()[0]).exists() for step in steps())


def test_a_flower_whose_checks_fail_opens_one_issue_with_the_log(tmp_path: Path) -> None:
    night = Night(tmp_path)
    failing = "echo Flower 1.99.0; echo 'E  TaskIdentity has moved'"
    assert night.passes(failing, status=1) == ["Flower 1.99.0: checks fail"]
    body = (tmp_path / "body").read_text("utf-8")
    assert "TaskIdentity has moved" in body
    assert f"newest version that was tried is {NEWEST_TRIED}" in body
    (tmp_path / "open-titles").write_text(
        "Flower 1.98.0: checks fail\nFlower 1.99.0: checks fail\n"
    )
    assert len(night.passes(failing, status=1)) == 1
    (tmp_path / "open-titles").write_text("Flower 1.99.0: checks fail on a Raspberry Pi\n")
    assert len(night.passes(failing, status=1)) == 2  # another issue


def test_a_newer_flower_that_passes_asks_to_be_declared(tmp_path: Path) -> None:
    opened = Night(tmp_path).passes("echo Flower 1.100.0", status=0)
    assert opened == ["Flower 1.100.0: checks pass; raise NEWEST_TRIED"]


@pytest.mark.parametrize("version", [NEWEST_TRIED, "1.41.0"])
def test_a_flower_that_was_tried_and_passes_opens_nothing(version: str, tmp_path: Path) -> None:
    assert Night(tmp_path).passes(f"echo Flower {version}", status=0) == []


def test_a_flower_that_cannot_be_installed_is_told_as_such(tmp_path: Path) -> None:
    opened = Night(tmp_path).passes("echo 'no version of certifi'", status=1)
    assert opened == ["The newest Flower cannot be installed"]
