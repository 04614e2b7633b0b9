"""``server.log`` in a run's folder: what its server logged.

It holds Tidegate's lines in Flower's log, and Flower's warnings, and stays with the run when
Flower's own log is gone with the SuperLink. Like that log, it names clients and their errors.
"""

import logging
import logging.handlers
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

LOG = "server.log"
OURS = "tidegate"
"""The logger above all of Tidegate's; ``tidegate.flower`` lets it log to Flower's."""
LARGEST = 2_000_000
"""Bytes after which a new file starts; the previous one is kept as ``server.log.1``."""
TAIL = 64_000
"""Bytes at its end that are searched for the last lines."""
ENDING = "the server stops: "
"""Before the reason why a server ended early."""
RUN_STOPPED = "somebody stopped the run (flwr stop), or the SuperLink was started anew"
INTERRUPTED = "somebody interrupted the run (Ctrl-C)"


class Indented(logging.Formatter):
    """Writes a record of several lines with the later ones indented.

    A text of somebody else, such as a client's exception, then looks like no record of its own.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as text."""
        return super().format(record).replace("\n", "\n    ")


def in_words(wrong: Exception) -> str:
    """Return the kind of an exception, and what it says."""
    return f"{type(wrong).__name__}: {wrong}"


@contextmanager
def logged(
    folder: Path,
    reason: Callable[[Exception], str] = in_words,
    is_stop: Callable[[logging.LogRecord], bool] = lambda record: False,
) -> Iterator[None]:
    """Write the log of a run to its folder, with the exception that ends the run, if any.

    A log that cannot be written does not stop the run.

    Args:
        folder: of the run.
        reason: says in words why an exception ends the run.
        is_stop: says whether a record means that somebody has stopped the run; such a record may be
            the last, because Flower then ends the process.
    """

    def is_of_use(record: logging.LogRecord) -> bool:
        if is_stop(record):
            _write_ending(handler, RUN_STOPPED)
            return False
        return _is_of_use(record)

    handler = logging.handlers.RotatingFileHandler(
        folder / LOG, maxBytes=LARGEST, backupCount=1, encoding="utf-8", delay=True
    )
    form = Indented("%(asctime)s UTC %(levelname)s %(message)s", "%Y-%m-%d %H:%M:%S")
    form.converter = time.gmtime
    handler.setFormatter(form)
    handler.addFilter(is_of_use)
    logger = logging.getLogger("flwr")
    logger.addHandler(handler)
    try:
        yield
    except KeyboardInterrupt:
        _write_ending(handler, INTERRUPTED)
        raise
    except Exception as wrong:
        _write_ending(handler, reason(wrong))
        raise
    finally:
        logger.removeHandler(handler)
        handler.close()


def _write_ending(handler: logging.Handler, reason: str) -> None:
    """Write why the server ended early."""
    text = f"{ENDING}{reason}"
    handler.handle(logging.LogRecord(OURS, logging.ERROR, __file__, 0, text, None, None))


def _is_of_use(record: logging.LogRecord) -> bool:
    """Return whether an operator needs a line: all of Tidegate's, and Flower's warnings."""
    return record.name.partition(".")[0] == OURS or record.levelno >= logging.WARNING


def how_stopped(folder: Path) -> str | None:
    """Return how somebody stopped a run that ended early, by the end of its log; else None."""
    end = " ".join(last_lines(folder, 1))
    if end.startswith(" "):  # the end of a longer record
        return None
    return next((how for how in (RUN_STOPPED, INTERRUPTED) if f"{ENDING}{how}" in end), None)


def last_lines(folder: Path, count: int) -> list[str]:
    """Return the last lines of a run's log, without control characters."""
    try:
        with (folder / LOG).open("rb") as log:
            log.seek(max(log.seek(0, 2) - TAIL, 0))
            text = log.read().decode(errors="replace")
    except FileNotFoundError:
        return []
    lines = [line for line in text.splitlines() if line.strip()]
    shown = lines[max(len(lines) - count, 0) :]
    return [
        "".join(character if character.isprintable() else " " for character in line)
        for line in shown
    ]
