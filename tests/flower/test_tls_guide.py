"""The guide for a deployment with TLS, run as it is printed, with two SuperNodes on one machine."""

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from deployment import BIN, SuperLink, free_port, wait_for

from tidegate.runs.reader import read_run

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "deploy-with-tls.md"


def blocks(language: str) -> list[str]:
    """What the page shows in one language, in its order."""
    text = PAGE.read_text("utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def _joined(text: str) -> str:
    """Commands with one line each."""
    return re.sub(r"\\\n *", "", text)


class Guide(SuperLink):
    """A reader with one machine, who may not be root and whose ports may be taken."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, connection="", options=[])
        self._own = {
            "fleet.example:8000": f"127.0.0.1:{self.port}",
            "--host 0.0.0.0 --port 8000": f"--host 127.0.0.1 --port {self.port}",
            "DNS:fleet.example": "IP:127.0.0.1",
            "--port 9094": f"--port {free_port()}",
            "--port 9095": f"--port {free_port()}",
            "/etc/fleet": str(folder),
            "/var/lib": str(folder / "var"),
            "/opt/fleet/bin": str(BIN),
        }

    def here(self, text: str) -> str:
        """What is printed, with this machine's ports and folders."""
        for printed, own in self._own.items():
            text = text.replace(printed, own)
        return text

    def call(self, command: str) -> str:
        """Run one command to its end, in a shell, as a reader does."""
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder, env=self._environment, capture_output=True, text=True, check=False,
            timeout=200,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    def begin(self, command: str, ready: str, name: str) -> None:
        """Start what stays, and wait until its log says that it is ready."""
        program, *arguments = shlex.split(command)
        process = self.start(name, program, *arguments)

        def there() -> bool | None:
            assert process.poll() is None, self.output(name)
            return ready in self.output(name) or None

        wait_for(there, f"{ready!r} of {program}", 90)

    def run_to_its_end(self, command: str) -> str:
        """Start a run, and return its id when it has ended well."""
        run_id = str(json.loads(self.call(f"{command} --format json"))["run-id"])

        def ended() -> str | None:
            listed = json.loads(self.call(f"flwr list fleet --run-id {run_id} --format json"))
            status = str(listed["runs"][0]["status"])
            return status if status.startswith("finished") else None

        status = wait_for(ended, "the end of the run", 200, every=2.0)
        assert status == "finished:completed", self.call(f"flwr log {run_id} fleet --show")
        return run_id


@pytest.fixture
def guide(tmp_path: Path) -> Iterator[Guide]:
    reader = Guide(tmp_path / "machine")
    yield reader
    reader.stop()


@pytest.mark.deployment
@pytest.mark.share(480)  # a SuperLink, two SuperNodes and three rounds, which mostly wait
@pytest.mark.skipif(
    shutil.which("openssl") is None or shutil.which("ssh-keygen") is None,
    reason="there is no openssl or no ssh-keygen here",
)
def test_the_guide_runs_as_printed_with_two_supernodes_on_one_machine(guide: Guide) -> None:
    text = PAGE.read_text("utf-8")
    assert [printed for printed in guide._own if printed not in text] == []
    (config,) = blocks("toml")
    (guide.folder / "home" / "config.toml").write_text(guide.here(config), "utf-8")
    run_id, nodes, log = "", 0, ""
    for block in blocks("text"):
        for line in _joined(guide.here(block)).splitlines():
            if line.startswith("flower-superlink"):
                guide.begin(line, "Uvicorn running", "superlink")
                wait_for(guide._healthy, "the SuperLink's health", 60)
            elif line.startswith("flower-supernode"):
                guide.begin(line, "SuperNode ID", f"node-{nodes}")
                nodes += 1
            elif line.startswith("flwr run"):
                run_id = guide.run_to_its_end(line)
            else:
                shown = guide.call(line.replace("RUN_ID", run_id))
                log = shown if line.startswith("flwr log") else log
    assert nodes == 2
    run = guide.folder / "var" / "fleet" / "run"
    assert f"the run is saved in {run}" in log
    view = read_run(run)
    assert [one.name for one in view.clients] == ["site-0", "site-1"]
    assert len(view.rounds) == 3
    assert all(row.answered == 2 for row in view.rounds)
    with np.load(run / "control.npz") as books:  # other apps will not resume it
        assert json.loads(books["control"].tobytes())["app"] == "me/my-fleet"
    assert len(list((guide.folder / "var" / "tidegate").glob("*.sqlite"))) == 2


@pytest.mark.process
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_the_unit_of_the_guide_is_understood_by_systemd(tmp_path: Path) -> None:
    (unit,) = blocks("ini")
    path = tmp_path / "fleet-site.service"
    path.write_text(unit.replace("/opt/fleet/bin", str(BIN)), "utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(path)],
        capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"},
    )  # fmt: skip
    told = [line for line in done.stderr.splitlines() if path.name in line]
    assert told == []


def test_the_unit_starts_what_the_guide_starts_by_hand() -> None:
    (unit,) = blocks("ini")
    (command,) = re.findall(
        r"^ExecStart=/opt/fleet/bin/(.*?[^\\])$", unit, re.DOTALL | re.MULTILINE
    )
    by_hand = next(block for block in blocks("text") if block.startswith("flower-supernode"))
    assert shlex.split(_joined(command)) == shlex.split(_joined(by_hand))
