"""Samples from an MQTT broker: a stream, and the spool on the client that it reads from.

``MqttStream`` needs paho-mqtt (``pip install 'tidegate[mqtt]'``), which is imported on first use:
who sweeps a spool needs none.
"""

from typing import TYPE_CHECKING

from tidegate._internal.later import imported_later
from tidegate.integrations.mqtt.connection import MqttConnection
from tidegate.integrations.mqtt.spool import Gap, Message, Spool, SpooledStream, SpoolHealth

if TYPE_CHECKING:
    from tidegate.integrations.mqtt.stream import MqttStream as MqttStream
else:
    __getattr__ = imported_later(__name__, {"tidegate.integrations.mqtt.stream": ["MqttStream"]})

__all__ = ["Gap", "Message", "MqttConnection", "Spool", "SpoolHealth", "SpooledStream"]
