"""Which node is which client: node ids change, names and keys stay."""

import hashlib
import logging
import time
from collections.abc import Iterable, Mapping

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from tidegate.errors import ConfigurationError, WireError
from tidegate.flower.flower_internals import CLIENT_RAISED, MOD_FAILED, NO_REPLY, NodeInfo
from tidegate.flower.local_grid import LocalGrid
from tidegate.flower.prompt_grid import is_in_process, replies_as_they_arrive
from tidegate.flower.records import (
    GATE_FAILS,
    GATE_REFUSES,
    REMEDIES,
    attach,
    expect,
    find,
    key_of,
    reason_of,
)
from tidegate.server.controller import Controller
from tidegate.wire import Address, Introduction, Receipt

PATIENCE = 60.0
"""Seconds without a reply after which the server stops waiting for nodes that it does not know,
unless a round's timeout is shorter; nodes that reply later are asked again."""
AT_ONCE = 1000
"""Introductions, which are small, that are requested together."""

ASKED_AGAIN = "It is asked again after 1, 2, 4 and more rounds"
NOT_REACHED = "no client is online"
REFUSED_NOW = "every online node is refused for now"
TRAIN = "train"
"""Flower's message type for training."""
LONGEST_WAIT = 60.0
"""The longest wait in seconds before nodes are asked again while no client is known."""
LONGEST_PAUSE = 6
"""A node that never replies is asked again after 1, 2, 4 and finally 2 ** 6 rounds."""

RAISED = (CLIENT_RAISED, MOD_FAILED, GATE_REFUSES, GATE_FAILS)
"""Error codes of a node whose app was there and failed."""

logger = logging.getLogger(__name__)


