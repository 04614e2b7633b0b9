"""A client that reads from a broker and applies orders until it is killed.

python mqtt_reader.py FOLDER CONNECTION [numbered]: ``FOLDER`` has its spool and its buffer,
``CONNECTION`` is JSON. It says ``ready`` once its first order is applied.
"""

import json
import sys
from pathlib import Path

from tidegate.client.gate import Gate
from tidegate.client.store import Store
from tidegate.integrations.mqtt import Message, MqttConnection, MqttStream, Spool
from tidegate.wire import Order

CAPACITY = 100_000
AT_ONCE = 20


def decode(payload: bytes, topic: str) -> int:
    """A message as its number."""
    return int(json.loads(payload)["number"])


def identify(message: Message) -> tuple[str, int]:
    """Its topic and its number."""
    return message.topic, int(json.loads(message.payload)["number"])


def order(round_number: int, count: int = AT_ONCE) -> Order:
    """Of a round: some samples, which stay."""
    return Order(
        run="r", round_number=round_number, price=1.0, retention_horizon=10**6, count=count
    )


def open_store(folder: Path) -> Store:
    """The client's buffer."""
    return Store(folder / "buffer.sqlite", "r", "site", CAPACITY)


def main(folder: Path, connection: str, *, numbered: bool) -> None:
    """Apply one order after another."""
    stream = MqttStream(
        MqttConnection(**json.loads(connection)),
        "readings/#",
        Spool(folder / "readings.spool"),
        decode,
        identify=identify if numbered else None,
        patience=0.05,
    )
    store = open_store(folder)
    gate = Gate(store, stream)
    while True:
        gate.apply(order(store.books().last_round + 1))
        print("ready", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], numbered="numbered" in sys.argv[3:])
