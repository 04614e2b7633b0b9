"""A SuperLink on this machine, and the commands that Flower has for it."""

import contextlib
import json
import os
import shlex
import signal
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from tidegate.errors import SupplierError
from tidegate.rehearsal.processes import TIMEOUT, free_port, kill, wait_for

CONNECTION = "here"
LAST_LINES = 8
"""Of a log that is shown; the whole is in its file."""
CLEAN_LOOKS = 2
"""So many looks in a row must find nothing: a process that is just starting has no environment."""
ENDING_SECONDS = 30.0
MARK = "TIDEGATE_DEPLOYMENT"
"""The variable in the environment of all processes of a deployment; its value is the folder."""
BIN = Path(sys.executable).parent


class SuperLink:
    """A SuperLink and all that was started beside it; everything is gone when the block is left.

    Args:
        folder: for Flower's home, logs, certificates and keys.
        connection: lines of Flower's configuration that say how the SuperLink is reached.
        options: for ``flower-superlink``.
    """

    known_as = CONNECTION
    """What Flower's configuration calls the SuperLink."""

    def __init__(self, folder: Path, *, connection: str, options: list[str]) -> None:
        self.folder = folder
        self.logs = folder / "logs"
        self.authority = folder / "ca.crt"
        """Its certificate, where the SuperLink has one."""
        self.port = free_port()
        self._options = options
        self._processes: list[subprocess.Popen[bytes]] = []
        self._environment = {
            **os.environ,
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "FLWR_HOME": str(folder / "home"),
            MARK: str(folder),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.3",  # 0.05 takes half a core, for nothing
            "RAY_USAGE_STATS_ENABLED": "0",
            "NO_COLOR": "1",
        }
        # A process starts for every message: each would compile Flower anew, for ten seconds.
        self._environment.pop("PYTHONDONTWRITEBYTECODE", None)
        (folder / "home").mkdir(parents=True)
        self.logs.mkdir()
        (folder / "home" / "config.toml").write_text(
            f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\n'
            f'address = "127.0.0.1:{self.port}"\n{connection}\n'
        )

    def __enter__(self) -> Self:
        self.start_link()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> list[int]:
        """End all that was started, and wait until nothing of it lives.

        Returns:
            The processes that do not end; almost always none.
        """
        for process in reversed(self._processes):
            kill(process)
        clean_looks = 0

        def ended() -> bool | None:
            nonlocal clean_looks
            left = self.processes()  # what a SuperLink that was killed had started
            for process in filter(self.owns, left):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            clean_looks = 0 if left else clean_looks + 1
            return clean_looks == CLEAN_LOOKS or None

        with contextlib.suppress(TimeoutError):
            wait_for(ended, "the end of the deployment's processes", ENDING_SECONDS)
        return self.processes()

    def start_link(self) -> None:
        """Start the SuperLink, also again after it was killed, and wait until it answers."""
        options = ["--host", "127.0.0.1", "--port", str(self.port), *self._options]
        self.link = self.start(
            "superlink", "flower-superlink", "--disable-runtime-dependency-installation", *options
        )
        log = self.log_file("superlink")

        def answers() -> bool | None:
            if self.link.poll() is not None:
                raise SupplierError("the SuperLink", f"ended at its start: {last_lines(log)}")
            return self._healthy()

        wait_for(answers, "the SuperLink's health")

    def processes(self) -> list[int]:
        """All that was started for this deployment and lives."""
        everything = (int(path.name) for path in Path("/proc").glob("[0-9]*"))
        return [process for process in everything if self.owns(process)]

    def owns(self, process: int, program: str = "") -> bool:
        """Whether a process lives and was started for this deployment: it has its mark."""
        mark, place = f"{MARK}={self.folder}".encode(), Path(f"/proc/{process}")
        with contextlib.suppress(OSError):
            mine = mark in (place / "environ").read_bytes().split(b"\0")
            return mine and program.encode() in (place / "cmdline").read_bytes()
        return False

    def start(self, name: str, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a program of Flower's in a session of its own; its output goes to a file."""
        with self.log_file(name).open("ab") as log:
            process = subprocess.Popen(  # noqa: S603 - Flower's own programs
                [str(BIN / program), *arguments],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._processes.append(process)
        return process

    def run(self, app: Path, run_config: Mapping[str, Any], *options: str) -> str:
        """Start a run and return its id."""
        pairs = " ".join(f"{key}={json.dumps(value)}" for key, value in run_config.items())
        answer = self.flwr(
            "run", str(app), self.known_as, "--format", "json", "--run-config", pairs, *options
        )
        return str(json.loads(answer)["run-id"])

    def status(self, run_id: str) -> str:
        """Return what Flower says of a run, such as ``running`` or ``finished:completed``."""
        listed = json.loads(
            self.flwr("list", self.known_as, "--run-id", run_id, "--format", "json")
        )
        return str(listed["runs"][0]["status"])

    def finished(self, run_id: str, timeout: float = TIMEOUT) -> str:
        """Wait for the end of a run and return its status."""
        # Its log is streamed until it ends; to ask again and again takes a second of work each.
        with contextlib.suppress(SupplierError):  # a stream that breaks says nothing about the run
            self.flwr("log", run_id, self.known_as, "--stream", timeout=timeout)

        def ended() -> str | None:
            status = self.status(run_id)
            return status if status.startswith("finished") else None

        return wait_for(ended, f"the end of run {run_id}", timeout, every=1.0)

    def log(self, run_id: str) -> str:
        """Return what the server app logged."""
        return self.flwr("log", run_id, self.known_as, "--show")

    def log_file(self, name: str) -> Path:
        """Where the output of a process goes."""
        return self.logs / f"{name}.log"

    def output(self, name: str) -> str:
        """Return what a process printed so far."""
        return self.log_file(name).read_text(errors="replace")

    def flwr(self, *arguments: str, timeout: float = TIMEOUT) -> str:
        """Run a command of Flower's, and return what it printed."""
        done = subprocess.run(  # noqa: S603 - Flower's own program
            [str(BIN / "flwr"), *arguments],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if done.returncode:
            said = f"{done.stdout}{done.stderr}".strip()
            raise SupplierError(
                f"`{shlex.join(['flwr', *arguments])}`", f"ended with {done.returncode}: {said}"
            )
        return done.stdout

    def _healthy(self) -> bool | None:
        secure = self.authority.exists()
        trusted = ssl.create_default_context(cafile=self.authority) if secure else None
        scheme = "https" if secure else "http"
        with contextlib.suppress(OSError):
            answer = urllib.request.urlopen(  # noqa: S310 - this machine
                f"{scheme}://127.0.0.1:{self.port}/health", context=trusted, timeout=5
            )
            return bool(answer.status == 200)  # noqa: PLR2004
        return None


def last_lines(log: Path) -> str:
    """Return the end of a log, and where the rest of it is."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return "\n".join([*(f"  {line}" for line in lines[-LAST_LINES:]), f"(all of it: {log})"])
