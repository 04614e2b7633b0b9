"""The guide to MQTT, followed as it is printed, in an empty folder."""

import getpass
import importlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from deployment import free_port, wait_for
from guide import HOWTO, joined
from mosquitto import PATH, needs_mosquitto

PAGE = HOWTO / "read-from-mqtt.md"
BLOCK = re.compile(r'^```(\w+)(?: title="(.+?)")?\n(.*?)^```', re.DOTALL | re.MULTILINE)
INSTALLS = ("apt-get install", "pip install")


class Reader:
    """Somebody with an empty folder, whose port 8883 may be taken."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = str(free_port())
        self.broker: subprocess.Popen[bytes] | None = None
        bin_folder = str(Path(sys.executable).parent)
        path = os.pathsep.join([bin_folder, PATH])
        self._environment = {**os.environ, "PATH": path}
        self.printed = ""

    def write(self, name: str, text: str) -> None:
        """Write a file of the page."""
        file = self.folder / name
        as_me = f"user {getpass.getuser()}\n" if file.suffix == ".conf" else ""
        file.write_text(text.replace("8883", self.port) + as_me, "utf-8")

    def follow(self, line: str) -> None:
        """Do what a printed line says; add what it prints."""
        if line.startswith("mosquitto -c"):
            with (self.folder / "broker" / "log").open("wb") as log:
                self.broker = subprocess.Popen(
                    line.split(), cwd=self.folder, env=self._environment, stdout=log, stderr=log
                )
            wait_for(self._runs, "the broker", 20)
            return
        done = subprocess.run(
            ["bash", "-e", "-c", line],
            cwd=self.folder, env=self._environment, capture_output=True, text=True, check=False,
            timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        self.printed += done.stdout

    def _runs(self) -> bool | None:
        assert self.broker is not None
        log = (self.folder / "broker" / "log").read_text()
        assert self.broker.poll() is None, log
        return " running" in log or None

    def stop(self) -> None:
        """End the broker."""
        if self.broker is not None:
            self.broker.kill()
            self.broker.wait()


@pytest.mark.process
@needs_mosquitto
@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl here")
def test_the_guide_works_as_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader(tmp_path)
    compared = 0
    try:
        for language, title, text in BLOCK.findall(PAGE.read_text("utf-8")):
            if title:
                reader.write(title, text)
            elif language == "text":
                reader.printed = ""
                for line in joined(text).splitlines():
                    if not line.startswith(INSTALLS):
                        reader.follow(line)
            else:
                assert (language, reader.printed) == ("none", text)
                compared += 1
        collector = subprocess.Popen(
            [sys.executable, "collect.py"], cwd=tmp_path, env=reader._environment
        )
        reader.follow("python device.py 5")
        monkeypatch.chdir(tmp_path)
        monkeypatch.syspath_prepend(tmp_path)
        stream = importlib.import_module("readings").open_stream(None)
        wait_for(lambda: stream.health().received == 12 or None, "12 messages", 30)
        assert stream._collector._session is None  # the collector has it
        stream.close()
        collector.kill()
        collector.wait()
    finally:
        reader.stop()
    assert compared == 3
    assert importlib.import_module("client_app").gate
    for name in ("readings", "client_app"):
        sys.modules.pop(name)
