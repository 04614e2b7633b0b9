"""Clients that an operator retires from a run, or lets take part again.

A request is a line of ``retired.jsonl`` in the run's folder, and the last one for a client counts.
The file is never shortened: a server that dies before its books are saved reads the same requests
at its next start, and one that was applied before changes nothing.
"""

import json
import logging
import os
import time
from collections.abc import Iterable
from pathlib import Path

from tidegate.runs.folder import RETIRED
from tidegate.server.controller import Controller

logger = logging.getLogger(__name__)


def ask(folder: Path, clients: Iterable[str], *, retired: bool) -> None:
    """Ask for clients to be retired, or reinstated; the request is on disk when this returns."""
    about = {"retired": retired, "at": round(time.time(), 3)}
    lines = [json.dumps({"client": client} | about) for client in clients]
    # In one write, after anything that another writer may have left unfinished.
    text = "".join(f"\n{line}\n" for line in lines).encode()
    file = os.open(folder / RETIRED, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        os.write(file, text)
        os.fsync(file)
    finally:
        os.close(file)
    place = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(place)  # makes the file's name durable
    finally:
        os.close(place)


def asked(folder: Path) -> dict[str, bool]:
    """Return for each client in the requests whether to retire it; half a line is ignored."""
    try:
        text = (folder / RETIRED).read_text("utf-8", errors="replace")
    except FileNotFoundError:
        return {}
    requests: dict[str, bool] = {}
    for line in text.splitlines():
        try:
            request = json.loads(line)
            client, retired = request["client"], request["retired"]
        except (ValueError, LookupError, TypeError, RecursionError):
            continue
        if isinstance(client, str) and isinstance(retired, bool):
            requests[client] = retired
    return requests


def take_up(folder: Path, controller: Controller) -> None:
    """Apply the requests to the books; a round that was decided before keeps its orders."""
    ledger = controller.ledger
    for client, retired in asked(folder).items() if not controller.is_under_way else ():
        if client not in ledger or ledger.is_retired(client) == retired:
            continue
        if retired:
            lost = ledger.retire(client, controller.round_number)
            logger.warning(
                "%s is retired from round %d on; %.4g that it may have paid without a reply is "
                "booked as spent",
                *(client, controller.round_number, lost),
            )
        else:
            ledger.reinstate(client)
            logger.warning(
                "%s is no longer retired; the server will ask it to introduce itself", client
            )
