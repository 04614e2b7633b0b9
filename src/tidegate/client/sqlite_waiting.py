"""In a buffer's file: candidates that were not paid for yet, and purchases under way."""

from collections.abc import Sequence
from typing import Literal

from tidegate._internal.sqlite_file import transaction
from tidegate.client.sqlite_books import SqliteBooks, names_the_file
from tidegate.client.store import Candidate, Origin, Purchase

ORIGIN = "origins.held_at, origins.subject, origins.secret"


class SqliteWaiting(SqliteBooks):
    """What a buffer's file holds beside the samples that train."""

    @names_the_file
    def candidates(self, *, only_chosen: bool = False) -> list[Candidate]:
        """First those that were chosen, in that order; then those that wait, oldest first."""
        with transaction(self._connection, "DEFERRED"):  # books and rows of one moment
            most = self.books().candidates
            rows = self._connection.execute(
                f"SELECT key, content, choice IS NOT NULL, {ORIGIN} FROM candidates "  # noqa: S608 - columns
                "JOIN candidate_contents USING (number) "
                "JOIN origins ON kind = 'candidate' AND origins.number = candidates.number "
                "WHERE choice IS NOT NULL OR NOT ? "
                "ORDER BY choice IS NULL, choice, candidates.number LIMIT ?",
                (only_chosen, most + 1),
            ).fetchall()
        complete = len(rows) <= most if only_chosen else len(rows) == most
        kinds = all(_kinds(row) == (str, bytes, int, int, str, bytes) for row in rows)
        if not (complete and kinds):
            raise self._damaged(f"holds other candidates than the {most} of its books")
        return [
            Candidate(key, content, bool(chosen), Origin(*origin))
            for key, content, chosen, *origin in rows
        ]

    @names_the_file
    def purchases(self) -> list[Purchase]:
        """What was bought and has not come yet, oldest first."""
        with transaction(self._connection, "DEFERRED"):  # books and rows of one moment
            most = self.books().under_way
            rows = self._connection.execute(
                "SELECT key, price, round_number, bought_in, asked, "
                "purchase_contents.number IS NULL "
                "FROM purchases LEFT JOIN purchase_contents USING (number) "
                "ORDER BY purchases.number LIMIT ?",
                (most + 1,),
            ).fetchall()
        kinds = all(_kinds(row) == (str, float, int, int, int, int) for row in rows)
        if len(rows) != most or not kinds:
            raise self._damaged(f"holds other purchases than the {most} of its books")
        return [
            Purchase(key, price, now, bought_in, bool(asked), bool(is_void))
            for key, price, now, bought_in, asked, is_void in rows
        ]

    @names_the_file
    def purchased(self, key: str) -> Candidate:
        """The sample of a purchase that is under way and not void."""
        row = self._connection.execute(
            f"SELECT content, {ORIGIN} FROM purchases "  # noqa: S608 - columns
            "JOIN purchase_contents USING (number) "
            "JOIN origins ON kind = 'purchase' AND origins.number = purchases.number "
            "WHERE key = ?",
            (key,),
        ).fetchone()
        if row is None or _kinds(row) != (bytes, int, str, bytes):
            raise self._damaged(f"holds no sample for the purchase {key!r}")
        return Candidate(key, row[0], origin=Origin(*row[1:]))

    @names_the_file
    def mark_asked(self, keys: Sequence[str]) -> None:
        """Note that the supplier knows of these purchases."""
        with transaction(self._connection):
            for key in keys:
                self._connection.execute("UPDATE purchases SET asked = 1 WHERE key = ?", (key,))

    def _drop(self, keys: Sequence[str], kind: Literal["candidate", "purchase"]) -> list[str]:
        """Delete candidates or purchases; their content is overwritten. Their marks."""
        marks: list[str] = []
        for key in keys:
            rows = self._connection.execute(f"SELECT number FROM {kind}s WHERE key = ?", (key,))  # noqa: S608 - a word of ours
            for (number,) in rows.fetchall():
                marks += self._keeping.release(kind, number)
                for table in (f"{kind}s", f"{kind}_contents"):
                    self._connection.execute(f"DELETE FROM {table} WHERE number = ?", (number,))  # noqa: S608
        return marks


def _kinds(row: Sequence[object]) -> tuple[type, ...]:
    return tuple(map(type, row))
