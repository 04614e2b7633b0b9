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
from tidegate.server.saved_state import (
    REMEDY,
    SavedState,
    check_numbers,
    check_terms,
    from_bytes,
    to_bytes,
)
from tidegate.server.saved_terms import current_terms


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

    def to_record(self) -> dict[str, Any]:
        """Return everything, for JSON and a NumPy archive."""
        allocation = self.fleet.allocation
        return {
            **self._control(),
            "ledger": self.ledger.to_record(),
            "absences": self.fleet.roster.absences,
            "state": allocation and to_bytes(SavedState(self.rule_state, allocation)),
        }

    def to_books(self) -> Books:
        """Return everything, for a file that is updated in place."""
        control = {**self._control(), "ledger": self.ledger.control_record()}
        rule = None if self.rule_state is None else to_bytes(self.rule_state)
        fleet = self.fleet
        return Books(control, rule, self.ledger.accounts, fleet.roster, fleet.allocation)

    def _control(self) -> dict[str, Any]:
        return {"terms": self.terms.fixed(), **self.at.to_record()}

    @classmethod
    def from_record(cls, terms: Terms, record: Mapping[str, Any], source: object) -> "Standing":
        """Restore from ``to_record``, on the same terms; ``source`` names the file in errors."""
        with reading(source, REMEDY):
            check_numbers(record)
            ledger = Ledger.from_record(record["ledger"])
            roster = Roster.after_absences(record["absences"])
        standing = cls._resumed(terms, record, ledger, roster, source)
        if record["state"] is None:
            return standing
        policy = standing.fleet.policy
        shape = SavedState(policy.admission.start(), Allocation.start(policy.shares))
        saved = from_bytes(shape, record["state"], source)
        standing.fleet.allocation = saved.allocation
        return replace(standing, rule_state=saved.server)

    @classmethod
    def from_books(cls, terms: Terms, books: Books, source: object) -> "Standing":
        """Restore from ``to_books``, read from a file, on the same terms."""
        with reading(source, REMEDY):
            ledger = Ledger.from_record(books.control["ledger"], books.accounts)
        standing = cls._resumed(terms, books.control, ledger, books.roster, source)
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

    @classmethod
    def _resumed(
        cls,
        terms: Terms,
        record: Mapping[str, Any],
        ledger: Ledger,
        roster: Roster,
        source: object,
    ) -> "Standing":
        with reading(source, REMEDY):  # a mistake in the user's own policy or feed is not damage
            saved_terms = current_terms(record["terms"])
            if "spend_ahead" not in record["terms"] or "keeps_spend_ahead" in saved_terms:
                saved_terms["keeps_spend_ahead"] = True
                ahead = saved_terms["spend_ahead"]
                terms = replace(terms, spend_ahead=ahead, keeps_spend_ahead=True)
        check_terms(saved_terms, terms.fixed())
        with reading(source, REMEDY):
            at = Progress.from_record(record)
        return cls(terms, at, ledger, Fleet(terms, ledger, roster))
