"""A stream of MQTT messages: a persistent session, and a spool on disk before each acknowledgement.

A broker keeps a message until the client acknowledges it. The stream does this after it has
committed the message to the client's spool: a client that dies loses nothing, and repeated messages
are recognised. Messages that the broker loses cannot be restored, but are noticed and counted.
"""

import fcntl
import os
import threading
import time
import weakref
from typing import Any

from tidegate._internal.arguments import check_function, check_number
from tidegate._internal.sqlite_file import OWNER_ONLY
from tidegate.errors import ConfigurationError, SupplierError
from tidegate.integrations.mqtt.connection import MqttConnection
from tidegate.integrations.mqtt.session import Identify, MqttSession
from tidegate.integrations.mqtt.spool import Decode, Spool, SpooledStream

LOOK_SECONDS = 0.1
"""How often a stream looks for messages that another process stores."""


class MqttStream(SpooledStream):
    """Messages of a topic, stored on this client before the broker deletes them.

    The first ``take`` connects; from then on paho's thread stores what arrives until ``close``, or
    the end of the process. If several processes share a spool, one has the connection and all read.

    Args:
        connection: how to reach the broker.
        topic: the messages to subscribe to; with MQTT's ``+`` and ``#``.
        spool: keeps them on this client; a file for each client id and topic.
        decode: makes a sample of a payload and its topic, when the sample is taken.
        identify: returns who sent a message and its number, so that repetitions are always
            recognised and missing messages are counted. Without it, only messages that a running
            broker delivers again are recognised.
        patience: seconds that one order waits, in all, for messages that have not arrived yet.
    """

    def __init__(
        self,
        connection: MqttConnection,
        topic: str,
        spool: Spool,
        decode: Decode,
        *,
        identify: Identify | None = None,
        patience: float = 5.0,
    ) -> None:
        super().__init__(spool, decode)
        if identify is not None:
            check_function("identify", identify, ("a message",), "it returns a source and a number")
        check_number("patience", patience, "a number of at least 0", lambda given: given >= 0)
        _check_topic(topic)
        spool.claim(f"{connection.client_id} for {topic}")
        self._patience = patience
        self._deadline: float | None = None
        """Until when the present order waits."""
        self._collector = _Collector(connection, topic, spool, identify)
        self._end = weakref.finalize(self, _end, self._collector, spool)

    def take(self, count: int) -> list[Any]:
        """Return the next samples; wait for them within the patience of the present order.

        Raises:
            SupplierError: there are no messages, and the broker cannot be reached or refuses.
        """
        if count and not self._await(count) and not self._spool.wait(self._position, 1, 0.0):
            self._collector.raise_trouble()
        return super().take(count)

    def confirm(self, cursor: str) -> None:
        """Delete the messages up to a cursor that the books hold, and continue to collect.

        An order begins or ends here: the next one has its full patience.
        """
        super().confirm(cursor)
        self._deadline = None
        self._collector.collect()

    def collect(self, seconds: float) -> None:
        """Store what arrives for so long; for a process that only collects."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self._collector.collect()
            if self._collector.is_closed.wait(min(left, 1.0)):
                return

    def close(self) -> None:
        """Disconnect and close the spool's file; the broker keeps later messages."""
        self._end()

    def _await(self, count: int) -> bool:
        """Wait until so many messages are there, or patience ends; return whether they are."""
        if self._deadline is None:
            self._deadline = time.monotonic() + self._patience
        while True:
            self._collector.collect()
            left = max(self._deadline - time.monotonic(), 0.0)
            if self._spool.wait(self._position, count, min(left, LOOK_SECONDS)):
                return True
            if not left or self._spool.is_full:  # no more messages arrive before some are confirmed
                self._deadline = None
                return False


def _check_topic(topic: str) -> None:
    """Refuse a topic that no broker would accept."""
    levels = topic.split("/")
    wild = [level for level in levels if "#" in level or "+" in level]
    if not topic or not {*wild} <= {"#", "+"} or "#" in levels[:-1] or "\0" in topic:
        raise ConfigurationError(
            f"topic must be a valid subscription, got {topic!r}; such as 'readings/+/x' for one "
            "level, or 'readings/#' for all below"
        )


def _end(collector: "_Collector", spool: Spool) -> None:
    collector.close()
    spool.close()


class _Collector:
    """Has at most one session, if no other process has it."""

    def __init__(
        self, connection: MqttConnection, topic: str, spool: Spool, identify: Identify | None
    ) -> None:
        self._connection = connection
        self._topic = topic
        self._spool = spool
        self._identify = identify
        self._lock_path = spool.path.with_name(f"{spool.path.name}.lock")
        self._session: MqttSession | None = None
        self._lock: int | None = None
        self._one_at_a_time = threading.Lock()
        self.is_closed = threading.Event()

    def collect(self) -> None:
        """Make sure that messages are collected, here or by another process."""
        with self._one_at_a_time:
            if self._session is not None and (self._session.goes_on() or self._session.rests()):
                return
            self._end_session()
            if self._spool.is_full or self.is_closed.is_set() or not self._has_lock():
                return
            self._session = MqttSession(self._connection, self._topic, self._spool, self._identify)

    def raise_trouble(self) -> None:
        """Raise what prevents messages from arriving, if anything does."""
        session = self._session
        if session is not None and session.trouble:
            where = f"the MQTT broker at {self._connection.host}:{self._connection.port}"
            raise SupplierError(where, session.trouble)

    def close(self) -> None:
        """End the session with the process, or before."""
        self.is_closed.set()
        with self._one_at_a_time:
            self._end_session()

    def _end_session(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _has_lock(self) -> bool:
        """Return the right to connect: two clients with one id would disconnect each other."""
        # Not the spool's own file: closing that would give up SQLite's locks of this process.
        lock = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, OWNER_ONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            return False
        self._lock = lock
        return True
