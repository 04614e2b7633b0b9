"""A supplier that answers 1 to 20 orders later, and keeps its own bill in a file."""

import json
import os
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from flwr.app import Context

from tidegate.client.supplier import Delivered, Outcome, Refused, Request

LONGEST = 20


class LateLabels:
    """What becomes of a purchase is drawn from its key; a killed client finds the same bill."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._kept: dict[str, Any] = {"orders": 0, "bill": {}}
        if path.exists():
            self._kept = json.loads(path.read_text())

    def ask(self, requests: Sequence[Request]) -> None:
        for one in requests:
            delay = random.Random(one.key).randint(1, LONGEST)  # noqa: S311
            due = self._kept["orders"] + delay
            self._kept["bill"].setdefault(one.key, {"price": one.price, "due": due, "ended": ""})
        self._save()

    def collect(self, keys: Sequence[str]) -> Iterator[Outcome]:
        self._kept["orders"] += 1
        outcomes = [self._outcome(key) for key in keys if self._is_due(key)]
        self._save()
        yield from outcomes

    def cancel(self, keys: Sequence[str]) -> Iterator[Outcome]:
        raise NotImplementedError("everything comes before it is given up")

    def complete(self, sample: Any, answer: Any) -> Any:
        return sample

    def _is_due(self, key: str) -> bool:
        bill = self._kept["bill"]
        return key in bill and bill[key]["due"] <= self._kept["orders"]

    def _outcome(self, key: str) -> Outcome:
        kind = random.Random(f"kind of {key}").random()  # noqa: S311
        ended = "delivered" if kind < 0.7 else "refunded" if kind < 0.9 else "lost"
        self._kept["bill"][key]["ended"] = ended
        if ended == "delivered":
            return Delivered(key, None)
        return Refused(key, refunded=ended == "refunded")

    def _save(self) -> None:
        """The whole bill, or the one before it."""
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps(self._kept))
        os.replace(new, self._path)  # noqa: PTH105


def supplier(context: Context) -> LateLabels:
    signals = Path(str(context.run_config["signals"]))
    return LateLabels(signals / f"bill-{context.node_config['partition-id']}.json")
