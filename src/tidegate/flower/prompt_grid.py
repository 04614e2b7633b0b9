"""Yield replies as they arrive, and stop waiting when no more can be expected."""

import math
import time
from collections.abc import Iterable, Iterator

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from tidegate.flower.flower_internals import NodeInfo, OwnGrid, Run
from tidegate.flower.local_grid import LocalGrid

AT_ONCE = 16
"""Replies that are requested, and so held in memory, together."""
SHORTEST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
"""Seconds before the grid is asked again for replies that have not arrived."""
PAUSE = 0.1
"""Between these, of the time that has passed: no round gets longer by more than a tenth."""


def replies_as_they_arrive(
    grid: Grid,
    messages: Iterable[Message],
    timeout: float,
    *,
    patience: float = math.inf,
    at_once: int = AT_ONCE,
) -> Iterator[Message]:
    """Send messages now; yield their replies as they arrive.

    Args:
        grid: sends them.
        messages: the messages to send.
        timeout: seconds after which it stops waiting for replies.
        patience: seconds without any reply after which it stops waiting, not counting the time that
            asking takes.
        at_once: replies that are requested, and so held in memory, together.
    """
    # A message that could not be sent has no id.
    sent = [message_id for message_id in grid.push_messages(messages) if message_id]
    return _arriving(grid, sent, timeout, patience, at_once)


def _arriving(
    grid: Grid, message_ids: list[str], timeout: float, patience: float, at_once: int
) -> Iterator[Message]:
    begun = heard_at = time.monotonic()
    while True:
        asked_at = time.monotonic()
        missing: list[str] = []
        for start in range(0, len(message_ids), at_once):
            batch = message_ids[start : start + at_once]
            replies = list(grid.pull_messages(batch))
            heard = {reply.metadata.reply_to_message_id for reply in replies}
            missing += [message_id for message_id in batch if message_id not in heard]
            if heard:
                heard_at = time.monotonic()
            while replies:
                yield replies.pop()
        looked_at = time.monotonic()
        if not missing or looked_at >= begun + timeout or asked_at >= heard_at + patience:
            return
        message_ids = missing
        pause = min(max(PAUSE * (looked_at - begun), SHORTEST_PAUSE), LONGEST_PAUSE)
        time.sleep(min(pause, begun + timeout - looked_at))


class PromptGrid(OwnGrid):
    """A grid that yields replies as they arrive, a few at a time."""

    purpose = "FoldedFedAvg", "FedAvg needs no grid of its own"

    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    def set_run(self, run: Run) -> None:
        """Set the run that the grid serves."""
        self._grid.set_run(run)

    @property
    def run(self) -> Run:
        """The run that the grid serves."""
        return self._grid.run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """Create a message."""
        return self._grid.create_message(content, message_type, dst_node_id, group_id, ttl)

    def get_node_ids(self) -> Iterable[int]:
        """Return the ids of all nodes."""
        return self._grid.get_node_ids()

    def get_nodes(self) -> Iterable[NodeInfo]:
        """Return all nodes, with their names."""
        return self._grid.get_nodes()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send messages."""
        return self._grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies to these messages that have arrived."""
        return self._grid.pull_messages(message_ids)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send messages now; yield their replies as they arrive, until the timeout."""
        if isinstance(self._grid, LocalGrid):
            return self._grid.one_by_one(messages)
        seconds = math.inf if timeout is None else timeout
        return replies_as_they_arrive(self._grid, messages, seconds)

    @property
    def is_in_process(self) -> bool:
        """Whether its nodes are function calls."""
        return is_in_process(self._grid)


def is_in_process(grid: Grid) -> bool:
    """Return whether a grid's nodes are function calls in this process; no others ever join."""
    return isinstance(grid, LocalGrid) or (isinstance(grid, PromptGrid) and grid.is_in_process)
