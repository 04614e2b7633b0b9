"""How log lines of Tidegate get into Flower's log."""

import logging

from tidegate.flower.flower_internals import LOGGER
from tidegate.runs.server_log import OURS

ours, flowers = logging.getLogger(OURS), logging.getLogger(LOGGER)


class ToFlowersLog(logging.Handler):
    """Passes records on to the handlers of Flower's logger, from its level upwards."""

    def emit(self, record: logging.LogRecord) -> None:
        """Pass a record on; the root logger gets it from our logger, unless Flower's is cut off."""
        if not flowers.propagate:  # as in a notebook, so that the root prints nothing twice
            ours.propagate = False
        if record.levelno < flowers.getEffectiveLevel():
            return
        for handler in flowers.handlers:
            if record.levelno >= handler.level:
                handler.handle(record)


def log_to_flower() -> None:
    """Let what loggers below ``tidegate`` say appear wherever Flower's log does.

    A level that was set before stays.
    """
    ours.addHandler(ToFlowersLog())
    if ours.level == logging.NOTSET:
        ours.setLevel(logging.DEBUG)
