"""An experiment's runs in this process, for tests to which processes of their own do not matter."""

import logging
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

import pytest

from experiments.tool import runner


class HereAndNow(Executor):
    """Takes what a pool of processes takes, and does at once what it is given."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Done when this returns, or failed."""
        future: Future[Any] = Future()
        log = logging.getLogger("flwr")
        level = log.level
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as failure:
            future.set_exception(failure)
        finally:
            log.setLevel(level)  # a run makes it quiet for the rest of its process
        return future


def in_one_process(patch: pytest.MonkeyPatch) -> None:
    """Processes would load torch and datasets first, which takes longer than small runs do."""
    patch.setattr(runner, "ProcessPoolExecutor", HereAndNow)
