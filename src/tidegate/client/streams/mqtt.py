"""A stream of MQTT messages: a persistent session, and a spool on disk before each acknowledgement.

A broker keeps what it sent until the client acknowledges it. Here that is done by hand, after the
message was committed to the client's spool: a client that dies loses nothing, and what comes again
is recognised. What a broker loses nobody can bring back; it is noticed and counted.
"""

import fcntl
import os
import threading
import time
import weakref
from typing import Any

from tidegate._internal.arguments import check_function, check_number
from tidegate._internal.sqlite_file import OWNER_ONLY
from tidegate.client.streams.mqtt_connection import MqttConnection
from tidegate.client.streams.mqtt_session import Identify, MqttSession
from tidegate.client.streams.spool import Spool
from tidegate.client.streams.spooled import Decode, SpooledStream
from tidegate.errors import ConfigurationError, SupplierError

LOOK_SECONDS = 0.1
"""How often a stream looks for messages that another process stores."""


class MqttStream(SpooledStream):
    """Messages of a topic, stored on this client before the broker forgets them.

    The first ``take`` connects; from then on paho's thread stores what arrives until ``close``, or
    the end of the process. Of several processes with one spool, one has the connection and all
    read.

    Args:
        connection: how to reach the broker.
        topic: which messages are wanted; ``+`` and ``#`` as MQTT has them.
        spool: keeps them on this client; a file for each client id and topic.
        decode: makes a sample of a payload and its topic, when the sample is taken.
        identify: who sent a message and its number, so that repetitions are known for ever and what
            is missing is counted. Without it only what a living broker delivers again is
            recognised.
        patience: seconds that one order waits, in all, for messages that are not there yet.
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
            check_function("identify", identify, ("a message",), "it gives a source and a number")
        check_number("patience", patience, "a number of at least 0", lambda given: given >= 0)
        _check_topic(topic)
        spool.claim(f"{connection.client_id} for {topic}")
        self._patience = patience
        self._deadline: float | None = None
        """Until when the present order waits."""
        self._collector = _Collector(connection, topic, spool, identify)
        self._end = weakref.finalize(self, _end, self._collector, spool)

    def take(self, count: int) -> list[Any]:
        """The next samples; waits for them as long as the patience of the present order lasts.

        Raises:
            SupplierError: nothing is there, and the broker cannot be reached or refuses.
        """
        if count and not self._await(count) and not self._spool.wait(self._position, 1, 0.0):
            self._collector.raise_trouble()
        return super().take(count)

    def confirm(self, cursor: str) -> None:
        """Delete the messages up to a cursor that the books hold; collect on where they were many.

        An order begins or ends here: the next one has all its patience.
        """
        super().confirm(cursor)
        self._deadline = None
        self._collector.collect()

    def collect(self, seconds: float) -> None:
        """Store what arrives for so long, and hand out nothing: for a process that does no more."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self._collector.collect()
            if self._collector.is_closed.wait(min(left, 1.0)):
                return

    def close(self) -> None:
        """Disconnect and close the spool's file; the broker keeps what comes from now on."""
        self._end()

    def _await(self, count: int) -> bool:
        """Wait until so many messages are there, or patience is at its end; whether they are."""
        if self._deadline is None:
            self._deadline = time.monotonic() + self._patience
        while True:
            self._collector.collect()
            left = max(self._deadline - time.monotonic(), 0.0)
            if self._spool.wait(self._position, count, min(left, LOOK_SECONDS)):
                return True
            if not left or self._spool.is_full:  # nothing more comes before something is confirmed
                self._deadline = None
                return False


def _check_topic(topic: str) -> None:
    """Refuse what no broker would take."""
    levels = topic.split("/")
    wild = [level for level in levels if "#" in level or "+" in level]
    if not topic or not {*wild} <= {"#", "+"} or "#" in levels[:-1] or "\0" in topic:
        raise ConfigurationError(
            f"topic must be one that can be subscribed to, got {topic!r}; such as 'readings/+/x' "
            "for one level, or 'readings/#' for all below"
        )


def _end(collector: "_Collector", spool: Spool) -> None:
    collector.close()
    spool.close()


class _Collector:
    """Has at most one session, where no other process has it already."""

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
        """See that messages are being collected, here or by another process."""
        with self._one_at_a_time:
            if self._session is not None and (self._session.goes_on() or self._session.rests()):
                return
            self._end_session()
            if self._spool.is_full or self.is_closed.is_set() or not self._has_lock():
                return
            self._session = MqttSession(self._connection, self._topic, self._spool, self._identify)

    def raise_trouble(self) -> None:
        """Raise what keeps messages from coming, where something does."""
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
        """The right to connect: two clients with one id would push each other out."""
        # Not the spool's own file: closing that would give up SQLite's locks of this process.
        lock = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, OWNER_ONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            return False
        self._lock = lock
        return True
