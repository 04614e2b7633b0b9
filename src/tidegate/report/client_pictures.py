"""Pictures that compare clients: samples bought, and the ages of those they hold."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidegate._internal.words import counted
from tidegate.report.figures import COLOURS
from tidegate.report.page import INK, MakePicture, Picture, new_panel
from tidegate.report.tables import amount
from tidegate.runs.reader import ClientView

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_CLIENTS = 20
"""The most clients in a picture."""
LONGEST = 14
"""Characters of a client's name beside its row."""
LARGEST = 130.0
"""Area of the largest dot, in square points."""


def client_pictures(clients: Sequence[ClientView], picture: MakePicture) -> list[Picture]:
    """Draw one row a client: samples bought so far, and samples held, by age.

    Args:
        clients: the clients in the order of their rows; only the first are drawn.
        picture: makes a picture of a figure.
    """
    shown = clients[:MOST_CLIENTS]
    if not shown:
        return []
    few = f" The first {len(shown)} of {len(clients):,} clients." * (len(clients) > len(shown))
    return [_bought(shown, picture, few), _held(shown, picture, few)]


def _bought(clients: Sequence[ClientView], picture: MakePicture, few: str) -> Picture:
    figure, axes = new_panel("samples bought so far")
    counts = [one.total_admitted for one in clients]
    rows = axes.barh(range(len(clients)), counts, color=COLOURS[0], height=0.7)
    axes.bar_label(rows, [f" {amount(one.total_spent)}" for one in clients], fontsize="small")
    axes.margins(x=0.15)
    _name_rows(axes, clients)
    axes.set_xlabel("samples; beside each bar what they cost")
    told = "; ".join(f"{one.name} {one.total_admitted:,}" for one in clients)
    return picture(figure, f"Samples bought so far, by client: {told}.", few.strip())


def _held(clients: Sequence[ClientView], picture: MakePicture, few: str) -> Picture:
    figure, axes = new_panel("samples held, by age")
    dots = [(age, row, count) for row, one in enumerate(clients) for age, count in one.held]
    most = max((count for _, _, count in dots), default=0)
    if dots:
        rounds, rows, counts = zip(*dots, strict=True)
        sizes = [LARGEST * count / most for count in counts]
        axes.scatter(rounds, rows, s=sizes, color=COLOURS[0], alpha=0.8, edgecolors=INK)
    _name_rows(axes, clients)
    axes.set_xlabel("orders since they were bought")
    axes.locator_params(axis="x", integer=True)
    told = "; ".join(
        f"{one.name} {one.stored:,} of ages {one.held[0][0]:,} to {one.held[-1][0]:,}"
        for one in clients
        if one.held
    )
    caption = f"The largest dot is {counted(most, 'sample')}.{few}"
    return picture(figure, f"Samples held, by client: {told or 'none at all'}.", caption)


def _name_rows(axes: "Axes", clients: Sequence[ClientView]) -> None:
    """Label the rows with client names, the first on top."""
    names = [
        one.name if len(one.name) <= LONGEST else f"{one.name[: LONGEST - 1]}…" for one in clients
    ]
    axes.set_yticks(range(len(names)), names, fontsize="small")
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
