"""A run on one page: what was run, what was spent, what was learned."""

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.report.alarms import awaits_first, state_of
from tidegate.report.figures import COLOURS, STYLES
from tidegate.report.live import SHOWN, newest, summary
from tidegate.report.page import INK, Picture, Rows, Section, drawing, new_panel, write_page
from tidegate.report.run_state import clock
from tidegate.report.spending import spending_in_words
from tidegate.report.tables import amount
from tidegate.runs.reader import ClientView, RunView

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_ROWS = 500
"""Of a table; a longer one says so."""
FEW = 4
"""Points of a curve that are marked."""
MakePicture = Callable[["Figure", str, str], Picture]
Lines = dict[str, tuple[Sequence[float], Sequence[float]]]
"""Where and what, by the name of each line."""

CAVEATS = (
    (
        "Money is what clients' receipts say, each checked against its order. Whether a sample was "
        "worth its price nobody has checked."
    ),
    (
        "Effective samples are what the paper's bound counts: samples that were used unevenly "
        "often count for less, and what was gained falls where old ones are used over and over. "
        "Accuracy need not follow them."
    ),
    (
        "The certificate says that total overspend was at most the cost debt at the end of every "
        "round. It says nothing about what unanswered orders may still turn out to have cost, the "
        "exposure."
    ),
)


def write_run_page(view: RunView, path: Path, now: float, beside: RunView | None = None) -> None:
    """Write the page of a run, over or not.

    Args:
        view: the run.
        path: of the page.
        now: seconds since 1970.
        beside: another run, whose metrics are drawn and listed beside this one's.
    """
    told = summary(view, now)
    with drawing() as picture:
        money, memory = _money(view, picture), _memory(view, picture)
        model = _model(view, beside, picture)
    sections = [
        Section(
            "What was spent",
            spending_in_words(view, told),
            pictures=money,
        ),
        Section(
            "What was stored, and how well it was used",
            [
                (
                    f"{amount(told['mean_stored'])} samples on average and {told['peak_stored']:,} "
                    "at most, of clients that answered; the last round reached "
                    f"{told['slots']:,} slots. {told['effective_per_round']:,.3g} effective "
                    "samples a round."
                )
            ],
            pictures=memory,
        ),
        *([Section("What was learned", pictures=model)] if model else []),
        *([] if beside is None else [Section("Beside another run", tables=[_both(view, beside)])]),
        Section("Clients", tables=[_clients(view.clients)]),
        Section("Round by round", details=[_rounds(view)]),
        Section("Caveats", CAVEATS),
        Section("What was run", details=[_configuration(view), _starts(view)]),
    ]
    write_page(path, f"Run {view.run[:SHOWN]}", _lead(view, told, now), sections)


def _lead(view: RunView, told: dict[str, object], now: float) -> str:
    measured = [
        f"{name} {newest(values):.4g}"
        for name, values in view.metrics.items()
        if not name.startswith("train/")
    ]
    silent = 0 if awaits_first(told) else told["rounds_without_models"]
    trouble = f" Nobody's model was used in the last {silent} rounds." if silent else ""
    last = f" Last measured: {', '.join(measured)}." if measured else ""
    return (
        f"On {clock(now)}: {view.policy} with a budget of {amount(view.budget)} a round and "
        f"{len(view.clients):,} clients: {told['state']}.{trouble}{last}"
    )


def _money(view: RunView, picture: MakePicture) -> list[Picture]:
    numbers = [row.round_number for row in view.rounds]
    spent, paid = 0.0, []
    for row in view.rounds:
        spent += row.spent
        paid.append(spent)
    allowed = [total - row.overspend for total, row in zip(paid, view.rounds, strict=True)]
    return [
        _lines("spent so far", {"spent": (numbers, paid), "budget": (numbers, allowed)}, picture),
        _lines(
            "overspend, and the cost debt that certifies it",
            {
                "overspend": (numbers, [row.overspend for row in view.rounds]),
                "cost debt": (numbers, [row.cost_debt for row in view.rounds]),
            },
            picture,
        ),
        _lines("price of a sample", {"price": (numbers, [r.price for r in view.rounds])}, picture),
        _lines(
            "samples admitted", {"admitted": (numbers, [r.admitted for r in view.rounds])}, picture
        ),
    ]


def _memory(view: RunView, picture: MakePicture) -> list[Picture]:
    numbers = [row.round_number for row in view.rounds]
    stored = [row.training_size for row in view.rounds]
    waiting = [row.under_way for row in view.rounds]
    late: Lines = {"under way": (numbers, waiting)}
    return [
        _lines(
            "samples stored",
            {"stored": (numbers, stored), "slots": (numbers, [row.slots for row in view.rounds])},
            picture,
        ),
        _lines(
            "samples gained so far",
            {
                "effective": (numbers, [row.effective_samples for row in view.rounds]),
                "distinct": (numbers, [row.distinct_samples for row in view.rounds]),
            },
            picture,
        ),
        *([_lines("samples bought that have not come yet", late, picture)] if any(waiting) else []),
    ]


