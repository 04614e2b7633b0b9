"""The section of a plan's page about the cost of each cap on uses."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tidegate.report.figures import look_of
from tidegate.report.page import INK, Picture, Rows, Section, new_panel
from tidegate.report.tables import show
from tidegate.simulation.caps import CapPoint

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ABOUT = (
    "With a cap on uses (--most-uses U) no sample trains in more than U rounds, whatever prices "
    "do. Tide then replaces samples earlier; where the budget does not pay for that, it lets them "
    "go, and some slots are empty for a while."
)
READING = (
    "Look at both pictures. Effective samples say how evenly samples are used, not how many train "
    "in a round: a cap so low that slots stay empty can gain more of them, from fewer samples."
)


def cap_section(
    caps: Sequence[CapPoint], picture: Callable[["Figure", str, str], Picture]
) -> list[Section]:
    """Return effective and stored samples by cap; empty if no cap was simulated."""
    if not caps:
        return []
    uses = [point.most_uses for point in caps]
    gained = [point.policy.effective_per_round.mean for point in caps]
    stored = [point.policy.mean_occupancy.mean for point in caps]
    limits = [point.limit.effective_per_round for point in caps]
    most_stored = [point.limit.stored_per_round for point in caps]
    panels = (
        ("effective samples a round", gained, limits),
        ("samples stored", stored, most_stored),
    )
    pictures = []
    for title, values, limit in panels:
        figure, axes = new_panel(title)
        colour, style = look_of("tide")
        axes.plot(uses, values, color=colour, linestyle=style, marker="o", label="tide")
        axes.plot(uses, limit, color=INK, linewidth=1, linestyle=(0, (1, 2)), label="limit")
        axes.set_ylim(bottom=0)
        axes.set_xscale("log")
        ticks = [one for one in uses if one.bit_count() == 1]  # powers of two
        axes.set_xticks(ticks, [f"{one:,}" for one in ticks])
        axes.set_xticks([], minor=True)
        axes.set_xlabel("most uses of a sample")
        figure.legend(loc="outside lower center", ncols=2)
        alt = (
            f"{title}, by the cap on uses from {uses[0]:,} to {uses[-1]:,}: tide from "
            f"{values[0]:,.3g} to {values[-1]:,.3g}."
        )
        pictures.append(picture(figure, alt, "From the last cap on, a higher one gains nothing."))
    rows = [
        [
            f"{point.most_uses:,}",
            show(point.policy.spent_per_round),
            show(point.policy.mean_occupancy),
            show(point.policy.effective_per_round),
            f"{point.limit.stored_per_round:,.4g}",
            f"{point.limit.effective_per_round:,.4g}",
        ]
        for point in caps
    ]
    header = ["most uses", "spent", "stored", "effective", "stored at most", "limit"]
    return [
        Section(
            "What a cap on uses costs",
            [ABOUT, READING],
            pictures=pictures,
            details=[Rows("Tide a round, by its cap on uses", header, rows)],
        )
    ]
