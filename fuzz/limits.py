"""What a target may raise, and a folder to read from."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LONGEST_REASON = 2000
"""Characters; a refusal must not repeat megabytes of what was sent."""
IN_MEMORY = Path("/dev/shm")  # noqa: S108 - each process makes a folder of its own in it


@contextmanager
def may_refuse(*kinds: type[Exception], longest: int | None = None) -> Iterator[None]:
    """Let these errors pass, if they give a reason, and nothing else."""
    try:
        yield
    except kinds as refused:
        reason = str(refused)
        if not reason:
            raise AssertionError(f"a {type(refused).__name__} without a reason") from refused
        if longest is not None and len(reason) > longest:
            raise AssertionError(f"a reason of {len(reason)} characters") from refused


@contextmanager
def empty_folder() -> Iterator[Path]:
    """A folder that is gone afterwards; in memory where the machine has room for it."""
    where = IN_MEMORY if IN_MEMORY.is_dir() else None
    folder = Path(tempfile.mkdtemp(prefix="tidegate-fuzz-", dir=where))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
