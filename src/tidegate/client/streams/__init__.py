"""Fresh samples for a client: the stream protocol, and streams of data sets and folders."""

from tidegate.client.streams.datasets import Indexed, IndexedStream, IterableStream
from tidegate.client.streams.folder import FolderStream
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

__all__ = [
    "Confirms",
    "FolderStream",
    "Indexed",
    "IndexedStream",
    "IterableStream",
    "Limited",
    "Overflow",
    "Overflows",
    "Skips",
    "Stream",
    "TakenBefore",
    "pass_over",
]
