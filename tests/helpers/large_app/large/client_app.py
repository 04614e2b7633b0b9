"""Buys images of 150 kB, and reads 20 batches of them in two worker processes."""

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch.utils.data import DataLoader

from tidegate.flower import ClientGate

BATCHES = 20


class Images:
    """An endless data set."""

    def __init__(self, signals: Path) -> None:
        self.paid = signals / "paid"

    def __len__(self) -> int:
        return 10**9

    def __getitem__(self, number: int) -> tuple[np.ndarray, int]:
        image = np.random.default_rng(number).integers(0, 256, (224, 224, 3), np.uint8)
        return image, number


OPENED: list[Images] = []


def open_images(context: Context) -> Images:
    OPENED.append(Images(Path(str(context.run_config["signals"]))))
    return OPENED[-1]


def pay(sample: tuple[np.ndarray, int], key: str) -> tuple[np.ndarray, int]:
    with OPENED[-1].paid.open("a") as bill:
        bill.write(f"{key}\n")
    return sample


gate = ClientGate(open_images, lambda context: int(context.run_config["images"]), acquire=pay)
app = ClientApp(mods=[gate])


@app.train()
def train(message: Message, context: Context) -> Message:
    samples: Any = gate.samples(context)
    loader: DataLoader[Any] = DataLoader(samples, 32, shuffle=True, num_workers=2)
    total, seen = torch.zeros(3), 0
    note = OPENED[-1].paid.with_name("trains")
    for number, (images, _) in zip(range(BATCHES), loader, strict=False):
        total += images.float().mean((0, 1, 2))
        seen += 1
        if number == 1 and not note.exists():  # the first time, it is killed here
            note.write_text(str(os.getpid()))
            signal.pause()
    arrays = ArrayRecord({"mean": Array((total / seen).numpy())})
    metrics = MetricRecord({"num-examples": 1})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)
