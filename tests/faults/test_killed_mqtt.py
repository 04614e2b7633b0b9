"""Readers and brokers are killed at random points: nothing twice, and what is lost is counted."""

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import mqtt_reader
import pytest
from check_size import at_size
from deployment import wait_for
from mosquitto import Broker, needs_mosquitto, stream, subscribed

from tidegate.client.gate import Gate
from tidegate.integrations.mqtt import SpoolHealth
from tidegate.integrations.mqtt.spool import NO_SESSION

pytestmark = [pytest.mark.process, needs_mosquitto]

KILLS = at_size(20, 100)
FEWER_KILLS = at_size(10, 100)
AT_A_KILL = 100
"""Messages that are published before it."""
BROKER_KILLS = at_size(4, 15)
UNLIMITED = "max_queued_messages 0"


class Reader:
    """A client in a process of its own, which can be killed at any time."""

    def __init__(self, broker: Broker, folder: Path, *, numbered: bool) -> None:
        self.broker = broker
        self.folder = folder
        self.numbered = numbered
        folder.mkdir()
        # From now on the broker keeps what is published.
        subscribed(stream(broker, folder / "readings.spool")).close()

    def start(self) -> None:
        """Start it, and wait until it has applied an order."""
        given = self.broker.connection()
        told = {
            "host": given.host, "port": given.port, "client_id": given.client_id,
            "user_name": given.user_name, "password_file": str(given.password_file),
            "ca_file": str(given.ca_file),
        }  # fmt: skip
        script = Path(mqtt_reader.__file__)
        words = ["numbered"] if self.numbered else []
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(script), str(self.folder), json.dumps(told), *words],
                stdout=subprocess.PIPE, stderr=log,
            )  # fmt: skip
        assert self.process.stdout is not None
        first = self.process.stdout.readline()
        assert first == b"ready\n", (self.folder / "log").read_text()

    def kill(self) -> None:
        self.process.kill()
        _, status = self.process.communicate(), self.process.returncode
        assert status == -9, (self.folder / "log").read_text()

    def read_the_rest(self, newest: int) -> tuple[list[int], SpoolHealth]:
        """Read on in this process until the newest is there and no more come: all ever admitted.

        The newest need not be the last to come: a device that connects again may publish it before
        it repeats what nobody acknowledged.
        """
        settings = {} if self.numbered else {"identify": None}
        spool = self.folder / "readings.spool"
        last = stream(self.broker, spool, patience=1.0, **settings)
        store = mqtt_reader.open_store(self.folder)
        gate = Gate(store, last)

        def there() -> bool | None:
            before = len(gate.samples())
            gate.apply(mqtt_reader.order(store.books().last_round + 1, 1_000))
            samples = list(gate.samples())
            return (newest in samples and len(samples) == before) or None

        wait_for(there, f"message {newest}", 120)
        seen, health = list(gate.samples()), last.health()
        store.close()
        last.close()
        return seen, health


@pytest.mark.share(at_size(120, 3600))  # a process for every kill
@pytest.mark.parametrize(("kills", "numbered"), [(KILLS, True), (FEWER_KILLS, False)])
def test_a_killed_reader_loses_and_repeats_nothing(
    tmp_path: Path, kills: int, numbered: bool
) -> None:
    messages = AT_A_KILL * kills
    draw = random.Random(0)  # noqa: S311 - a schedule, not a secret
    with Broker(tmp_path / "broker", UNLIMITED) as broker:
        device = broker.device()
        reader = Reader(broker, tmp_path / "site", numbered=numbered)
        for _ in range(kills):
            reader.start()
            device.publish(AT_A_KILL)
            time.sleep(draw.uniform(0, 0.1))  # the point at which it dies
            reader.kill()
        seen, health = reader.read_the_rest(messages - 1)
    print(f"{kills} kills, {messages} messages: {health}")
    assert seen == list(range(messages))
    if kills == 100:  # of fewer, none may fall there
        assert health.duplicates, "no kill fell between a commit and its acknowledgement"
    assert (health.received, health.dropped, health.gaps) == (messages, 0, 0)
    assert health.missing == {}


