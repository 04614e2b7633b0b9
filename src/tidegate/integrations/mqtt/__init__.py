"""Samples from an MQTT broker: a stream, and the spool on the client that it reads from.

``MqttStream`` needs paho-mqtt (``pip install 'tidegate[mqtt]'``), which is imported on first use:
who sweeps a spool needs none.
"""

import importlib
from typing import TYPE_CHECKING, Any

from tidegate.integrations.mqtt.connection import MqttConnection
from tidegate.integrations.mqtt.spool import Gap, Message, Spool, SpooledStream, SpoolHealth

if TYPE_CHECKING:
    from tidegate.integrations.mqtt.stream import MqttStream as MqttStream

__all__ = ["Gap", "Message", "MqttConnection", "Spool", "SpoolHealth", "SpooledStream"]


def __getattr__(name: str) -> Any:
    if name == "MqttStream":
        return importlib.import_module("tidegate.integrations.mqtt.stream").MqttStream
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
