"""The guide to labels from people, followed as it is printed, in an empty folder."""

import contextlib
import importlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from guide import HOWTO, joined
from label_studio import LabelStudio

from tidegate.runs.reader import read_run

PAGE = HOWTO / "labels-from-people.md"
BLOCK = re.compile(r'^```(\w+)(?: title="(.+?)")?\n(.*?)^```', re.DOTALL | re.MULTILINE)
DONE_BEFORE = ("python -m venv", "label-studio/bin/", "pip install", "export ")
"""Lines that install and start Label Studio: the tests have one that runs."""
ROUNDS = 8


def edit(file: Path, diff: str) -> None:
    """Change a file as a block of the page shows it."""
    before, after = (
        "".join(f"{line[1:]}\n" for line in diff.splitlines() if line.startswith(sign))
        for sign in "-+"
    )
    text = file.read_text("utf-8")
    assert text.count(before) == 1, f"{file} has no such lines: {before}"
    file.write_text(text.replace(before, after), "utf-8")


class Reader:
    """Somebody with an empty folder, whose Label Studio has another port, and other projects."""

    def __init__(self, folder: Path, label_studio: LabelStudio) -> None:
        self.folder = folder
        self._server = label_studio
        self.project = 0
        paths = [str(Path(sys.executable).parent), os.environ["PATH"]]
        self._environment = {**os.environ, "PATH": os.pathsep.join(paths)}

    def write(self, language: str, name: str, text: str) -> None:
        """Write a file of the page, or change one."""
        text = text.replace("http://127.0.0.1:8080", self._server.url)
        text = text.replace("label-project = 1", f"label-project = {self.project}")
        text = text.replace("round-seconds = 15.0", "round-seconds = 0.5")
        if language == "diff":
            edit(self.folder / name, text)
        else:
            (self.folder / name).write_text(text, "utf-8")

    def follow(self, line: str) -> None:
        """Do what a printed line says."""
        if line.startswith(DONE_BEFORE):
            return
        if line.startswith("tidegate run"):
            self.click_during(line.replace("rounds=20", f"rounds={ROUNDS}"))
            return
        line = line.replace("http://127.0.0.1:8080", self._server.url)
        printed = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", line],
            cwd=self.folder, env=self._environment, capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
        if line.startswith("curl"):
            self.project = int(printed)
        if line.endswith("> token)"):
            (self.folder / "token").write_text(self._server.token)

    def click_during(self, line: str) -> None:
        """Choose the right digit for every image, while the fleet runs."""
        sys.path.insert(0, str(self.folder / "my-fleet"))
        render = importlib.import_module("my_fleet.labels").render
        images, labels = importlib.import_module("my_fleet.task").load("train")
        digits = {
            render((image, -1))["image"]: str(label)
            for image, label in zip(images, labels, strict=True)
        }
        with (self.folder / "log").open("wb") as log:
            run = subprocess.Popen(
                line.split(), cwd=self.folder, env=self._environment, stdout=log, stderr=log
            )
        while run.poll() is None:
            for task in self._server.tasks(self.project):
                if not task["annotations"]:
                    chosen = {"choices": [digits[task["data"]["image"]]]}
                    given = {"from_name": "digit", "to_name": "image", "type": "choices"}
                    self._server.annotate(task, {"result": [{**given, "value": chosen}]})
            with contextlib.suppress(subprocess.TimeoutExpired):
                run.wait(timeout=0.5)
        assert run.returncode == 0, (self.folder / "log").read_text()


@pytest.fixture
def _own_modules() -> Iterator[None]:
    """The app's modules are gone afterwards: another test has an app of the same name."""
    before = list(sys.path)
    yield
    sys.path[:] = before
    for name in [name for name in sys.modules if name.split(".")[0] == "my_fleet"]:
        del sys.modules[name]


@pytest.mark.process
@pytest.mark.usefixtures("_own_modules")
@pytest.mark.share(60)  # a fleet in a process of its own, which loads scikit-learn
def test_the_guide_works_as_printed(tmp_path: Path, label_studio: LabelStudio) -> None:
    reader = Reader(tmp_path, label_studio)
    for language, title, text in BLOCK.findall(PAGE.read_text("utf-8")):
        if title:
            reader.write(language, title, text)
        elif language != "console":  # which tests/test_documents.py plays
            for line in joined(text).splitlines():
                reader.follow(line)
    run = read_run(tmp_path / "run")
    last = run.rounds[-1]
    assert (run.ending, len(run.rounds)) == ("over", ROUNDS)
    spent = sum(row.spent for row in run.rounds)
    tasks = label_studio.tasks(reader.project)
    assert spent == len(tasks) == sum(row.admitted for row in run.rounds) + last.under_way
    assert 0 < spent <= 5 * ROUNDS
    assert all(set(task["data"]) == {"image", "tidegate_key"} for task in tasks)
