"""The state of a run: everything that its next step depends on, and how to save and restore it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tidegate._internal.saving import reading
from tidegate.admission.allocation import Allocation
from tidegate.errors import RunDiffersError
from tidegate.server.accounts import Accounts
from tidegate.server.fleet import Fleet, Terms
from tidegate.server.ledger import Ledger
from tidegate.server.progress import Progress
from tidegate.server.roster import Roster
from tidegate.server.saved_state import REMEDY, check_terms, from_bytes, to_bytes


@dataclass(frozen=True)
class Books:
    """A run's state in parts, as a file keeps it; parts that grow with the fleet hold changes."""

    control: Mapping[str, Any]
    """The small part, for JSON."""
    rule: bytes | None
    """State of the admission rule, as ``to_bytes`` gives it; none before the first round."""
    accounts: Accounts
    roster: Roster
    allocation: Allocation | None
    """None before the first round, as the rule."""


@dataclass(frozen=True)
class Standing:
    """The state of one run."""

    terms: Terms
    at: Progress
    ledger: Ledger
    fleet: Fleet
    rule_state: Any = None
    """Of the admission rule; none before the first round."""

    @classmethod
    def start(cls, terms: Terms, run: str) -> "Standing":
        """Return the state before the first round."""
        ledger = Ledger(run)
        return cls(terms, Progress(), ledger, Fleet(terms, ledger))

    def to_books(self) -> Books:
        """Return everything, for a file that is updated in place."""
        control = {
            "terms": self.terms.fixed(),
            **self.at.to_record(),
            "ledger": self.ledger.to_record(),
        }
        rule = None if self.rule_state is None else to_bytes(self.rule_state)
        fleet = self.fleet
        return Books(control, rule, self.ledger.accounts, fleet.roster, fleet.allocation)

    @classmethod
    def from_books(cls, terms: Terms, books: Books, source: object) -> "Standing":
        """Restore from ``to_books``, read from a file, on the same terms."""
        with reading(source, REMEDY):
            ledger = Ledger.from_record(books.control["ledger"], books.accounts)
            saved_terms = books.control["terms"]
        check_terms(saved_terms, terms.fixed())
        with reading(source, REMEDY):
            at = Progress.from_record(books.control)
        standing = cls(terms, at, ledger, Fleet(terms, ledger, books.roster))
        if books.rule is None:
            return standing
        policy = standing.fleet.policy
        if books.allocation is None or not np.array_equal(books.allocation.shares, policy.shares):
            raise RunDiffersError(
                f"{source} was saved with other shares of the fleet than {terms.policy_name} gives "
                "now: it was saved by another policy or version",
                name="shares",
                saved=None,
                given=None,
            )
        standing.fleet.allocation = books.allocation
        return replace(
            standing, rule_state=from_bytes(policy.admission.start(), books.rule, source)
        )
