"""The part of a traceback that is of use to the author of an app."""

import importlib
from pathlib import Path

import flwr

import tidegate
from tidegate.errors import TidegateError

OURS = tuple(Path(module.__file__ or "").parent for module in (tidegate, flwr, importlib))
"""The folders of Tidegate, of Flower, and of what imports an app."""


def users_trace(failure: Exception) -> BaseException | None:
    """Return an exception whose traceback starts in the app; None for one that needs no traceback.

    An error that Tidegate raises on purpose names the remedy; if a function of the user's is behind
    it, that function's own exception has the traceback.
    """
    cause = failure.__cause__ if isinstance(failure, TidegateError) else failure
    if cause is None:
        return None
    trace = cause.__traceback__
    while trace is not None and _is_ours(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return cause.with_traceback(trace)


def _is_ours(file: str) -> bool:
    return file.startswith("<frozen ") or any(map(Path(file).is_relative_to, OURS))