def check_what_a_broker_lost(seen: list[int], health: SpoolHealth) -> None:
    """Whatever is not there is counted, and nothing is there twice."""
    assert len(seen) == len(set(seen)) == health.received
    lost = set(range(min(seen), max(seen) + 1)) - set(seen)
    assert sum(health.missing.values()) == len(lost)


# The device's paho leaves a socket open whose handshake a killed broker has cut off.
@pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <ssl.SSLSocket:pytest.PytestUnraisableExceptionWarning"
)
@pytest.mark.share(at_size(120, 3600))  # it waits for reconnections
@pytest.mark.parametrize("both", [False, True], ids=["broker", "both"])
def test_a_killed_broker_repeats_nothing_and_what_it_lost_is_counted(
    tmp_path: Path, both: bool
) -> None:
    draw = random.Random(1)  # noqa: S311 - a schedule, not a secret
    settings = UNLIMITED, "persistence true", "autosave_interval 20", "autosave_on_changes true"
    with Broker(tmp_path / "broker", *settings) as broker:
        device = broker.device()
        reader = Reader(broker, tmp_path / "site", numbered=True)
        reader.start()
        for _ in range(BROKER_KILLS):
            device.publish(200)
            time.sleep(draw.uniform(0, 0.2))  # the point at which it dies
            broker.kill()
            if both:
                reader.kill()
            broker.start()
            if both:
                reader.start()
        device.publish_and_wait(1)
        reader.kill()
        seen, health = reader.read_the_rest(200 * BROKER_KILLS)
    print(f"{BROKER_KILLS} kills, {200 * BROKER_KILLS + 1} messages: {health}")
    check_what_a_broker_lost(seen, health)


def test_a_broker_that_forgot_everything_leaves_a_gap_and_numbers_that_are_missing(
    tmp_path: Path,
) -> None:
    with Broker(tmp_path / "broker", "persistence false") as broker:
        device = broker.device()
        subscribed(stream(broker, tmp_path / "a.spool")).close()
        device.publish_and_wait(5)
        reader = stream(broker, tmp_path / "a.spool")
        assert reader.take(5) == list(range(5))
        reader.close()
        device.publish_and_wait(10)  # the broker has them, and dies
        broker.kill()
        broker.start()
        reader = subscribed(stream(broker, tmp_path / "a.spool"))
        device.publish(1)
        reader.seek(reader.cursor)
        assert reader.take(6)[5:] == [15]
        health = reader.health()
        assert [one.reason for one in health.newest_gaps] == [NO_SESSION]
        assert health.missing == {"readings/sensor": 10}
        reader.close()


def test_what_a_broker_sends_again_from_an_older_state_is_stored_once(tmp_path: Path) -> None:
    """It does not say so: its state is that of a moment before it sent them."""
    with Broker(tmp_path / "broker", "persistence true", "autosave_interval 1800") as broker:
        subscribed(stream(broker, tmp_path / "a.spool")).close()
        device = broker.device()
        device.publish_and_wait(40)
        broker.save()
        reader = stream(broker, tmp_path / "a.spool")
        assert reader.take(40) == list(range(40))
        reader.confirm(reader.cursor)
        broker.kill()
        broker.start()
        device.publish(1)
        assert reader.take(1) == [40]
        health = reader.health()
        assert (health.received, health.duplicates, health.gaps) == (41, 40, 0)
        reader.close()


def test_what_a_full_queue_dropped_is_counted(tmp_path: Path) -> None:
    """The broker drops the newest, and tells neither the device nor the client."""
    limits = "max_queued_messages 100", "max_inflight_messages 20"
    with Broker(tmp_path / "broker", *limits) as broker:
        subscribed(stream(broker, tmp_path / "a.spool")).close()
        device = broker.device()
        device.publish_and_wait(300)
        reader = stream(broker, tmp_path / "a.spool")
        kept = reader.take(100)
        assert kept == list(range(100))
        device.publish_and_wait(1)
        assert reader.take(1) == [300]
        assert reader.health().missing == {"readings/sensor": 200}
        reader.close()
