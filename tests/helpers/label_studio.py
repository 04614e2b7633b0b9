"""A real Label Studio for tests, on 127.0.0.1, and somebody who labels what is asked there."""

import json
import os
import shutil
import signal
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, Self

import pytest
from check_size import SIZE
from deployment import free_port, wait_for

VARIABLE = "TIDEGATE_LABEL_STUDIO"
SCRIPT = Path(__file__).parent.parent.parent / "scripts" / "make-label-studio"
CONFIGURATION = """<View><Text name="text" value="$text"/>
<TextArea name="label" toName="text"/></View>"""


def installed(new_folder: Callable[[], Path]) -> Path:
    """What ``scripts/make-label-studio`` made; at full size it is made now where it is missing.

    ``scripts/check`` makes it beside the tests: in the end there is a token, or a log of what
    failed.
    """
    if os.environ.get(VARIABLE):
        made = Path(os.environ[VARIABLE])
        making, failed = Path(f"{made}.making"), Path(f"{made}.failed")
        token = made / "token"
        wait_for(lambda: (token.exists() or not making.exists()) or None, "Label Studio", 1200)
        if token.exists():
            return made
        if failed.exists():
            pytest.skip(f"no Label Studio could be made here: {failed.read_text()[-300:]}")
    if SIZE != "full":
        pytest.skip(f"there is no Label Studio here: see scripts/make-label-studio, {VARIABLE}")
    folder = new_folder() / "label-studio"
    subprocess.run([SCRIPT, folder], check=True)
    return folder


class LabelStudio:
    """A server in a folder of its own, to be killed and started again.

    Args:
        made: what ``scripts/make-label-studio`` made; its data folder is copied.
        folder: that does not exist yet.
    """

    def __init__(self, made: Path, folder: Path) -> None:
        self._made = made
        self.folder = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.token = (made / "token").read_text().strip()
        self.token_file = made / "token"
        shutil.copytree(made / "data", folder)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        environment = {
            **os.environ,
            "LABEL_STUDIO_BASE_DATA_DIR": str(self.folder),
            "SENTRY_DSN": "", "FRONTEND_SENTRY_DSN": "",  # it shall call nobody
            "COLLECT_ANALYTICS": "0", "LATEST_VERSION_CHECK": "0",
        }  # fmt: skip
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    self._made / "bin" / "label-studio", "start", "--no-browser",
                    "--internal-host", "127.0.0.1", "--port", str(self.port),
                ],
                env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        wait_for(self._answers, "Label Studio", 120, every=0.2)

    def kill(self) -> None:
        """SIGKILL."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def _answers(self) -> bool | None:
        assert self.process.poll() is None, (self.folder / "log").read_text()[-2000:]
        try:
            return bool(self.request("GET", "/api/projects"))
        except OSError:
            return None

    def request(self, method: str, path: str, body: object = None) -> Any:
        """What the server answers to the account's owner."""
        request = urllib.request.Request(  # noqa: S310
            f"{self.url}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Token {self.token}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            text = answer.read()
        return json.loads(text) if text else None

    def new_project(self, configuration: str = CONFIGURATION) -> int:
        """Its number."""
        made = self.request(
            "POST", "/api/projects", {"title": "labels", "label_config": configuration}
        )
        return int(made["id"])

    def tasks(self, project: int, newest: int = 100_000) -> list[dict[str, Any]]:
        """The newest that were made and not deleted, with their annotations, oldest first."""
        query = urllib.parse.quote(json.dumps({"ordering": ["-tasks:id"]}))
        path = f"/api/tasks?project={project}&fields=all&page_size={newest}&query={query}"
        found = wait_for(lambda: self._read(path), "a list of tasks", 60)
        return list(reversed(found["tasks"]))

    def _read(self, path: str) -> Any | None:
        """An answer, or None for a 500: its SQLite file was locked by somebody who writes."""
        try:
            return self.request("GET", path)
        except urllib.error.HTTPError as failure:
            if failure.code != HTTPStatus.INTERNAL_SERVER_ERROR:
                raise
            return None

    def label(self, task: Mapping[str, Any], label: str) -> None:
        """What clicking Submit does."""
        given = {
            "from_name": "label", "to_name": "text", "type": "textarea", "value": {"text": [label]}
        }  # fmt: skip
        self.annotate(task, {"result": [given], "lead_time": 1.0})

    def skip(self, task: Mapping[str, Any]) -> None:
        """What clicking Skip does."""
        self.annotate(task, {"result": [], "was_cancelled": True})

    def annotate(self, task: Mapping[str, Any], annotation: object) -> None:
        """An annotation of a task."""
        self.request("POST", f"/api/tasks/{task['id']}/annotations", annotation)


def read(result: list[dict[str, Any]], sample: object) -> tuple[object, str]:
    """A sample with its label."""
    return sample, str(result[0]["value"]["text"][0])
