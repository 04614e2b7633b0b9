"""The page of a run: settings, spending, memory and metrics."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tidegate.report.alarms import ANSWERED, alarms, state_of, worst
from tidegate.report.client_pictures import client_pictures
from tidegate.report.incidents import RESTART, Incident, incidents, restart_round
from tidegate.report.live import SHOWN, newest, summary
from tidegate.report.over_rounds import Draw, Lines, lines_over_rounds
from tidegate.report.page import Picture, Rows, Section, Verdict, drawing, write_page
from tidegate.report.run_answer import run_answer
from tidegate.report.run_state import clock, run_state
from tidegate.report.selection import selection_in_words
from tidegate.report.spending import spending_in_words
from tidegate.report.tables import amount, without_rounding
from tidegate.runs.reader import ClientView, RunView

MOST_ROWS = 500
"""The most rows of a table; a longer one says so."""

ASSUMED = "assumed by the planner's bound, not read from the app"
CAVEATS = (
    (
        "Money is the sum of the clients' receipts, each checked against its order. Tidegate does "
        "not check whether a sample was worth its price."
    ),
    (
        "The paper's bound depends on effective samples: samples that are used unevenly count for "
        "less, and the number falls if clients use old samples over and over. Accuracy need not "
        "follow it."
    ),
    (
        "The spend certificate does not cover the exposure: what orders without a reply may have "
        "cost."
    ),
)


def write_run_page(view: RunView, path: Path, now: float, beside: RunView | None = None) -> None:
    """Write the page of a run, finished or not.

    Args:
        view: the run.
        path: the file of the page.
        now: seconds since 1970.
        beside: another run, to compare metrics with.
    """
    told, trouble = summary(view, now), incidents(view)
    view = replace(view, rounds=without_rounding(view.rounds))
    with drawing() as picture:
        draw = partial(lines_over_rounds, picture=picture, trouble=trouble)
        money, memory = _money(view, draw), _memory(view, draw)
        model = _model(view, beside, draw)
        clients = client_pictures(sorted(view.clients, key=_interest), picture)
    sections = [
        *_trouble(trouble),
        Section(
            "What was spent",
            spending_in_words(view, told),
            pictures=money,
        ),
        Section(
            "What was stored, and how well it was used",
            [
                (
                    f"The clients that answered a round stored {amount(told['mean_stored'])} "
                    f"samples on average and {told['peak_stored']:,} at most. Those that answered "
                    f"the last round have {told['slots']:,} slots in all. The samples were worth "
                    f"{told['effective_per_round']:,.3g} effective samples a round."
                )
            ],
            pictures=memory,
        ),
        *([Section("What was learned", pictures=model)] if model else []),
        *([] if beside is None else [Section("Beside another run", tables=[_both(view, beside)])]),
        Section(
            "Clients",
            selection_in_words(view.clients),
            pictures=clients,
            tables=[_clients(view.clients)],
        ),
        Section("Round by round", details=[_rounds(view)]),
        Section("Caveats", CAVEATS),
        Section("What was run", details=[_configuration(view), _starts(view)]),
    ]
    lead, verdict = run_answer(view, told, now, trouble), _verdict(view, told, now, trouble)
    write_page(path, f"Run {view.run[:SHOWN]}", lead, sections, verdict)


def _verdict(
    view: RunView, told: Mapping[str, Any], now: float, trouble: Sequence[Incident]
) -> Verdict:
    """Return what is wrong with the run now, and what to do; green if nothing ever was."""
    found = alarms(view, told, run_state(view, now))
    lines = [(f"{one.name}:", f"{one.what}. What to do: {one.to_do}.") for one in found]
    if lines:
        return Verdict(worst(found), lines, [one.level for one in found])
    state = "The run is over" if view.is_over else "Nothing needs attention now"
    if any(one.mark != RESTART for one in trouble):
        return Verdict("yellow", [(f"{state}.", "Not all of its rounds went well: see below.")])
    return Verdict("green", [("All is well.", f"{state}.")])


def _trouble(trouble: Sequence[Incident]) -> list[Section]:
    """Return a list of restarts and of what went wrong, with the letters of the pictures."""
    if not trouble:
        return []
    restarts = all(one.mark == RESTART for one in trouble)
    rows = [[one.mark, one.where, one.what] for one in trouble]
    caption = "The letters stand above these rounds in the pictures"
    table = Rows(caption, ["mark", "when", "what happened"], rows)
    return [Section("Restarts" if restarts else "What went wrong", tables=[table])]


def _money(view: RunView, draw: Draw) -> list[Picture]:
    numbers = [row.round_number for row in view.rounds]
    spent, paid = 0.0, []
    for row in view.rounds:
        spent += row.spent
        paid.append(spent)
    allowed = [total - row.overspend for total, row in zip(paid, view.rounds, strict=True)]
    return [
        draw("spent so far", {"spent": (numbers, paid), "budget": (numbers, allowed)}),
        draw(
            "overspend, and the cost debt that certifies it",
            {
                "overspend": (numbers, [row.overspend for row in view.rounds]),
                "cost debt": (numbers, [row.cost_debt for row in view.rounds]),
            },
        ),
        draw("price of a sample", {"price": (numbers, [r.price for r in view.rounds])}),
        draw("samples admitted", {"admitted": (numbers, [r.admitted for r in view.rounds])}),
    ]


def _memory(view: RunView, draw: Draw) -> list[Picture]:
    numbers = [row.round_number for row in view.rounds]
    stored = [row.training_size for row in view.rounds]
    waiting = [row.under_way for row in view.rounds]
    late: Lines = {"under way": (numbers, waiting)}
    return [
        draw(
            "samples stored",
            {"stored": (numbers, stored), "slots": (numbers, [row.slots for row in view.rounds])},
        ),
        draw(
            "samples gained so far",
            {
                "effective": (numbers, [row.effective_samples for row in view.rounds]),
                "distinct": (numbers, [row.distinct_samples for row in view.rounds]),
            },
        ),
        *([draw("samples bought that have not come yet", late)] if any(waiting) else []),
    ]


def _model(view: RunView, beside: RunView | None, draw: Draw) -> list[Picture]:
    pictures = []
    for name, values in view.metrics.items():
        lines: Lines = {name: (list(values), list(values.values()))}
        other = {} if beside is None else beside.metrics.get(name, {})
        if beside is not None and other:
            mine, theirs = _labels(view, beside)
            lines = {mine: lines[name], theirs: (list(other), list(other.values()))}
        pictures.append(draw(name, lines))
    return pictures


def _labels(view: RunView, beside: RunView) -> tuple[str, str]:
    """Return the names of two runs: their folders, or their run names if these are alike."""
    folders = view.folder.absolute().name, beside.folder.absolute().name
    return folders if len(set(folders)) > 1 else (view.run[:SHOWN], beside.run[:SHOWN])


def _both(view: RunView, beside: RunView) -> Rows:
    """Return what two runs spent, bought and measured last."""
    rows = []
    for name, values in view.metrics.items():
        if name in beside.metrics:
            pair = newest(values), newest(beside.metrics[name])
            rows.append([name, *(f"{one:.4g}" for one in (*pair, pair[0] - pair[1]))])
    for name in ("spent", "admitted"):
        mine, other = (sum(getattr(row, name) for row in one.rounds) for one in (view, beside))
        rows.append([name, *(amount(one) for one in (mine, other, mine - other))])
    header = ["", *_labels(view, beside), "difference"]
    caption = "At the end, or so far. These are single runs: a difference may be chance"
    return Rows(caption, header, rows)


def _clients(clients: Sequence[ClientView]) -> Rows:
    rows = [
        [
            *(client.name, state_of(client)),
            *(f"{client.buffer_capacity:,}", f"{client.stored:,}", f"{client.total_admitted:,}"),
            *(f"{amount(client.total_spent)}", f"{client.last_round:,}"),
        ]
        for client in sorted(clients, key=_interest)[:MOST_ROWS]
    ]
    header = ["client", "state", "slots", "stored", "admitted", "spent", "last heard in round"]
    return Rows(_caption("What each client holds and has paid", len(clients)), header, rows)


def _interest(client: ClientView) -> int:
    """Return a sort key: clients that are away or owe a reply first, retired ones last."""
    return 2 if client.is_retired else int(state_of(client) == ANSWERED)


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
        **{f"{name}, {ASSUMED}": value for name, value in view.learning.items()},
        "clients": len(view.clients),
    }
    return Rows("Configuration", ["setting", "value"], [[k, str(v)] for k, v in settings.items()])


def _starts(view: RunView) -> Rows:
    rows = [
        [clock(at), f"{restart_round(view, at):,}", json.dumps(versions)]
        for at, versions in view.starts
    ]
    header = ["when", "went on with round", "versions"]
    return Rows("Starts of the server, and versions", header, rows)
