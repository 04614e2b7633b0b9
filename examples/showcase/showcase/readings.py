"""A client's end of the broker: the windows that one person's phone publishes."""

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from showcase.data import STEPS, Readings
from tidegate.errors import SupplierError
from tidegate.integrations.mqtt import Message, MqttConnection, MqttStream, Spool

HOST = "127.0.0.1"
PATIENCE = 30.0
"""Seconds that an order waits for a window that its phone has not sent yet."""
AT_ONCE = 0.01
LONGEST = 60.0


def topic(person: int) -> str:
    """Where the phone of a person publishes."""
    return f"phones/{person}/windows"


def spool_path(spools: Path, fleet: str, person: int) -> Path:
    """Where a fleet stores what a phone has sent and no order has taken yet."""
    return spools / f"{fleet}-{person}.sqlite"


def decode(payload: bytes, topic: str) -> Readings:
    """A message as a window."""
    return np.frombuffer(payload, "<f4").reshape(-1, STEPS)


def identify(message: Message) -> tuple[str, int]:
    """Who sent a message, and its number there, which phones send as a property."""
    return message.topic, int(message.properties["number"])


def open_readings(
    port: int, spools: Path, fleet: str, person: int, patience: float = PATIENCE
) -> MqttStream:
    """The stream of one person's windows for one fleet.

    Args:
        port: of the broker, on this machine.
        spools: folder for files of messages.
        fleet: whose session it is at the broker; each fleet gets every message.
        person: whose phone.
        patience: seconds that an order waits.
    """
    connection = MqttConnection(HOST, f"{fleet}-{person}", port, tls=False)
    spool = Spool(spool_path(spools, fleet, person))
    return MqttStream(
        connection, topic(person), spool, decode, identify=identify, patience=patience
    )


def subscribe(port: int, spools: Path, fleets: Sequence[str], people: Sequence[int]) -> None:
    """Make every client's session: the broker keeps for it what is published from now on."""
    streams = [
        open_readings(port, spools, fleet, person, AT_ONCE) for fleet in fleets for person in people
    ]
    deadline = time.monotonic() + LONGEST
    for stream in streams:
        while not _answers(stream, deadline):
            pass
    for stream in streams:
        stream.close()


def _answers(stream: MqttStream, deadline: float) -> bool:
    """Whether the broker has the subscription; asking takes a moment."""
    try:
        stream.take(1)
    except SupplierError:
        if time.monotonic() > deadline:
            raise
        return False
    return True
