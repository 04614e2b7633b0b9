"""All clients in a run's books as a resume needs them: names and places, without accounts."""

import math
from array import array
from typing import Any

from tidegate.wire import LARGEST_CAPACITY


class KnownClients:
    """All clients of a file, by number, without their accounts."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.capacities = array("q")
        self.noted: dict[int, None] = {}
        self.planned: list[int] = []
        """Numbers of the clients in the plan."""
        self.ordered = array("q")
        """Since the plan began."""
        self.owed = array("d")
        """NaN for what it was when the plan began."""

    def add(self, row: tuple[Any, ...], plan: int) -> None:
        """Add the next row of a client."""
        number, client, capacity, is_noted, is_planned, *dealt = row
        if number != len(self.names) or type(client) is not str:
            raise ValueError(f"account {len(self.names)} is missing or has no name")
        if type(capacity) is not int or not 1 <= capacity <= LARGEST_CAPACITY:
            raise ValueError(f"the capacity of {client} is {capacity!r}, which is not possible")
        self.names.append(client)
        self.capacities.append(capacity)
        self.ordered.append(0)
        self.owed.append(math.nan)
        if is_noted:
            self.noted[number] = None
        if is_planned:
            self.planned.append(number)
            self.deal(number, tuple(dealt), plan)

    def deal(self, number: int, dealt: tuple[Any, ...], plan: int) -> None:
        """Note a client's part of the plan, if it is of the present plan."""
        of_plan, ordered, owed = dealt
        if of_plan == plan:
            self.ordered[number], self.owed[number] = ordered, owed