def _model(view: RunView, beside: RunView | None, picture: MakePicture) -> list[Picture]:
    pictures = []
    for name, values in view.metrics.items():
        lines: Lines = {name: (list(values), list(values.values()))}
        other = {} if beside is None else beside.metrics.get(name, {})
        if beside is not None and other:
            lines = {
                view.run[:SHOWN]: lines[name],
                beside.run[:SHOWN]: (list(other), list(other.values())),
            }
        pictures.append(_lines(name, lines, picture))
    return pictures


def _both(view: RunView, beside: RunView) -> Rows:
    """What two runs spent, bought and measured last."""
    rows = []
    for name, values in view.metrics.items():
        if name in beside.metrics:
            pair = newest(values), newest(beside.metrics[name])
            rows.append([name, *(f"{one:.4g}" for one in (*pair, pair[0] - pair[1]))])
    for name in ("spent", "admitted"):
        mine, other = (sum(getattr(row, name) for row in one.rounds) for one in (view, beside))
        rows.append([name, *(amount(one) for one in (mine, other, mine - other))])
    header = ["", view.run[:SHOWN], beside.run[:SHOWN], "difference"]
    caption = "At the end, or so far. These are single runs: a difference may be chance"
    return Rows(caption, header, rows)


def _lines(title: str, lines: Lines, picture: MakePicture) -> Picture:
    """Lines over rounds."""
    figure, axes = new_panel(title)
    for number, (name, (across, values)) in enumerate(lines.items()):
        plain = name in ("budget", "slots")
        axes.plot(
            across,
            values,
            color=INK if plain else COLOURS[number],
            linestyle=STYLES[number],
            linewidth=1.2 if plain else None,
            marker="o" if len(across) < FEW else None,  # a line of one point is not seen
            label=name,
        )
    axes.set_xlabel("round")
    axes.locator_params(axis="x", integer=True)
    if len(lines) > 1:
        figure.legend(loc="outside lower center", ncols=3)
    told = "; ".join(
        f"{name} from {amount(values[0])} to {amount(values[-1])}, at most "
        f"{amount(max(filter(math.isfinite, values), default=math.nan))}"
        for name, (_, values) in lines.items()
    )
    return picture(figure, f"{title} by round: {told}.", "")


def _clients(clients: Sequence[ClientView]) -> Rows:
    rows = [
        [
            client.name,
            *(f"{client.buffer_capacity:,}", f"{client.stored:,}", f"{client.total_admitted:,}"),
            *(f"{amount(client.total_spent)}", f"{client.last_round:,}", state_of(client)),
        ]
        for client in sorted(clients, key=_interest)[:MOST_ROWS]
    ]
    header = ["client", "slots", "stored", "admitted", "spent", "last heard in round", "state"]
    return Rows(_caption("What each client holds and has paid", len(clients)), header, rows)


def _interest(client: ClientView) -> int:
    """Clients that are away or owe something come first, retired ones last."""
    return 2 if client.is_retired else int(state_of(client) == "here")


def _rounds(view: RunView) -> Rows:
    shown = view.rounds[-MOST_ROWS:]
    names = ("price", "admitted", "spent", "overspend", "cost_debt", "training_size", "answered")
    rows = [
        [f"{row.round_number:,}", *(f"{amount(getattr(row, name))}" for name in names)]
        for row in shown
    ]
    caption = _caption("What each round did", len(view.rounds), "last")
    return Rows(caption, ["round", *(name.replace("_", " ") for name in names)], rows)


def _caption(text: str, count: int, which: str = "first") -> str:
    return f"{text} (the {which} {MOST_ROWS} of {count:,})" if count > MOST_ROWS else text


def _configuration(view: RunView) -> Rows:
    settings = {
        "run": view.run,
        "policy": view.policy,
        **view.options,
        "budget": view.budget,
        "rounds": view.num_rounds,
        "mean price, expected": view.mean_price,
        "fraction_train": view.fraction_train,
        "headroom": view.headroom,
        "a shard's budget": view.is_shard,
        **{f"learning: {name}": value for name, value in view.learning.items()},
        "clients": len(view.clients),
    }
    return Rows("Configuration", ["setting", "value"], [[k, str(v)] for k, v in settings.items()])


def _starts(view: RunView) -> Rows:
    rows = [[clock(at), json.dumps(versions)] for at, versions in view.starts]
    return Rows("Starts of the server, and versions", ["when", "versions"], rows)
