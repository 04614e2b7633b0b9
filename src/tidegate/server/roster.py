"""Which clients the policy plans for, by number, and for how long each has been offline."""

from collections.abc import Callable, Collection, Iterable, Mapping, Set
from types import MappingProxyType

from tidegate.errors import ConfigurationError

NOBODY: Mapping[str, int] = MappingProxyType({})


class Roster:
    """Clients sorted by name, the same on every engine and in every process.

    A round costs what changes: names are compared as sets, and absences are counted from the last
    time that a client was online.

    Args:
        clients: the clients in the plan, sorted by name.
        away: those of them that were offline the last time, with the last look that found each.
        looks: how many times the server looked who is online; once a round.
    """

    def __init__(
        self, clients: Iterable[str] = (), away: Mapping[str, int] = NOBODY, looks: int = 0
    ) -> None:
        self.places = {client: number for number, client in enumerate(clients)}
        """Clients by name, with their numbers."""
        self.looks = looks
        self._away = dict(away)
        self.moved: dict[str, None] = {}
        """Clients that went offline or came back since this was saved."""
        self.is_replanned = False
        """Whether clients were added or removed since this was saved."""
        self._seen: list[str] | None = None
        """Clients that were online the last time, if all were known and nobody else came. Mostly
        the same names come again, as the same objects: such lists are compared fast."""

    @property
    def absences(self) -> dict[str, int]:
        """Return the rounds since each client was last online."""
        return {one: self.looks - self._away.get(one, self.looks) for one in self.places}

    @property
    def away(self) -> Mapping[str, int]:
        """Clients that were offline the last time, and the last look that found each."""
        return self._away

    def saved(self) -> None:
        """Note that everything is on disk."""
        self.moved, self.is_replanned = {}, False

    def look(self, present: Collection[str], online: Collection[str]) -> set[str]:
        """Note who is online; return those that are not in the plan yet."""
        seen, some, known = list(online), set(present), self.places.keys()
        self.looks += 1
        if seen == self._seen and some <= known and some.isdisjoint(self._away):
            return set()  # the same as last time
        here = {*seen, *some}
        missing = {one for one in known if one not in here}
        for client in self._away.keys() - missing:
            del self._away[client]
            self.moved[client] = None
        for client in sorted(missing - self._away.keys()):
            self._away[client] = self.looks - 1
            self.moved[client] = None
        new = here - known
        self._seen = seen if not new and some <= set(seen) else None
        return new

    def absent_for(self, horizon: Callable[[int], int]) -> set[str]:
        """Return clients that were offline for as many rounds as the horizon of their number."""
        return {
            client
            for client, since in self._away.items()
            if self.looks - since >= horizon(self.places[client])
        }

    def changed(self, new: Set[str], gone: Set[str]) -> list[str] | None:
        """Return the clients to plan for from now on, or None if they are the same.

        If all have left, they stay in the plan until a client joins.
        """
        known = self.places.keys()
        if not (known or new):
            raise ConfigurationError(
                "no client can take part; the log says why each node was left out"
            )
        if len(gone) == len(known) and not new:
            gone = frozenset()
        return sorted((known - gone) | new) if new or gone else None

    def replace(self, clients: list[str]) -> None:
        """Plan for these clients; those that stay keep their absences."""
        others = self.places.keys() ^ set(clients)
        self.is_replanned = True
        self.moved |= dict.fromkeys(self._away.keys() & others)
        self.places = {client: number for number, client in enumerate(clients)}
        self._seen = None
        self._away = {one: since for one, since in self._away.items() if one in self.places}
