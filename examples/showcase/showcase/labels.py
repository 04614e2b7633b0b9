"""Where a client buys labels: Tidegate's supplier in front of the annotator's service."""

import base64
import json
from collections.abc import Iterable, Sequence
from contextlib import closing
from http.client import HTTPConnection
from typing import Any

from showcase.data import ACTIVITIES, Readings
from showcase.readings import HOST
from showcase.task import Sample
from tidegate.client.supplier import Delivered, Outcome, Request
from tidegate.errors import SupplierError

SECONDS = 30.0
OK = 200


class Labels:
    """Buys the activity that a window shows; it comes some rounds later."""

    def __init__(self, port: int, fleet: str, person: int) -> None:
        """Buy for one client.

        Args:
            port: of the annotator, on this machine.
            fleet: who pays.
            person: whose windows they are.
        """
        self._port = port
        self._fleet = fleet
        self._person = person

    def ask(self, requests: Sequence[Request]) -> None:
        """Send windows to the annotator, who knows a key that comes again."""
        tasks = [
            {"key": one.key, "price": one.price, "window": _as_text(one.sample)} for one in requests
        ]
        self._post("/ask", {"fleet": self._fleet, "person": self._person, "requests": tasks})

    def collect(self, keys: Sequence[str]) -> Iterable[Outcome]:
        """What was labelled by now."""
        answers = self._post("/collect", {"keys": list(keys)})
        return [Delivered(key, activity) for key, activity in answers.items()]

    def cancel(self, keys: Sequence[str]) -> Iterable[Outcome]:
        """Nothing: this annotator answers in the end, and the gate gives nothing up."""
        return []

    def complete(self, sample: Readings, answer: str) -> Sample:
        """The window with its label, to train on."""
        return sample, ACTIVITIES.index(answer)

    def _post(self, path: str, given: dict[str, Any]) -> Any:
        with closing(HTTPConnection(HOST, self._port, timeout=SECONDS)) as connection:
            connection.request("POST", path, json.dumps(given))
            answer = connection.getresponse()
            content = answer.read()
        if answer.status != OK:
            raise SupplierError("the annotator", f"answers {answer.status} to {path}")
        return json.loads(content)


def _as_text(window: Readings) -> str:
    return base64.b64encode(window.astype("<f4").tobytes()).decode()
