"""Which node is which client: node ids come and go, names and keys stay."""

import hashlib
import logging
from collections.abc import Iterable

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from tidegate.controller import Controller
from tidegate.flower.private import NodeInfo
from tidegate.flower.records import QUERY, attach, expect, find
from tidegate.wire import Address, Introduction, Receipt, WireError

INTRODUCTION_SECONDS = 60.0
"""How long the server waits for nodes that it does not know; who is later is asked again."""

logger = logging.getLogger("flwr.tidegate")


class Nodes:
    """The clients that can be reached, by name and by node id."""

    def __init__(self) -> None:
        self._clients: dict[int, str] = {}

    @property
    def clients(self) -> dict[str, int]:
        """The node id of each client that can be reached."""
        return {client: node_id for node_id, client in self._clients.items()}

    def meet(self, grid: Grid, controller: Controller) -> None:
        """Forget nodes that are gone, and ask new ones who they are."""
        online = {node.node_id: node for node in grid.get_nodes()}
        self._clients = {
            node_id: client for node_id, client in self._clients.items() if node_id in online
        }
        unknown = [node for node_id, node in online.items() if node_id not in self._clients]
        if not unknown:
            return
        addresses = {node.node_id: address_of(node, controller.run) for node in unknown}
        questions = []
        for node_id, address in addresses.items():
            content = RecordDict()
            attach(content, address)
            questions.append(Message(content, node_id, QUERY, ttl=INTRODUCTION_SECONDS))
        replies = grid.send_and_receive(questions, timeout=INTRODUCTION_SECONDS)
        self._listen(replies, addresses, controller)

    def _listen(
        self, replies: Iterable[Message], addresses: dict[int, Address], controller: Controller
    ) -> None:
        for reply in replies:
            if reply.has_error():
                logger.warning("a node did not introduce itself: %s", reply.error.reason)
                continue
            node_id = reply.metadata.src_node_id
            try:
                client = self._join(reply.content, addresses[node_id], controller)
            except WireError as refused:
                logger.warning("node %s is left out: %s", node_id, refused)
            else:
                self._clients[node_id] = client

    def _join(self, content: RecordDict, address: Address, controller: Controller) -> str:
        """Let a node in under the name that it is registered by, or else the one it gives."""
        introduction = expect(content, Introduction)
        client = introduction.client
        if introduction.run != address.run or (address.client and client != address.client):
            raise WireError(f"asked as {address}, it answered as {introduction}")
        if client in self.clients:
            raise WireError(f"another node is {client!r} already; names must differ")
        controller.join(client, introduction.buffer_capacity, find(content, Receipt))
        return client


def address_of(node: NodeInfo, run: str) -> Address:
    """Whom to ask: by the name that the node was registered by, if it was.

    A key alone is no name: without authentication Flower makes up a new one at every start.
    """
    key = node.public_key
    fingerprint = hashlib.sha256(key).hexdigest() if key else ""
    return Address(run=run, client=node.name or "", fingerprint=fingerprint)
