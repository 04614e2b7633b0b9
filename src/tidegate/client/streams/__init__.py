"""Fresh samples for a client: the stream protocol, and the streams that come with Tidegate.

``MqttStream`` needs paho-mqtt (``pip install 'tidegate[mqtt]'``), which is imported on first use.
"""

import importlib
from typing import TYPE_CHECKING, Any

from tidegate.client.streams.datasets import Indexed, IndexedStream, IterableStream
from tidegate.client.streams.folder import FolderStream
from tidegate.client.streams.messages import Gap, Message, SpoolHealth
from tidegate.client.streams.mqtt_connection import MqttConnection
from tidegate.client.streams.spool import Spool
from tidegate.client.streams.spooled import SpooledStream
from tidegate.client.streams.stream import (
    Confirms,
    Limited,
    Overflow,
    Overflows,
    Skips,
    Stream,
    TakenBefore,
    pass_over,
)

if TYPE_CHECKING:
    from tidegate.client.streams.mqtt import MqttStream as MqttStream

__all__ = [
    "Confirms",
    "FolderStream",
    "Gap",
    "Indexed",
    "IndexedStream",
    "IterableStream",
    "Limited",
    "Message",
    "MqttConnection",
    "Overflow",
    "Overflows",
    "Skips",
    "Spool",
    "SpoolHealth",
    "SpooledStream",
    "Stream",
    "TakenBefore",
    "pass_over",
]


def __getattr__(name: str) -> Any:
    if name == "MqttStream":
        return importlib.import_module("tidegate.client.streams.mqtt").MqttStream
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
