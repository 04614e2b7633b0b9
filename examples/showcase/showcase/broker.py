"""The broker: one Mosquitto, which lives as long as the showcase."""

import getpass
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Self

from showcase import ShowcaseError
from showcase.readings import HOST

PATH = f"{os.environ.get('PATH', '')}{os.pathsep}/usr/sbin"
"""Debian keeps the program where not every user looks for it."""
LONGEST = 20.0
"""Seconds until it must listen."""


def find_mosquitto() -> str:
    """The program, wherever it is installed."""
    found = shutil.which("mosquitto", path=PATH)
    if found is None:
        raise ShowcaseError(
            "Mosquitto, the MQTT broker, is not installed: apt-get install mosquitto (Debian, "
            "Ubuntu), brew install mosquitto (macOS), or see mosquitto.org/download"
        )
    return found


class Broker:
    """Mosquitto on a free port of this machine, for this machine alone."""

    def __init__(self, folder: Path) -> None:
        """Write its configuration.

        Args:
            folder: for its configuration and log; it is created.
        """
        self._program = find_mosquitto()
        self._folder = folder
        folder.mkdir(parents=True)
        with socket.socket() as free:
            free.bind((HOST, 0))
            self.port: int = free.getsockname()[1]
        settings = (
            f"user {getpass.getuser()}",
            f"listener {self.port} {HOST}",
            "allow_anonymous true",
            "persistence false",
            "max_queued_messages 10000",  # 1,000 by default, and then it drops the newest
            "set_tcp_nodelay true",
        )
        (folder / "mosquitto.conf").write_text("\n".join(settings) + "\n")

    def __enter__(self) -> Self:
        with (self._folder / "mosquitto.log").open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 - found above
                [self._program, "-c", str(self._folder / "mosquitto.conf")], stdout=log, stderr=log
            )
        try:
            self._wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()

    def _wait(self) -> None:
        """Until it listens."""
        deadline = time.monotonic() + LONGEST
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                socket.create_connection((HOST, self.port), timeout=1).close()
            except OSError:
                time.sleep(0.01)
            else:
                return
        said = (self._folder / "mosquitto.log").read_text().strip()
        raise ShowcaseError(f"Mosquitto does not listen on port {self.port}; it says: {said}")
