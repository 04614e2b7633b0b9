"""A session with an MQTT broker, on paho: messages are stored and then acknowledged."""

import logging
import sys
import time
from collections.abc import Callable
from typing import Any

from tidegate._internal.arguments import shown
from tidegate.errors import ConfigurationError
from tidegate.integrations.mqtt.connection import MqttConnection
from tidegate.integrations.mqtt.spool import LARGEST_NUMBER, WINDOW, Delivery, Message, Spool

try:
    from paho.mqtt.client import Client, ConnectFlags, DisconnectFlags, MQTTMessage
    from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
    from paho.mqtt.packettypes import PacketTypes
    from paho.mqtt.properties import Properties
    from paho.mqtt.reasoncodes import ReasonCode
    from paho.mqtt.subscribeoptions import SubscribeOptions
except ImportError:
    raise ConfigurationError(
        "MqttStream needs paho-mqtt, which is not installed; pip install 'tidegate[mqtt]'"
    ) from None

Identify = Callable[[Message], tuple[str, int] | None]
"""Given a message, returns who sent it and its number there, which grows by one from each to the
next and never restarts; None for a message without a number."""

KEEP_ALIVE = 30
"""Seconds without a word after which client and broker look for each other."""
RECONNECT_SECONDS = (1, 30)
"""Before another try to connect, at first and at most; paho doubles them."""
LONGEST_SOURCE = 1000
NO_RETAINED = 2
"""Retain handling of MQTT 5: what was published before the session is not sent."""

logger = logging.getLogger(__name__)


class MqttSession:
    """One use of paho's client and its thread; it ends for good when a message was not stored."""

    def __init__(
        self, connection: MqttConnection, topic: str, spool: Spool, identify: Identify | None
    ) -> None:
        self._topic = topic
        self._spool = spool
        self._identify = identify
        self._is_over = False
        self._rests_until = 0.0
        self.trouble = "has not replied yet"
        """Why no messages arrive; empty if they can."""
        self._was_asked_for = spool.ask_for_session()
        self._client = _client(connection)
        self._client.on_connect = self._connected
        self._client.on_connect_fail = self._not_connected
        self._client.on_disconnect = self._disconnected
        self._client.on_subscribe = self._subscribed
        self._client.on_message = self._arrived
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call] # paho's
        properties.SessionExpiryInterval = connection.session_seconds
        properties.ReceiveMaximum = WINDOW
        self._client.connect_async(
            connection.host, connection.port, KEEP_ALIVE, clean_start=False, properties=properties
        )
        self._client.loop_start()

    def goes_on(self) -> bool:
        """Whether messages are stored, or will be once the broker is reached."""
        if self._is_over:
            return False
        self._client.loop_start()  # does nothing, unless paho's thread has died
        return True

    def rests(self) -> bool:
        """Whether it ended so recently that another session would end the same way."""
        return time.monotonic() < self._rests_until

    def close(self) -> None:
        """Disconnect, and wait until paho's thread has ended."""
        self._is_over = True
        self._client.disconnect()
        self._client.loop_stop()
        # Nothing holds the session and its client together now, so paho's sockets are closed as
        # soon as the session is let go.
        self._client.on_connect = self._client.on_connect_fail = None
        self._client.on_disconnect = self._client.on_subscribe = self._client.on_message = None

    def _connected(
        self, client: Client, _: Any, flags: ConnectFlags, reason: ReasonCode, __: Any
    ) -> None:
        if reason.is_failure:
            self._is_in_trouble(f"refused the connection: {reason}")
            return
        try:
            self._spool.has_session(is_old=flags.session_present, was_asked_for=self._was_asked_for)
        except Exception as wrong:
            self._stop(f"was disconnected: the spool failed ({wrong})")
            return
        # Each time: a session may be old and yet have no subscription, if its client was killed.
        client.subscribe(self._topic, options=SubscribeOptions(qos=1, retainHandling=NO_RETAINED))

    def _subscribed(
        self, _: Client, __: Any, ___: int, reasons: list[ReasonCode], ____: Any
    ) -> None:
        (reason,) = reasons
        if reason.is_failure:
            self._is_in_trouble(f"refused the topic {self._topic!r}: {reason}")
        elif reason.value != 1:
            self._is_in_trouble(
                f"grants only QoS {reason.value} for the topic {self._topic!r}, with which "
                "messages get lost; configure it to allow QoS 1"
            )
        else:
            self.trouble = ""

    def _not_connected(self, _: Client, __: Any) -> None:
        self._is_in_trouble(f"cannot be reached: {sys.exception()}")

    def _disconnected(
        self, _: Client, __: Any, ___: DisconnectFlags, reason: ReasonCode, ____: Any
    ) -> None:
        if not self._is_over and not self.trouble:
            self._is_in_trouble(f"disconnected: {reason}")

    def _arrived(self, client: Client, _: Any, packet: MQTTMessage) -> None:
        """Store, then acknowledge; after a failure nothing more is stored, to keep the order."""
        if self._is_over:
            return
        try:
            message = Message(packet.topic, bytes(packet.payload), _properties(packet))
            delivery = Delivery(packet.mid, packet.dup)
            outcome = self._spool.put(message, self._number(message), delivery)
        except Exception as wrong:
            logger.exception(
                "a message could not be stored; the client disconnects from the broker until "
                "it can store again"
            )
            self._stop(f"was disconnected: the spool failed ({wrong})")
            return
        if outcome == "full":
            logger.warning(
                "%s is full: the broker keeps new messages until there is room", self._spool.path
            )
            self._stop("was disconnected: the spool is full")
        else:
            client.ack(packet.mid, packet.qos)

    def _number(self, message: Message) -> tuple[str, int] | None:
        """Return who sent a message, and its number; None if the user's function returns none."""
        try:
            given = None if self._identify is None else self._identify(message)
        except Exception:
            logger.exception(
                "identify failed for a message of %a, which is stored without a number",
                message.topic,
            )
            return None
        if given is None:
            return None
        if _is_numbered(given):
            return given
        logger.warning(
            "identify returned %s; it must return a text and a whole number", shown(given)
        )
        return None

    def _is_in_trouble(self, trouble: str) -> None:
        if trouble != self.trouble:
            logger.warning("the MQTT broker %s", trouble)
        self.trouble = trouble

    def _stop(self, trouble: str) -> None:
        self._is_over, self.trouble = True, trouble
        if not self._spool.is_full:  # where it is, another session begins when there is room
            self._rests_until = time.monotonic() + RECONNECT_SECONDS[0]
        self._client.disconnect()


def _client(connection: MqttConnection) -> Client:
    client = Client(
        CallbackAPIVersion.VERSION2,
        client_id=connection.client_id,
        protocol=MQTTProtocolVersion.MQTTv5,
        manual_ack=True,
    )
    client.reconnect_delay_set(*RECONNECT_SECONDS)
    if connection.user_name is not None:
        client.username_pw_set(connection.user_name, connection.password())
    context = connection.context()
    if context is not None:
        client.tls_set_context(context)
    return client


def _properties(packet: MQTTMessage) -> dict[str, str]:
    """Return user properties; a repeated name has its last value."""
    given = getattr(packet.properties, "UserProperty", [])
    return dict(given)


def _is_numbered(given: object) -> bool:
    if not (isinstance(given, tuple) and len(given) == 2):  # noqa: PLR2004 - source and number
        return False
    source, number = given
    known = isinstance(source, str) and len(source) <= LONGEST_SOURCE
    return known and type(number) is int and 0 <= number <= LARGEST_NUMBER
