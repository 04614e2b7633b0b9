"""What is wrong with a run, and what to do about it.

Red: the operator must act. Yellow: the operator should look. ``alarms.toml`` has the words;
``docs/howto/when-something-is-red.md`` explains each name.
"""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tidegate._internal.words import counted
from tidegate.report.run_state import RunState
from tidegate.report.tables import amount
from tidegate.runs.reader import ClientView, RunView
from tidegate.runs.server_log import how_stopped, last_lines

Level = Literal["green", "yellow", "red"]
"""All is well; somebody should look; somebody must act."""
KINDS: Mapping[str, Mapping[str, Any]] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text("utf-8")
)
"""The table of alarms."""
SERVER_STOPPED = "SERVER STOPPED"
MOST_NAMES = 6
"""The most clients to name; the others are counted."""
ANSWERED = "answered"
"""The state of a client without problems."""
AS_ASKED = "should_stop ended the run"
"""How the line begins that a server logs where the app's own ``should_stop`` ends a run."""
LINES_AT_END = 5
"""Of the log, that may have it."""


@dataclass(frozen=True)
class Alarm:
    """One problem of a run."""

    level: Level
    name: str
    what: str
    """What happened."""
    to_do: str

    @classmethod
    def of(cls, kind: str, **values: object) -> "Alarm":
        """Return an alarm of the table, with its words filled in."""
        row = KINDS[kind]
        what, to_do = (row[part].format_map(values) for part in ("what", "to_do"))
        return cls(row["level"], row["name"], what, to_do)


def alarms(view: RunView, figures: Mapping[str, Any], state: RunState) -> list[Alarm]:
    """Return what is wrong with a run, red before yellow.

    Args:
        view: the run's folder.
        figures: its figures, from ``summary``.
        state: its progress.
    """
    all_alarms = [*_of_server(view, state)]
    if view.rounds:
        all_alarms += _of_rounds(view, figures)
    goes_on = not (view.is_over or state.kind in ("dead", "stopped"))
    all_alarms += _of_clients(view, figures, goes_on=goes_on)
    return sorted(all_alarms, key=lambda alarm: alarm.level != "red")


def worst(shown: Sequence[Alarm]) -> Level:
    """Return the level of the worst alarm; green without any."""
    levels = {alarm.level for alarm in shown}
    return "red" if "red" in levels else "yellow" if "yellow" in levels else "green"


def _of_server(view: RunView, state: RunState) -> Iterator[Alarm]:
    """Yield the alarm about the server: whether it is alive, and the run makes progress."""
    current, done = f"{view.round_number:,}", f"{view.round_number - 1:,}"
    server = "the server is alive and" if view.is_served else "the server, if it is alive,"
    if state.kind == "dead":
        yield Alarm.of("server-dead", round=current)
    elif state.kind == "stopped":
        how = _how_stopped(view)
        yield Alarm.of("server-stopped" if how else "server-failed", how=how, round=done)
    elif state.is_quiet:
        kind = "slow-clients" if state.kind == "answers" else "no-price"
        yield Alarm.of(kind, server=server, round=current)


def _how_stopped(view: RunView) -> str | None:
    """Return how somebody, or the app's own ``should_stop``, ended a run early; else None."""
    lines = last_lines(view.folder, LINES_AT_END) if view.ending == "over" else []
    if any(AS_ASKED in line for line in lines):
        return AS_ASKED
    return how_stopped(view.folder)


def _of_rounds(view: RunView, figures: Mapping[str, Any]) -> Iterator[Alarm]:
    """Yield alarms about the newest rounds."""
    if not figures["certificate_holds"]:
        yield Alarm.of("books-wrong", overspend=amount(figures["overspend"]))
    if _learns_nothing(view, figures):
        failed, error = counted(figures["failed"], "client"), figures["error"]
        yield Alarm.of(
            "all-clients-fail" if figures["failed"] else "nothing-learned",
            rounds=figures["rounds_without_models"],
            clients=failed,
            error=error,
        )
    if figures["buying_paused_for"] and not view.is_over:
        yield Alarm.of("buying-paused", pause=pause_words(figures["buying_paused_for"]))
    lost = [name for name, value in figures["metrics"].items() if value is None]
    if lost:
        yield Alarm.of("model-diverged", metrics=", ".join(lost[:MOST_NAMES]))
    if figures["set_aside"]:
        yield Alarm.of("samples-set-aside", samples=counted(figures["set_aside"], "sample"))
    if figures["spool_dropped"]:
        yield Alarm.of("messages-dropped", messages=counted(figures["spool_dropped"], "message"))
    yield from _of_purchases(view, figures)