class Nodes:
    """The clients that are online, by name and by node id."""

    def __init__(self) -> None:
        self.clients: dict[str, int] = {}
        """The node id of each client that is online."""
        self._names: dict[int, str] = {}
        """The name by which each node first called itself, unless it was another node's; it cannot
        take another."""
        self._registered: dict[int, str] = {}
        """The name with which an operator has registered a node."""
        self.refused: dict[int, str] = {}
        """Nodes that replied when they were last asked and were left out, each with the reason."""
        self._reasons: dict[int, str] = {}
        """Why nodes that replied were left out when they were last asked: also those that cannot
        have their name, or whose app could not be loaded."""
        self._gateless: dict[int, str] = {}
        """Those that replied without a gate: the question reached their training function, which it
        is not meant for."""
        self._passing: set[int] = set()
        """Those that were refused for a reason that may pass."""
        self._are_all_refused = False
        """Whether every node was refused when they were last asked, and none has joined before."""
        self._was_anybody_let_in = False
        self._silent: dict[int, tuple[int, int]] = {}
        """How often a node did not reply, or replied without a gate, and the round in which it is
        asked again."""

    def forget(self, clients: Iterable[str]) -> None:
        """Ask these clients again who they are and how far they got before they take part."""
        for client in clients:
            self.clients.pop(client, None)

    def left_out(self) -> dict[str, str]:
        """Return who was left out when last asked, each with the reason: clients, or ``node N``."""
        reasons = dict[str, str]()
        for node_id, reason in self._reasons.items():
            name = self._name_of(node_id)
            is_it = name is not None and self.clients.get(name, node_id) == node_id
            who = f"node {node_id}" if name is None or name in reasons or not is_it else name
            reasons[who] = reason
        return reasons

    def is_retired(self, node_id: int, controller: Controller) -> bool:
        """Return whether a node is a client that an operator has retired; it is not contacted."""
        return controller.ledger.is_retired(self._names.get(node_id, ""))

    def must_wait(self, controller: Controller) -> bool:
        """Return whether a round would run without any client before one could take part.

        Once a client has joined, rounds continue without it.
        """
        return not self.clients and (self._are_all_refused or not controller.fleet)

    def wait_for_anybody(
        self, grid: Grid, controller: Controller, timeout: float, message_type: str = TRAIN
    ) -> bool:
        """Ask nodes until one joins; return whether one did before the timeout.

        No nodes join a grid in this process later, so there it does not wait. If every node is
        still refused at the end, the run stops.
        """
        pause, waited = 1.0, 0.0
        while not (self.clients or is_in_process(grid)):
            if waited + pause > timeout:
                if self._are_all_refused:
                    raise self._refusal(grid)
                break
            logger.warning(
                "%s; the run waits for one and continues by itself; it asks again in %.0f s",
                REFUSED_NOW if self._are_all_refused else NOT_REACHED,
                pause,
            )
            time.sleep(pause)
            waited, pause = waited + pause, min(2 * pause, LONGEST_WAIT)
            self._silent.clear()
            self.meet(grid, controller, timeout, message_type)
        return bool(self.clients)

    def meet(
        self, grid: Grid, controller: Controller, timeout: float, message_type: str = TRAIN
    ) -> None:
        """Forget nodes that are gone, and ask new ones who they are.

        The question goes to the training function, because its mods answer it. If no node has
        joined since the start and every node is refused, the run stops, because rounds without
        clients cannot be repeated. It continues if one of the reasons may pass.
        """
        online = {node.node_id: node for node in grid.get_nodes()}
        self._registered = {node_id: node.name for node_id, node in online.items() if node.name}
        reserved = {name: node_id for node_id, name in self._registered.items()}
        self.clients = {
            client: node_id
            for client, node_id in self.clients.items()
            if node_id in online
            and reserved.get(client, node_id) == node_id
            and not controller.ledger.is_retired(client)
        }
        self._names = {node: name for node, name in self._names.items() if node in online}
        self._silent = {node: noted for node, noted in self._silent.items() if node in online}
        self._gateless = {node: why for node, why in self._gateless.items() if node in online}
        self.refused = dict(self._gateless)
        self._reasons = dict(self._gateless)
        self._passing, self._are_all_refused = set(), False
        addresses = self._to_ask(online, controller)
        if not addresses:
            return
        questions = []
        for node_id, address in addresses.items():
            content = RecordDict()
            attach(content, address)
            questions.append(Message(content, node_id, message_type, ttl=timeout))
        if isinstance(grid, LocalGrid):
            replies: Iterable[Message] = grid.send_and_receive(questions)
        else:
            replies = replies_as_they_arrive(
                grid, questions, timeout, patience=PATIENCE, at_once=AT_ONCE
            )
        answered = {reply.metadata.reply_to_message_id: reply for reply in replies}
        introduced = []
        for question in questions:
            node_id, reply = (
                question.metadata.dst_node_id,
                answered.get(question.metadata.message_id),
            )
            heard = reply is not None and not _lacks_gate(reply)
            self._note(node_id, controller.round_number, heard=heard)
            if reply is None:
                logger.warning(
                    "node %s did not introduce itself in time; the server asks it again",
                    self._called(node_id),
                )
                continue
            try:
                introduced.append((*_introduction_in(reply, addresses[node_id]), node_id))
            except WireError as refused:
                self._leave_out(node_id, f"{refused}", reply)
        # Sorted by name, so that sums of money do not depend on which node replies first.
        for introduction, receipt, node_id in sorted(introduced, key=lambda parts: parts[0].client):
            client = introduction.client
            if client in self.clients or reserved.get(client, node_id) != node_id:
                reason = f"another node is already {client!r}; give each node its own name"
                self._dispute(node_id, reason)
                continue
            first = self._names.setdefault(node_id, client)
            if first != client:
                self._dispute(node_id, f"it called itself {first!r} before, and now {client!r}")
                continue
            self._let_in(introduction, receipt, node_id, controller)
        awaited = {node_id for node_id in online if not self.is_retired(node_id, controller)}
        self._stop_if_hopeless(awaited, grid)

    def _to_ask(self, online: Mapping[int, NodeInfo], controller: Controller) -> dict[int, Address]:
        """Return the nodes that are not known yet, with the address for each."""
        known, addresses = set(self.clients.values()), {}
        for node_id, node in online.items():
            _, asked_again = self._silent.get(node_id, (0, 0))
            if self.is_retired(node_id, controller):
                continue
            if node_id not in known and asked_again <= controller.round_number:
                try:
                    void_round = controller.round_number - 1
                    addresses[node_id] = address_of(node, controller.run, void_round)
                except WireError as refused:
                    self._registered.pop(node_id, None)
                    self._dispute(node_id, f"{refused}")
        return addresses

    def _note(self, node_id: int, round_number: int, *, heard: bool) -> None:
        """Ask a node that does not reply, or has no gate, less and less often.

        All others wait for a node that does not reply. The question also disturbs a training
        function without a gate, which may have failed only once, before its gate was there.
        """
        if heard:
            self._silent.pop(node_id, None)
            return
        times, _ = self._silent.get(node_id, (0, 0))
        self._silent[node_id] = times + 1, round_number + 2 ** min(times, LONGEST_PAUSE)

    def _leave_out(self, node_id: int, reason: str, reply: Message | None = None) -> None:
        """Log why a node takes no part; a node that could not be reached is not refused."""
        if reply is None or not reply.has_error() or reply.error.code in RAISED:
            self.refused[node_id] = reason
        if reply is None or not reply.has_error() or reply.error.code not in NO_REPLY:
            self._reasons[node_id] = reason
        if reply is not None and reply.has_error() and reply.error.code == GATE_FAILS:
            self._passing.add(node_id)
        if reply is not None and _lacks_gate(reply):
            self._gateless[node_id] = reason
            reason = f"{reason}. {ASKED_AGAIN}"
        logger.warning("node %s is left out: %s", self._called(node_id), reason)

    def _dispute(self, node_id: int, reason: str) -> None:
        """Log why a node cannot have its name; the run does not stop for it."""
        self._reasons[node_id] = reason
        logger.warning("node %s is left out: %s", node_id, reason)

    def _name_of(self, node_id: int) -> str | None:
        """Return the name of a node, if the server has heard it."""
        return self._names.get(node_id) or self._registered.get(node_id)

    def _called(self, node_id: int) -> str:
        """Return a node's number, by which Flower knows it, and its name."""
        name = self._name_of(node_id)
        return f"{node_id}" if name is None else f"{node_id} ({name})"

    def _stop_if_hopeless(self, awaited: set[int], grid: Grid) -> None:
        """Stop a run if no node can take part and none has since the start."""
        all_refused = bool(awaited) and self.refused.keys() >= awaited
        self._are_all_refused = all_refused and not self._was_anybody_let_in
        if self._are_all_refused and (is_in_process(grid) or not self._passing):
            raise self._refusal(grid)

    def _refusal(self, grid: Grid) -> ConfigurationError:
        """Return the error for a run in which no node can take part."""
        node_id, reason = next(iter(self.refused.items()))
        others = (
            ""
            if is_in_process(grid)
            else (
                "; if other nodes will join later, raise the strategy's min_available_nodes: "
                "the run then waits for them"
            )
        )
        return ConfigurationError(
            "no client can take part: the server refused every online node "
            f"({len(self.refused)}), node {self._called(node_id)} because {reason}. No round was "
            f"run; fix this and start the run again{others}"
        )

    def _let_in(
        self,
        introduction: Introduction,
        receipt: Receipt | None,
        node_id: int,
        controller: Controller,
    ) -> None:
        try:
            controller.join(introduction, receipt)
        except WireError as refused:
            self._leave_out(node_id, f"{refused}")
        else:
            self.clients[introduction.client] = node_id
            self._gateless.pop(node_id, None)
            self.refused.pop(node_id, None)
            self._reasons.pop(node_id, None)
            self._was_anybody_let_in = True


