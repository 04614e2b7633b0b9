"""A real MQTT broker for tests: Debian's Mosquitto, with TLS and a password, on 127.0.0.1."""

import getpass
import json
import os
import shutil
import signal
import socket
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import pytest
from check_size import SIZE
from deployment import free_port, wait_for, write_certificates
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from tidegate.errors import SupplierError
from tidegate.integrations.mqtt import Message, MqttConnection, MqttStream, Spool

PATH = f"{os.environ['PATH']}{os.pathsep}/usr/sbin"
"""Debian keeps the program where not every user looks for it."""
PASSWORD = "not for the log"  # noqa: S105 - of a broker that lives for seconds
needs_mosquitto = pytest.mark.skipif(
    shutil.which("mosquitto", path=PATH) is None and SIZE != "full",
    reason="there is no mosquitto here: apt-get install mosquitto",
)
"""Skips where it is missing; at full size such a test fails."""


class Broker:
    """Mosquitto in a folder of its own, to be killed and started again."""

    def __init__(self, folder: Path, *settings: str) -> None:
        self.folder = folder
        self.port = free_port()
        self._devices: list[Device] = []
        folder.mkdir()
        write_certificates(folder)
        (folder / "password").write_text(f"{PASSWORD}\n")
        subprocess.run(
            ["mosquitto_passwd", "-b", "-c", str(folder / "passwords"), "site", PASSWORD],
            check=True, capture_output=True, env={**os.environ, "PATH": PATH},
        )  # fmt: skip
        lines = [
            f"user {getpass.getuser()}",
            f"listener {self.port} 127.0.0.1",
            f"cafile {folder / 'ca.crt'}",
            f"certfile {folder / 'server.pem'}",
            f"keyfile {folder / 'server.key'}",
            "allow_anonymous false",
            f"password_file {folder / 'passwords'}",
            f"persistence_location {folder}/",
            *settings,
        ]
        (folder / "mosquitto.conf").write_text("\n".join(lines) + "\n")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        for device in self._devices:
            device.stop()
        self.kill()

    def start(self) -> None:
        """Start it, also again, and wait until it listens."""
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                ["mosquitto", "-c", str(self.folder / "mosquitto.conf")],
                stdout=log, stderr=log, env={**os.environ, "PATH": PATH},
            )  # fmt: skip
        wait_for(self._listens, "the broker's port", 20, every=0.01)

    def kill(self) -> None:
        """End it as a power cut would."""
        self._process.kill()
        self._process.wait()

    def save(self) -> None:
        """Have it write its state to disk now."""
        file = self.folder / "mosquitto.db"
        before = file.stat().st_mtime_ns if file.exists() else 0
        self._process.send_signal(signal.SIGUSR1)
        wait_for(
            lambda: (file.exists() and file.stat().st_mtime_ns > before) or None,
            "a saved state", 20, every=0.01,
        )  # fmt: skip

    def _listens(self) -> bool | None:
        assert self._process.poll() is None, (self.folder / "log").read_text()
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            return True
        return None

    def connection(self, **given: Any) -> MqttConnection:
        """How a client reaches it."""
        return MqttConnection(
            **{
                "host": "127.0.0.1", "port": self.port, "client_id": "site-0", "user_name": "site",
                "password_file": self.folder / "password", "ca_file": self.folder / "ca.crt",
                **given,
            }
        )  # fmt: skip

    def device(self, name: str = "sensor") -> "Device":
        """Somebody who publishes."""
        device = Device(self, name)
        self._devices.append(device)
        return device


class Device:
    """Publishes numbered messages with QoS 1, and again what was not acknowledged."""

    def __init__(self, broker: Broker, name: str) -> None:
        self.name = name
        self._next = 0
        self._acknowledged = 0
        self._client = Client(
            CallbackAPIVersion.VERSION2, client_id=name, protocol=MQTTProtocolVersion.MQTTv5
        )
        self._client.username_pw_set("site", PASSWORD)
        self._client.tls_set(ca_certs=str(broker.folder / "ca.crt"))
        self._client.max_inflight_messages_set(100)
        self._client.reconnect_delay_set(1, 1)
        self._client.on_publish = self._published
        self._client.connect("127.0.0.1", broker.port, clean_start=False)
        self._client.loop_start()

    def publish(self, count: int) -> None:
        """Publish so many messages more; they wait here while the broker is away."""
        numbers = range(self._next, self._next + count)
        self._next += count
        for one in numbers:
            self._client.publish(f"readings/{self.name}", json.dumps({"number": one}), qos=1)

    def publish_and_wait(self, count: int) -> None:
        """Publish, and wait until the broker has all."""
        self.publish(count)
        wait_for(
            lambda: self._acknowledged == self._next or None, "acknowledgements", 60, every=0.01
        )

    def _published(self, *_: object) -> None:
        self._acknowledged += 1

    def stop(self) -> None:
        """End its thread."""
        self._client.disconnect()
        self._client.loop_stop()
        self._client.on_publish = None  # or its sockets stay open until the next collection


def decode(payload: bytes, topic: str) -> int:
    """A message as its number."""
    return int(json.loads(payload)["number"])


def identify(message: Message) -> tuple[str, int]:
    """Its topic and its number."""
    return message.topic, int(json.loads(message.payload)["number"])


def stream(broker: Broker, path: Path, **given: Any) -> MqttStream:
    """A stream of all readings, in the way that most tests read them."""
    kept = {name: given.pop(name) for name in ("most_messages", "when_full") if name in given}
    connection = broker.connection(**given.pop("connection", {}))
    settings = {"identify": identify, "patience": 20.0, **given}
    return MqttStream(connection, "readings/#", Spool(path, **kept), decode, **settings)


def subscribed(reader: MqttStream) -> MqttStream:
    """The same stream, once the broker sends it messages, or another one of the same spool."""
    reader._collector.collect()
    session = reader._collector._session
    if session is not None:
        wait_for(lambda: not session.trouble or None, "a subscription", 60, every=0.01)
    return reader


def trouble(reader: MqttStream) -> str:
    """Why nothing comes, once the broker has answered, or is known to be out of reach."""

    def told() -> str | None:
        try:
            reader.take(1)
        except SupplierError as failure:
            return None if "has not replied yet" in str(failure) else str(failure)
        return None

    return wait_for(told, "what is wrong", 60)
