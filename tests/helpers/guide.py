"""A reader who follows the pages that tell how to run an app, on one machine."""

import json
import re
import shlex
import subprocess
from pathlib import Path

from deployment import BIN, SuperLink, free_port, wait_for

ROOT = Path(__file__).parents[2]
HOWTO = ROOT / "docs" / "howto"
TLS = HOWTO / "deploy-with-tls.md"
ADDED = HOWTO / "add-to-your-flower-app.md"
PLAIN = ROOT / "examples" / "plain"
RED = HOWTO / "when-something-is-red.md"
PRICES = HOWTO / "per-client-prices.md"


def blocks(page: Path, language: str) -> list[str]:
    """What a page shows in one language, in its order."""
    text = page.read_text("utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def joined(text: str) -> str:
    """Commands with one line each."""
    return re.sub(r"\\\n *", "", text)


class Guide(SuperLink):
    """A reader with one machine, who may not be root and whose ports may be taken."""

    known_as = "fleet"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, connection="", options=[])
        (folder / "home" / "config.toml").unlink()  # the reader's own, or none
        self._environment |= {
            "HOME": str(folder),
            # A SuperLink that `flwr run` starts by itself.
            "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": str(free_port()),
            "FLWR_LOCAL_CONTROL_API_PORT": str(free_port()),
        }
        self._environment.pop("XDG_STATE_HOME", None)
        self.nodes = 0
        self.own = {
            "fleet.example:8000": f"localhost:{self.port}",
            "--host 0.0.0.0 --port 8000": f"--host 127.0.0.1 --port {self.port}",
            "DNS:fleet.example": "DNS:localhost",
            "--port 9094": f"--port {free_port()}",
            "--port 9095": f"--port {free_port()}",
            "/etc/fleet": str(folder),
            "/var/lib": str(folder / "var"),
            "/opt/fleet/bin": str(BIN),
        }

    def here(self, text: str) -> str:
        """What is printed, with this machine's ports and folders."""
        for printed, own in self.own.items():
            text = text.replace(printed, own)
        return text

    def call(self, command: str, place: Path | None = None) -> str:
        """Run commands to their end, in a shell, as a reader does."""
        done = subprocess.run(
            ["bash", "-e", "-c", command],
            cwd=place or self.folder, env=self._environment, capture_output=True, text=True,
            check=False, timeout=400,
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

    def follow(self, command: str, run_id: str = "") -> str:
        """Do what one printed line says; what a command prints that ends."""
        line = self.here(command).replace("RUN_ID", run_id)
        if line.startswith("flower-superlink"):
            self.begin(line, "Uvicorn running", "superlink")
            wait_for(self._healthy, "the SuperLink's health", 60)
        elif line.startswith("flower-supernode"):
            self.begin(line, "SuperNode ID", f"node-{self.nodes}")
            self.nodes += 1
        else:
            return self.call(line)
        return ""

    def begin_run(self, command: str) -> str:
        """Start a run by a printed line, and return its id."""
        return str(json.loads(self.call(f"{self.here(command)} --format json"))["run-id"])

    def await_run(self, run_id: str) -> None:
        """Wait until a run has ended well."""
        # Runs go on side by side, and other tests compute beside them.
        assert self.finished(run_id, timeout=400) == "finished:completed", self.log(run_id)
