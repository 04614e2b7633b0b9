"""A stream from a real broker, with TLS and a password: every message once, in order."""

import gc
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from deployment import free_port, wait_for
from mosquitto import PASSWORD, Broker, needs_mosquitto, stream, subscribed, trouble
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.reasoncodes import ReasonCode

from tidegate.client.gate import Gate
from tidegate.client.store import Store
from tidegate.errors import ConfigurationError, RunDiffersError, SupplierError
from tidegate.integrations.mqtt import Message, MqttConnection, MqttStream, Spool
from tidegate.testing import check_stream
from tidegate.wire import Order

process = pytest.mark.process


def order(now: int, count: int) -> Order:
    return Order(run="r", round_number=now, price=1.0, retention_horizon=99, count=count)


@process
@needs_mosquitto
def test_messages_that_waited_at_the_broker_come_once_and_in_order(tmp_path: Path) -> None:
    with Broker(tmp_path / "broker") as broker:
        subscribed(stream(broker, tmp_path / "a.spool")).close()
        broker.device().publish_and_wait(50)
        reader = stream(broker, tmp_path / "a.spool")
        assert reader.take(20) == list(range(20))
        place = reader.cursor
        assert [reader.take(1)[0] for _ in range(30)] == list(range(20, 50))
        reader.close()
        again = stream(broker, tmp_path / "a.spool", patience=0.2)
        again.seek(place)
        assert again.take(99) == list(range(20, 50))
        health = again.health()
        assert (health.received, health.waiting, health.gaps) == (50, 50, 0)
        again.close()


@process
@needs_mosquitto
def test_an_order_waits_for_what_arrives_meanwhile_and_no_longer_than_its_patience(
    tmp_path: Path,
) -> None:
    with Broker(tmp_path / "broker") as broker:
        device = broker.device()
        reader = subscribed(stream(broker, tmp_path / "a.spool"))
        later = threading.Timer(0.3, device.publish, [3])
        later.start()
        assert reader.take(3) == [0, 1, 2]
        later.join()
        reader.close()
        impatient = subscribed(stream(broker, tmp_path / "a.spool", patience=0.3))
        gate = Gate(Store(None, "r", "site", 10), impatient)
        assert gate.apply(order(1, 9)).admitted == 3
        assert gate.apply(order(2, 9)).is_dry
        device.publish_and_wait(2)
        assert gate.apply(order(3, 2)).admitted == 5
        assert list(gate.samples()) == [0, 1, 2, 3, 4]
        assert impatient.health().waiting == 0
        impatient.close()


@process
@needs_mosquitto
def test_it_obeys_the_laws_of_streams(tmp_path: Path) -> None:
    with Broker(tmp_path / "broker") as broker:
        first = subscribed(stream(broker, tmp_path / "a.spool"))
        broker.device().publish_and_wait(12)
        first.take(12)
        first.close()
        check_stream(lambda: subscribed(stream(broker, tmp_path / "a.spool", patience=0.1)))


@process
@needs_mosquitto
def test_a_full_spool_leaves_messages_at_the_broker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Broker(tmp_path / "broker") as broker:
        reader = subscribed(stream(broker, tmp_path / "a.spool", most_messages=30))
        broker.device().publish_and_wait(200)
        wait_for(lambda: reader._spool.is_full or None, "a full spool", 20, every=0.01)
        gate = Gate(Store(None, "r", "site", 300), reader)
        for now in range(1, 8):
            wanted = 20 if now == 7 else 30
            assert gate.apply(order(now, wanted)).admitted == 30 * (now - 1) + wanted
        assert list(gate.samples()) == list(range(200))
        health = reader.health()
        assert (health.received, health.dropped, health.missing) == (200, 0, {})
        assert "is full: the broker keeps new messages" in caplog.text
        reader.close()


def collects(reader: MqttStream) -> bool:
    """Whether this stream has the connection."""
    return reader._collector._session is not None


