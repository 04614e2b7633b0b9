"""The phones: each publishes what it measures, in messages with numbers, and knows no label."""

from collections.abc import Sequence
from typing import Self

import numpy as np
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from showcase.data import Windows
from showcase.readings import HOST, topic


class Phones:
    """Phones that send their windows as fast as the broker takes them, each in its own order."""

    def __init__(
        self, port: int, windows: Windows, people: Sequence[int], count: int, seed: int
    ) -> None:
        """Fill the phones.

        Args:
            port: of the broker.
            windows: of all people.
            people: who carries a phone.
            count: windows that each sends at most.
            seed: of the order: the recordings themselves have all people do the same at one time.
        """
        self._port = port
        self.people = people
        self.acknowledged = 0
        """Windows that the broker has."""
        self._payloads = dict[int, list[bytes]]()
        for person in people:
            mine = windows.train(person)
            order = np.random.default_rng([seed, person]).permutation(len(mine))[:count]
            self._payloads[person] = [one.astype("<f4").tobytes() for one in mine[order]]
        self.total = sum(map(len, self._payloads.values()))
        """Windows that they send in all."""
        self._clients = list[Client]()

    def __enter__(self) -> Self:
        for person, payloads in self._payloads.items():
            phone = Client(
                CallbackAPIVersion.VERSION2, f"phone-{person}", protocol=MQTTProtocolVersion.MQTTv5
            )
            self._clients.append(phone)
            phone.on_publish = self._published
            phone.connect(HOST, self._port)
            for number, payload in enumerate(payloads):
                properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call] # paho's
                properties.UserProperty = ("number", str(number))
                phone.publish(topic(person), payload, qos=1, properties=properties)
            phone.loop_start()
        return self

    def __exit__(self, *_: object) -> None:
        for phone in self._clients:
            phone.disconnect()
            phone.loop_stop()
            phone.on_publish = None  # or its sockets stay open until the next collection

    def _published(self, *_: object) -> None:
        self.acknowledged += 1
