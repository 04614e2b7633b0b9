"""The showcase from end to end, small: broker, phones, annotator, fleets, bill, books and audit."""

import csv
import json
import math
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from check_size import at_size
from deployment import wait_for
from mosquitto import needs_mosquitto
from real_data import DATA

from run import main as showcase
from showcase import ShowcaseError, broker
from showcase.annotator import LONGEST_DELAY
from showcase.data import ACTIVITIES, STEPS, load
from showcase.fleets import CANDIDATES, FLEETS, LABELS, PRICE
from showcase.task import accuracy, features, new_model, train
from tidegate.cli import main

pytestmark = pytest.mark.no_cover  # of the package nothing that is not covered elsewhere

RUN = Path(__file__).parents[1] / "examples" / "showcase" / "run.py"
PEOPLE = at_size(3, 30)
ROUNDS = at_size(5, 20)
HAPT = pytest.mark.data("hapt")


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def listens(out: Path) -> bool:
    """Whether the broker of a folder is still there."""
    settings = (out / "broker" / "mosquitto.conf").read_text()
    port, host = settings.split("listener ")[1].split()[:2]
    with socket.socket() as tries:
        return tries.connect_ex((host, int(port))) == 0


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder that one command has filled, and what it printed."""
    out = tmp_path_factory.mktemp("showcase") / "out"
    size = "--people", str(PEOPLE), "--rounds", str(ROUNDS)
    command = [sys.executable, str(RUN), "--data", str(DATA), "--out", str(out), *size]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return out, done.stdout


@HAPT
@needs_mosquitto
@pytest.mark.process
@pytest.mark.long
class TestTheWholeShowcase:
    def test_the_bill_is_what_server_and_clients_have_booked(self, shown: tuple[Path, str]) -> None:
        out, _ = shown
        bill = rows(out / "bill.csv")
        assert len({row["key"] for row in bill}) == len(bill)
        for fleet in FLEETS:
            mine = [float(row["price"]) for row in bill if row["fleet"] == fleet.name]
            settled = map(json.loads, (out / fleet.name / "rounds.jsonl").read_text().splitlines())
            booked = [row["spent"] for row in settled]
            assert len(booked) == ROUNDS
            assert math.fsum(mine) == pytest.approx(math.fsum(booked))
            assert PRICE * PEOPLE < math.fsum(booked) <= PRICE * LABELS * PEOPLE * ROUNDS
        assert len({sum(row["fleet"] == one.name for row in bill) for one in FLEETS}) == 1

    def test_labels_come_rounds_after_they_were_paid_for(self, shown: tuple[Path, str]) -> None:
        out, _ = shown
        delays = [int(row["delay"]) for row in rows(out / "bill.csv")]
        assert {*delays} == {*range(1, LONGEST_DELAY + 1)}
        first = json.loads((out / "random" / "rounds.jsonl").read_text().splitlines()[0])
        assert (first["spent"] > 0, first["training_size"]) == (True, 0)

    @pytest.mark.parametrize("fleet", [fleet.name for fleet in FLEETS])
    def test_every_device_passes_its_audit(
        self, shown: tuple[Path, str], fleet: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        out, _ = shown
        folder = str(out / fleet)
        with pytest.raises(SystemExit) as ended:
            main(["audit", f"{folder}/buffers", "--against", folder, "--json"])
        assert not ended.value.code
        buffers = json.loads(capsys.readouterr().out)["buffers"]
        assert len(buffers) == PEOPLE
        assert all(one["right"] and one["keep_at_most"] == "30d" for one in buffers)
        assert max(one["most_uses_of_a_sample"] for one in buffers) <= 10

    def test_it_ends_with_a_picture_pages_and_a_summary(self, shown: tuple[Path, str]) -> None:
        out, printed = shown
        assert (out / "accuracy.png").read_bytes().startswith(b"\x89PNG")
        assert "<h1>half-margin, tide, " in (out / "report.html").read_text()
        for fleet in FLEETS:
            assert "Nothing is wrong" in (out / f"audit-{fleet.name}.html").read_text()
            assert fleet.told in printed
        assert "Bill and books agree" in printed
        windows = len(FLEETS) * PEOPLE * ROUNDS * CANDIDATES
        assert f"{windows:,} windows came over MQTT, none was lost" in printed

    def test_it_leaves_no_broker_behind(self, shown: tuple[Path, str]) -> None:
        assert not listens(shown[0])


@HAPT
@needs_mosquitto
@pytest.mark.process
@pytest.mark.long
@pytest.mark.parametrize("seen", ["broker/mosquitto.conf", *(f"{one.name}.log" for one in FLEETS)])
def test_whoever_stops_it_leaves_nothing_behind(tmp_path: Path, seen: str) -> None:
    """A file is there just before the program that it belongs to is started."""
    out = tmp_path / "out"
    command = [sys.executable, str(RUN), "--data", str(DATA), "--out", str(out), "--people", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        wait_for(lambda: (out / seen).exists() or None, seen)
        process.terminate()
        printed, _ = process.communicate()
    assert process.returncode == 130
    assert "fleets have ended" in printed
    assert not listens(out)
    running = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    assert str(out) not in running.stdout


@needs_mosquitto
def test_without_the_data_it_says_how_to_get_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert showcase(["--data", str(tmp_path), "--out", str(tmp_path / "out")]) == 1
    printed = capsys.readouterr().out
    assert f"HAPT is not in {tmp_path}" in printed
    assert "archive.ics.uci.edu, data set 341" in printed
    assert not (tmp_path / "out").exists()


def test_without_a_broker_it_says_how_to_install_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker, "PATH", "/nowhere")
    with pytest.raises(ShowcaseError, match="apt-get install mosquitto"):
        broker.find_mosquitto()


@HAPT
def test_the_original_files_hold_the_same_windows(tmp_path: Path) -> None:
    packed = load(str(DATA))
    two = packed.people <= 2
    raw = tmp_path / "HAPT Data Set" / "RawData"
    raw.mkdir(parents=True)
    segments = []
    with np.load(DATA / "streams" / "hapt.npz") as file:
        signal, label, person, recording = (
            file[name] for name in ("signal", "label", "subject", "experiment")
        )
        signal = signal * file["scale"]
    for number in np.unique(recording[person <= 2]):
        here = recording == number
        who = int(person[here][0])
        for kind, columns in (("acc", slice(0, 3)), ("gyro", slice(3, 6))):
            path = raw / f"{kind}_exp{number:02d}_user{who:02d}.txt"
            np.savetxt(path, signal[here][:, columns], "%.9f")
        found = label[here]
        ends = [*(np.flatnonzero(np.diff(found)) + 1).tolist(), len(found)]
        begins = [0, *ends[:-1]]
        for begin, end in zip(begins, ends, strict=True):
            if found[begin] > 0:  # counted from 1, the last one included, as UCI does
                segments.append((number, who, found[begin], begin + 1, end))
    np.savetxt(raw / "labels.txt", segments, "%d")
    read = load(str(tmp_path))
    np.testing.assert_array_equal(read.labels, packed.labels[two])
    np.testing.assert_array_equal(read.people, packed.people[two])
    np.testing.assert_array_equal(read.is_test, packed.is_test[two])
    np.testing.assert_allclose(read.readings, packed.readings[two], atol=1e-6)


@HAPT
def test_the_model_learns_what_windows_show() -> None:
    windows = load(str(DATA))
    seen = np.flatnonzero((windows.people <= 5) & ~windows.is_test)
    samples = [(windows.readings[one], int(windows.labels[one])) for one in seen]
    model, loss = train(new_model(), samples, 200, 0.3)
    unseen, labels = windows.test(5)
    assert unseen.shape[1:] == (6, STEPS)
    assert loss < 0.5 < math.log(len(ACTIVITIES))
    assert accuracy(model, features(unseen), labels) > 0.8