@process
@needs_mosquitto
def test_of_two_streams_one_collects_and_both_read(tmp_path: Path) -> None:
    with Broker(tmp_path / "broker") as broker:
        collector = subscribed(stream(broker, tmp_path / "a.spool"))
        device = broker.device()
        reader = stream(broker, tmp_path / "a.spool")
        device.publish_and_wait(5)
        assert reader.take(5) == list(range(5))
        assert not collects(reader)
        reader.confirm(reader.cursor)
        collector.close()  # its process ends, and the other takes over
        device.publish_and_wait(5)
        assert reader.take(5) == list(range(5, 10))
        assert collects(reader)
        health = reader.health()
        assert (health.received, health.gaps) == (10, 0)
        reader.close()


@process
@needs_mosquitto
def test_a_stream_that_nobody_holds_leaves_the_broker(tmp_path: Path) -> None:
    with Broker(tmp_path / "broker") as broker:
        reader: MqttStream | None = subscribed(stream(broker, tmp_path / "a.spool"))
        del reader
        gc.collect()
        assert not [one for one in threading.enumerate() if "site-0" in one.name]
        log = broker.folder / "log"
        wait_for(lambda: "Client site-0 disconnected." in log.read_text() or None, "a good-bye", 20)


@process
@needs_mosquitto
# paho leaves the socket of a handshake that failed to Python.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"user_name": "nobody"}, "refused the connection: Not authorized"),
        ({"password_file": None}, "refused the connection: Not authorized"),
        ({"ca_file": None}, "cannot be reached: .*certificate verify failed"),
        ({"host": "127.0.0.2"}, "cannot be reached: "),
    ],
)
def test_a_broker_that_refuses_or_is_away_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, wrong: dict[str, Any], told: str
) -> None:
    with Broker(tmp_path / "broker") as broker:
        reader = stream(broker, tmp_path / "a.spool", connection=wrong, patience=0.5)
        assert re.search(f"the MQTT broker at 127.* {told}", trouble(reader))
        reader.close()
        assert PASSWORD not in caplog.text
        assert PASSWORD not in repr(broker.connection())


@process
@needs_mosquitto
def test_a_topic_that_is_refused_or_given_with_less_is_told(tmp_path: Path) -> None:
    with Broker(tmp_path / "broker", "max_qos 0") as broker:
        reader = stream(broker, tmp_path / "a.spool", patience=0.5)
        assert "grants only QoS 0 for the topic 'readings/#'" in trouble(reader)
        session = reader._collector._session
        assert session is not None
        # Mosquitto refuses no subscription by its list of permissions; other brokers do.
        refused = ReasonCode(PacketTypes.SUBACK, "Not authorized")
        session._subscribed(session._client, None, 1, [refused], None)
        with pytest.raises(SupplierError, match="refused the topic 'readings/#': Not authorized"):
            reader.take(1)
        reader.close()


@process
@needs_mosquitto
def test_a_client_shows_its_certificate_where_the_broker_wants_one(tmp_path: Path) -> None:
    with Broker(tmp_path / "broker", "require_certificate true") as broker:
        own = {
            "certificate_file": broker.folder / "server.pem",
            "key_file": broker.folder / "server.key",
        }
        subscribed(stream(broker, tmp_path / "a.spool", connection=own)).close()
        bare = stream(broker, tmp_path / "a.spool", patience=1.0)
        with pytest.raises(SupplierError):  # this broker says nothing to a stranger
            bare.take(1)
        bare.close()


@process
@needs_mosquitto
def test_without_tls_a_password_reaches_a_broker_on_this_machine(tmp_path: Path) -> None:
    port = free_port()
    with Broker(tmp_path / "broker", f"listener {port} 127.0.0.1") as broker:
        plain = {"port": port, "tls": False, "ca_file": None}
        reader = subscribed(stream(broker, tmp_path / "a.spool", connection=plain))
        broker.device().publish_and_wait(2)
        assert reader.take(2) == [0, 1]
        reader.close()


@process
@needs_mosquitto
def test_a_message_that_has_no_number_is_kept_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    answers = iter([ValueError("broken"), None, "text", ("d", -1), ("d", True), ("d", 5)])

    def moody(message: Message) -> Any:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    with Broker(tmp_path / "broker") as broker:
        reader = subscribed(stream(broker, tmp_path / "a.spool", identify=moody))
        broker.device().publish_and_wait(6)
        assert reader.take(6) == list(range(6))
        assert reader.health().unnumbered == 5
        reader.close()
    assert "identify failed for a message of 'readings/sensor'" in caplog.text
    assert "identify returned 'text'; it must return a text and a whole number" in caplog.text


