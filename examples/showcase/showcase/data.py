"""HAPT: what the phones of thirty people measured while they walked, sat, stood and lay."""

import functools
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from showcase import ShowcaseError

Readings = NDArray[np.float32]
"""Acceleration (g) and rotation (rad/s) along three axes each: 6 channels, 128 steps at 50 Hz."""

ACTIVITIES = ("walking", "walking upstairs", "walking downstairs", "sitting", "standing", "lying")
STEPS = 128
HOP = 64
REMEDY = (
    "download 'Smartphone-Based Recognition of Human Activities and Postural Transitions' from the "
    "UCI Machine Learning Repository (archive.ics.uci.edu, data set 341), unpack it, and give the "
    "folder that holds RawData: --data FOLDER, or export TIDEGATE_DATA=FOLDER"
)


@dataclass(frozen=True)
class Windows:
    """Windows of 2.56 seconds, in the order of time; activities only, no transitions."""

    readings: Readings
    labels: NDArray[np.int64]
    people: NDArray[np.int64]
    """Who carried the phone, from 1."""
    is_test: NDArray[np.bool_]
    """Everybody did all activities twice or more; the last recording of each is the test part."""

    def train(self, person: int) -> Readings:
        """What a phone measures, without labels."""
        mine: Readings = self.readings[(self.people == person) & ~self.is_test]
        return mine

    def test(self, people: int) -> tuple[Readings, NDArray[np.int64]]:
        """Windows and labels of the first so many people, which nobody trains on."""
        chosen = self.is_test & (self.people <= people)
        return self.readings[chosen], self.labels[chosen]


@functools.cache
def load(folder: str) -> Windows:
    """Read UCI's files, or ``hapt.npz`` with the same content.

    Args:
        folder: where they are; ``$TIDEGATE_DATA`` if empty.

    Raises:
        ShowcaseError: they are not there; its text says how to get them.
    """
    given = folder or os.environ.get("TIDEGATE_DATA", "")
    if not given:
        raise ShowcaseError(f"where is the data set HAPT? {REMEDY}")
    root = Path(given).expanduser()
    for path in (root / "hapt.npz", root / "streams" / "hapt.npz"):
        if path.is_file():
            return _packed(path)
    for path in (root, root / "RawData", root / "HAPT Data Set" / "RawData"):
        if (path / "labels.txt").is_file():
            return _from_uci(path)
    raise ShowcaseError(f"HAPT is not in {root}: {REMEDY}")


def _packed(path: Path) -> Windows:
    with np.load(path, allow_pickle=False) as file:
        signal = (file["signal"] * file["scale"]).astype(np.float32)
        starts = file["win_start"].astype(np.int64)
        labels, people = (file[name].astype(np.int64) for name in ("win_label", "win_subject"))
        recordings = file["experiment"][starts].astype(np.int64)
    return _windows(signal, starts, labels, people, recordings)


def _from_uci(raw: Path) -> Windows:
    """From RawData: a file for each recording and sensor; labels.txt says where activities are."""
    segments = np.loadtxt(raw / "labels.txt", dtype=np.int64, ndmin=2)
    signals: list[Readings] = []
    before, rows = 0, list[tuple[int, int, int, int]]()
    for recording, person in dict.fromkeys(map(tuple, segments[:, :2].tolist())):
        name = f"exp{recording:02d}_user{person:02d}.txt"
        sensors = [np.loadtxt(raw / f"{kind}_{name}", dtype=np.float32) for kind in ("acc", "gyro")]
        signals.append(np.concatenate(sensors, axis=1))
        for _, _, label, first, last in segments[segments[:, 0] == recording]:
            starts = range(before + first - 1, before + last - STEPS + 1, HOP)
            rows += [(start, label, person, recording) for start in starts]
        before += len(signals[-1])
    columns = np.array(rows, dtype=np.int64).T
    return _windows(np.concatenate(signals), *columns)


def _windows(
    signal: Readings,
    starts: NDArray[np.int64],
    labels: NDArray[np.int64],
    people: NDArray[np.int64],
    recordings: NDArray[np.int64],
) -> Windows:
    kept = labels <= len(ACTIVITIES)
    starts, labels, people, recordings = (
        column[kept] for column in (starts, labels - 1, people, recordings)
    )
    readings = signal[starts[:, None] + np.arange(STEPS)].transpose(0, 2, 1)
    last = {person: recordings[people == person].max() for person in np.unique(people)}
    is_test = recordings == np.array([last[person] for person in people])
    return Windows(np.ascontiguousarray(readings), labels, people, is_test)