def _lacks_gate(reply: Message) -> bool:
    """Return whether a question reached a training function instead of a gate.

    A gate replies with an introduction, or with an error code of its own.
    """
    if reply.has_error():
        return reply.error.code in (CLIENT_RAISED, MOD_FAILED)
    return key_of(Introduction) not in reply.content


def _introduction_in(reply: Message, address: Address) -> tuple[Introduction, Receipt | None]:
    """Return a node's introduction, under the name that it is registered with, or else its own."""
    if reply.has_error():
        reason = reason_of(reply)
        remedy = f"; {REMEDIES[Introduction]}" if _lacks_gate(reply) else ""
        raise WireError(f"it replied without an introduction: {reason}{remedy}")
    introduction = expect(reply.content, Introduction)
    if introduction.run != address.run:
        raise WireError(f"asked as {address}, it replied as {introduction}")
    if introduction.void_round < address.void_round:
        raise WireError(
            f"{introduction.client} voids orders up to round {introduction.void_round}, but was "
            f"asked to up to round {address.void_round}"
        )
    if address.client and introduction.client != address.client:
        raise WireError(
            f"it is registered as {address.client!r}, but calls itself {introduction.client!r}"
        )
    return introduction, find(reply.content, Receipt)


def address_of(node: NodeInfo, run: str, void_round: int) -> Address:
    """Return the address of a node: the name that it was registered with, if any.

    A key alone does not identify a node: without authentication Flower makes up a new one at every
    start.
    """
    key = node.public_key
    fingerprint = hashlib.sha256(key).hexdigest() if key else ""
    return Address(
        run=run,
        client=node.name or "",
        fingerprint=fingerprint,
        void_round=void_round,
    )