def _of_purchases(view: RunView, figures: Mapping[str, Any]) -> Iterator[Alarm]:
    """Yield alarms about clients whose purchases have a problem (``ClientView.troubles``)."""
    clients_that_fail = figures["failed"]  # they cannot buy, and have an alarm of their own
    for trouble, kind, figure, holds in (
        ("short", "clients-buy-less", "exhausted", not view.is_over),
        ("suppliers", "suppliers-fail", "failing_suppliers", True),
        ("spools", "streams-full", "full_spools", True),
        (
            *("empty", "clients-empty", "empty_clients"),
            figures["empty_clients"] > clients_that_fail,
        ),
    ):
        count = figures[figure]
        if not count or not holds:
            continue
        clients = [client.name for client in view.clients if trouble in client.troubles]
        named_all = f" ({few(clients[:MOST_NAMES], count)})" if len(clients) == count else ""
        yield Alarm.of(kind, clients=counted(count, "client"), named=named_all)


def _of_clients(view: RunView, figures: Mapping[str, Any], *, goes_on: bool) -> Iterator[Alarm]:
    """Yield alarms about clients that failed, were left out or are away.

    Args:
        view: the run's folder.
        figures: its figures.
        goes_on: whether the server will send orders.
    """
    away = [client for client in view.away if not client.failed]
    yield from _of_failing(view, figures, goes_on=goes_on)
    if away:
        yield Alarm.of("clients-away", clients=named(away), folder=view.folder)
    known = {client.name for client in view.clients}
    strangers = [name for name in view.left_out if name not in known]
    if strangers and goes_on:
        yield Alarm.of(
            "nodes-left-out",
            nodes=few(strangers[:MOST_NAMES], len(strangers)) + _reasons(view, strangers),
            perhaps_away=". It may be one of the clients that are away" if away else "",
        )


def _of_failing(view: RunView, figures: Mapping[str, Any], *, goes_on: bool) -> Iterator[Alarm]:
    """Yield the alarm about clients that failed, unless another has the reason."""
    failing = [client for client in view.away if client.failed]
    left_out = [client.name for client in failing if client.name in view.left_out]
    if not failing or (view.rounds and _learns_nothing(view, figures) and not left_out):
        return
    had_orders = len(left_out) < len(failing)
    error = f": {figures['error']}" if had_orders else ""
    buys = goes_on and had_orders and not figures.get("buying_paused_for")
    yield Alarm.of(
        "clients-fail-and-buy" if buys else "clients-fail",
        clients=named(failing) + error + _reasons(view, left_out),
    )


def _reasons(view: RunView, names: Sequence[str]) -> str:
    """Return the first reason that is noted for one of these, and for whom if there are more."""
    for name in names:
        if reason := view.left_out[name]:
            return f": {reason}" if len(names) == 1 else f"; {name} because: {reason}"
    return "; server.log has the reasons" if names else ""


def _learns_nothing(view: RunView, figures: Mapping[str, Any]) -> bool:
    """Return whether the newest round used no model, although its clients could train."""
    return bool(view.rounds and figures["rounds_without_models"]) and not awaits_first(figures)


def awaits_first(figures: Mapping[str, Any]) -> bool:
    """Return whether no client can train yet, because all purchases are under way."""
    return bool(figures["under_way"]) and not figures["stored"]


def pause_words(rounds: int) -> str:
    """Return for how long clients buy nothing, in words.

    >>> pause_words(1)
    'clients buy nothing in the next round'
    """
    if rounds == 1:
        return "clients buy nothing in the next round"
    return f"clients buy nothing in the next {rounds:,} rounds, unless a model can be used before"


def named(clients: Sequence[ClientView]) -> str:
    """Return the names of clients, each with its state, and how many more there are."""
    names = [f"{client.name} ({state_of(client)})" for client in clients[:MOST_NAMES]]
    return few(names, len(clients))


def few(names: Sequence[str], count: int) -> str:
    """Return the names of the first of so many clients, and how many more there are.

    >>> few(["site-0", "site-1"], 9)
    'site-0, site-1 and 7 more'
    """
    more = count - len(names)
    return ", ".join(names) + (f" and {more:,} more" if more else "")


def state_of(client: ClientView) -> str:
    """Return the state of a client in a word or two."""
    if client.is_retired:
        return "retired"
    if client.failed:
        return "failed"
    if client.owes_answer:
        return "has not replied"
    if client.away_for is None:
        return "has left"
    if client.away_for:
        return f"away for {client.away_for} round" + "s" * (client.away_for > 1)
    return ANSWERED