@process
@needs_mosquitto
def test_a_spool_that_cannot_be_written_acknowledges_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full_disk(*_: object) -> None:
        raise OSError("database or disk is full")

    with Broker(tmp_path / "broker") as broker:
        reader = subscribed(stream(broker, tmp_path / "a.spool", patience=0.5))
        with monkeypatch.context() as patch:
            patch.setattr(Spool, "put", full_disk)
            broker.device().publish_and_wait(3)
            with pytest.raises(SupplierError, match="disk is full"):
                reader.take(3)
        reader._patience = 20.0
        assert reader.take(3) == [0, 1, 2]
        reader.close()
    assert "a message could not be stored" in caplog.text


def test_a_spool_belongs_to_one_client_and_topic(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "a.spool")

    def opened(client_id: str, topic: str) -> MqttStream:
        connection = MqttConnection("broker.example", client_id=client_id)
        return MqttStream(connection, topic, spool, lambda data, _: data)

    first = opened("site-0", "readings/#")
    for other in (("site-1", "readings/#"), ("site-0", "other/#")):
        with pytest.raises(RunDiffersError, match="is the spool of site-0 for readings/#"):
            opened(*other)
    first.close()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"host": ""}, "needs host and client_id"),
        ({"client_id": ""}, "needs host and client_id"),
        ({"port": 0}, "port must be a whole number"),
        ({"session_days": 0}, "session_days must be a number above 0"),
        ({"password_variable": "P"}, "a password needs a user_name"),
        ({"user_name": "u", "password_variable": "P"}, "the environment variable P"),
        ({"user_name": "u", "password_file": "missing"}, "password_file missing cannot be read"),
        (
            {"user_name": "u", "password_variable": "P", "password_file": "missing"},
            "password_file or password_variable, not both",
        ),
        ({"certificate_file": "a.pem"}, "certificate_file and key_file together"),
        ({"ca_file": "missing.pem"}, "check that missing.pem are PEM files"),
        (
            {"user_name": "u", "password_file": "missing", "tls": False},
            "would send the password to broker.example",
        ),
    ],
)
def test_a_connection_that_cannot_be_is_refused(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        MqttConnection(**{"host": "broker.example", "client_id": "site-0", **given})


def test_a_password_comes_from_the_environment_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROKER_PASSWORD", PASSWORD)
    connection = MqttConnection(
        "127.0.0.1", "site-0", user_name="u", password_variable="BROKER_PASSWORD", tls=False  # noqa: S106
    )  # fmt: skip
    assert connection.password() == PASSWORD
    assert PASSWORD not in repr(connection)


def test_what_cannot_be_a_stream_is_refused(tmp_path: Path) -> None:
    connection = MqttConnection("broker.example", "site-0")
    spool = Spool(tmp_path / "a.spool")

    def opened(**given: Any) -> None:
        settings = {"topic": "t", "decode": lambda data, _: data, **given}
        MqttStream(connection, settings.pop("topic"), spool, settings.pop("decode"), **settings)

    for given, told in (
        ({"topic": ""}, "topic must be a valid subscription"),
        ({"topic": "a/#/b"}, "topic must be a valid subscription"),
        ({"topic": "a/b+"}, "topic must be a valid subscription"),
        ({"decode": lambda data: data}, "decode must be a function of a payload and its topic"),
        ({"identify": 5}, "identify must be a function of a message"),
        ({"patience": -1}, "patience must be a number of at least 0"),
    ):
        with pytest.raises(ConfigurationError, match=told):
            opened(**given)
    spool.close()


@process
def test_without_paho_it_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['paho'] = None\n"
        "from tidegate.errors import ConfigurationError\n"
        "import tidegate.integrations.mqtt as mqtt\n"
        "from tidegate.integrations.mqtt import *\n"
        "try: mqtt.MqttStream\n"
        "except ConfigurationError as wrong: print(wrong)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'tidegate[mqtt]'" in done.stdout
    code = "import sys, tidegate.integrations.mqtt; print('paho' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
