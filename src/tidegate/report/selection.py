"""What the server knows about how clients choose among candidates, in words."""

from collections.abc import Sequence

from tidegate.runs.reader import ClientView


def selection_in_words(clients: Sequence[ClientView]) -> list[str]:
    """Return how many clients choose, among how many candidates, and how many they passed over.

    A client tells the server how many candidates it reads for an order, and how many samples it has
    read from its stream; its ranking and its backlog stay on the client.

    Args:
        clients: all clients of a run.
    """
    choosing = [one for one in clients if one.candidates]
    if not choosing:
        return []
    few, many = (pick(one.candidates for one in choosing) for pick in (min, max))
    among = f"{few:,}" if few == many else f"{few:,} to {many:,}"
    seen = sum(one.read for one in choosing)
    admitted = sum(one.total_admitted for one in choosing)
    told = (
        f"{len(choosing):,} of {len(clients):,} clients choose by a ranking of their own among "
        f"{among} new candidates for each order. They have read {seen:,} samples from their "
        f"streams and admitted {admitted:,}. The server knows neither the ranking nor how many "
        "candidates wait in the backlog; tidegate buffers counts those on each device."
    )
    return [told]
