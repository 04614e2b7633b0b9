"""The books of a run side by side: what each node's own file says, and the server's ledger."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidegate.client.auditing import Audit, audit_file, compare
from tidegate.errors import TidegateError
from tidegate.runs.reader import read_accounts, read_run


@dataclass(frozen=True)
class NodeBooks:
    """What one node has paid, by its own file and by the server's account of it."""

    name: str
    samples: int
    """That it has taken in."""
    paid: float
    """By its own file; what was refunded is taken off."""
    booked: float
    """By the server's ledger."""
    problems: list[str]
    """What contradicts, in words."""


@dataclass(frozen=True)
class BothBooks:
    """All nodes' books, and those of the server."""

    nodes: list[NodeBooks]
    by_rounds: float
    """What the rows of the rounds say was spent."""
    problems: list[str]
    """What contradicts, of the nodes and of the sums."""

    @property
    def paid(self) -> float:
        """What all nodes have paid, by their own files."""
        return math.fsum(node.paid for node in self.nodes)

    @property
    def booked(self) -> float:
        """What the ledger says that all have paid."""
        return math.fsum(node.booked for node in self.nodes)

    @property
    def are_equal(self) -> bool:
        """Whether nothing contradicts."""
        return not self.problems


def compare_books(run: Path, buffers: Mapping[str, Path]) -> BothBooks:
    """Compare the server's books with the files of its nodes, as ``tidegate audit`` does, and more.

    Every file is audited against the server's account of its client; what a node paid and took in
    must be what the ledger says, no order may be open, and the rows of the rounds must have the
    same sum.

    Args:
        run: the folder of a run that nobody serves any more.
        buffers: by the name of each node, the folder of its buffers.
    """
    name, accounts = read_accounts(run)
    nodes = [
        _compared(node, _audit_of(folder, name), accounts.get(node))
        for node, folder in sorted(buffers.items())
    ]
    problems = [f"{node.name}: {wrong}" for node in nodes for wrong in node.problems]
    strangers = sorted(accounts.keys() - buffers.keys())
    problems += [
        f"{name}: the server has an account for it, but it is not a node" for name in strangers
    ]
    by_rounds = math.fsum(row.spent for row in read_run(run).rounds)
    both = BothBooks(nodes, by_rounds, problems)
    if not _same(both.paid, by_rounds):
        problems.append(f"nodes paid {both.paid:.10g}, but rounds spent {by_rounds:.10g}")
    return both


def _audit_of(folder: Path, run: str) -> Audit | None:
    """The audit of the one buffer of a run in a folder."""
    for path in sorted(folder.glob("*.sqlite")):
        for audit in audit_file(path):
            if audit.books.run == run:
                return audit
    return None


def _compared(name: str, audit: Audit | None, account: Mapping[str, Any] | None) -> NodeBooks:
    booked = 0.0 if account is None else _booked(account)
    if audit is None or account is None:
        unused = audit is None and account is None  # it never took part
        told = [] if unused else ["it is known to only one side"]
        return NodeBooks(name, 0, 0.0, booked, told)
    compare(audit, account)
    books = audit.books
    problems = [*audit.problems, *audit.broken]
    paid = books.spent - books.refunded
    if not _same(paid, booked):
        problems.append(f"it paid {paid:.10g}, but the ledger says {booked:.10g}")
    admitted = account["lost"]["admitted"] + account["newest"]["admitted"]
    if books.admitted != admitted:
        problems.append(f"it admitted {books.admitted} samples, but the ledger says {admitted}")
    if account["outstanding"] is not None:
        problems.append("it has an order without a reply")
    return NodeBooks(name, books.admitted, paid, booked, problems)


def _booked(account: Mapping[str, Any]) -> float:
    """Return what the server booked for a client, less refunds."""
    parts = account["lost"], account["newest"]
    return math.fsum(part["spent"] - part["refunded"] for part in parts)


def newest_round(folder: Path) -> tuple[int, float]:
    """Return the newest round that a node has paid for, and what it has paid in all.

    The node may be running; (0, 0.0) as long as it has no buffer.
    """
    for path in sorted(folder.glob("*.sqlite")):
        try:
            books = audit_file(path)[0].books
        except (TidegateError, IndexError):  # it is being made
            continue
        return books.last_round, books.spent - books.refunded
    return 0, 0.0


def _same(one: float, other: float) -> bool:
    """Equal, but for the rounding of sums."""
    return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)
