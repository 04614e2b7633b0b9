"""What a node is asked before it takes part, and what it replies."""

import hashlib

from flwr.app import Message

from tidegate._internal.words import on_a_line
from tidegate.errors import DamagedFileError, SupplierError, TidegateError, WireError
from tidegate.flower.flower_internals import CLIENT_RAISED, NodeInfo
from tidegate.flower.records import NOT_IN_MODS, REMEDIES, expect, find, key_of
from tidegate.wire import Address, Introduction, Receipt

MAY_PASS = (SupplierError, DamagedFileError)
"""Errors of a node that may pass, such as data that are not mounted yet: the node may reply
otherwise when it is asked again, and other nodes may work. A setting, a version or a missing
gate does not change by itself."""


def lacks_gate(reply: Message) -> bool:
    """Return whether a question reached a training function instead of a gate.

    A gate replies with an introduction or with an error of this package.
    """
    if not reply.has_error():
        return key_of(Introduction) not in reply.content
    reason = str(reply.error.reason)
    ours = any(kind.__name__ in reason for kind in TidegateError.__subclasses__())
    return reply.error.code == CLIENT_RAISED and (not ours or NOT_IN_MODS in reason)


def may_pass(reply: Message) -> bool:
    """Return whether a node failed for a reason that may have passed when it is asked again."""
    if not reply.has_error() or lacks_gate(reply):
        return False
    reason = str(reply.error.reason)
    return any(kind.__name__ in reason for kind in MAY_PASS)


def introduction_in(reply: Message, address: Address) -> tuple[Introduction, Receipt | None]:
    """Return a node's introduction, under the name that it is registered with, or else its own."""
    if reply.has_error():
        reason = on_a_line(reply.error.reason)
        remedy = f"; {REMEDIES[Introduction]}" if lacks_gate(reply) else ""
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
