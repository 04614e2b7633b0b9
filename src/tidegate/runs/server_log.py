"""``server.log`` in a run's folder: what its server logged, for whoever is called at night.

It has what Tidegate says in Flower's log, and Flower's warnings, and stays with the run where
Flower's own is gone with the SuperLink. Like that, it names clients and the errors that they sent.
"""

import logging
import logging.handlers
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOG = "server.log"
OURS = "flwr.tidegate"
"""The logger of all that Tidegate says on a server."""
LARGEST = 2_000_000
"""Bytes after which it goes on in a new file; the one before is kept as ``server.log.1``."""
TAIL = 64_000
"""Bytes at its end in which the last lines are looked for."""


@contextmanager
def logged(folder: Path) -> Iterator[None]:
    """Write the log of a run to its folder, with what ends the run, if something does.

    A log that cannot be written stops nothing.
    """
    handler = logging.handlers.RotatingFileHandler(
        folder / LOG, maxBytes=LARGEST, backupCount=1, encoding="utf-8", delay=True
    )
    form = logging.Formatter("%(asctime)s UTC %(levelname)s %(message)s", "%Y-%m-%d %H:%M:%S")
    form.converter = time.gmtime
    handler.setFormatter(form)
    handler.addFilter(_is_of_use)
    logger = logging.getLogger("flwr")
    logger.addHandler(handler)
    try:
        yield
    except Exception as wrong:
        told = logging.makeLogRecord(
            {
                "msg": f"the server stops: {type(wrong).__name__}: {wrong}",
                "levelno": logging.ERROR,
                "levelname": "ERROR",
            }
        )
        handler.handle(told)
        raise
    finally:
        logger.removeHandler(handler)
        handler.close()


def _is_of_use(record: logging.LogRecord) -> bool:
    """Whether somebody on call wants a line: all of Tidegate's, and warnings of Flower's."""
    return record.name == OURS or record.levelno >= logging.WARNING


def last_lines(folder: Path, count: int) -> list[str]:
    """Return the last lines that the server of a run has logged, without what moves a cursor."""
    try:
        with (folder / LOG).open("rb") as log:
            log.seek(max(log.seek(0, 2) - TAIL, 0))
            text = log.read().decode(errors="replace")
    except FileNotFoundError:
        return []
    lines = [line for line in text.splitlines() if line.strip()]
    return ["".join(one if one.isprintable() else " " for one in line) for line in lines[-count:]]
