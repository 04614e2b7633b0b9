"""Which clients are planned for, by number, and how long each could not be reached."""

from collections.abc import Callable, Collection, Mapping, Set

from tidegate.errors import ConfigurationError


class Roster:
    """Clients in the order of their names, which is the same on every engine and in every process.

    A round costs what changes: names are compared as sets, and absences are counted from the last
    time that a client was reached.

    Args:
        absences: rounds since each client was last reached.
    """

    def __init__(self, absences: Mapping[str, int] | None = None) -> None:
        self.places = {client: number for number, client in enumerate(absences or {})}
        """Clients by name, with their numbers."""
        self._looks = 0
        """How often it was looked who can be reached; once a round."""
        self._away = {client: -absent for client, absent in (absences or {}).items() if absent}
        """Clients that could not be reached the last time, and the last look that reached each."""
        self._seen: list[str] | None = None
        """Clients that could be reached the last time, if all were known and nobody else came.
        Mostly the same names come again, as the same objects: such lists are compared fast."""

    @property
    def absences(self) -> dict[str, int]:
        """Rounds since each client was last reached."""
        return {one: self._looks - self._away.get(one, self._looks) for one in self.places}

    @property
    def away(self) -> Set[str]:
        """Clients that could not be reached the last time."""
        return self._away.keys()

    def look(self, present: Collection[str], online: Collection[str]) -> set[str]:
        """Note who can be reached; those who were not planned for yet."""
        seen, some, known = list(online), set(present), self.places.keys()
        self._looks += 1
        if seen == self._seen and some <= known and some.isdisjoint(self._away):
            return set()  # as it was the last time
        here = {*seen, *some}
        missing = {one for one in known if one not in here}
        for client in self._away.keys() - missing:
            del self._away[client]
        for client in sorted(missing - self._away.keys()):
            self._away[client] = self._looks - 1
        new = here - known
        self._seen = seen if not new and some <= set(seen) else None
        return new

    def absent_for(self, horizon: Callable[[int], int]) -> set[str]:
        """Clients that were not reached for as many rounds as the horizon of their number."""
        return {
            client
            for client, since in self._away.items()
            if self._looks - since >= horizon(self.places[client])
        }

    def changed(self, new: Set[str], gone: Set[str]) -> list[str] | None:
        """The clients that are planned for from now on, or None if they are the same.

        If everybody has left, they stay in the plan until somebody comes.
        """
        known = self.places.keys()
        if not (known or new):
            raise ConfigurationError(
                "there is no client to order from; the log says why each that was asked is left out"
            )
        if len(gone) == len(known) and not new:
            gone = frozenset()
        return sorted((known - gone) | new) if new or gone else None

    def replace(self, clients: list[str]) -> None:
        """Plan for these; who stays away stays away."""
        self.places = {client: number for number, client in enumerate(clients)}
        self._seen = None
        self._away = {one: since for one, since in self._away.items() if one in self.places}
