"""A process that is killed in the middle of its work."""

import os
import select
import signal
import time
import traceback
from collections.abc import Callable


def killed_at_work(work: Callable[[int], None], delay: float, patience: float = 30.0) -> None:
    """Start the work, wait until some of it is done, and kill it a little later.

    Args:
        work: goes on for ever, and writes to the file descriptor that it is given.
        delay: seconds after the first byte.
        patience: seconds until that.
    """
    listen, tell = os.pipe()
    worker = os.fork()
    if not worker:
        try:
            work(tell)
        finally:
            traceback.print_exc()
            os._exit(1)
    os.close(tell)
    ready, _, _ = select.select([listen], [], [], patience)
    assert ready, f"the process did not come to work within {patience:g} s"
    time.sleep(delay)  # the point at which it dies, not a wait for something
    os.kill(worker, signal.SIGKILL)
    _, status = os.waitpid(worker, 0)
    os.close(listen)
    assert os.WIFSIGNALED(status), "the process ended by itself"
