"""What is wrong with a run, and what to do about it.

Red: the operator must act. Yellow: the operator should look. Each alarm has a name;
``docs/howto/when-something-is-red.md`` explains it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidegate._internal.words import counted
from tidegate.report.page import Level
from tidegate.report.purchases import told_of_purchases
from tidegate.report.run_state import RunState
from tidegate.report.tables import amount
from tidegate.runs.reader import ClientView, RunView
from tidegate.runs.server_log import how_stopped, last_lines

MOST_NAMES = 6
"""The most clients to name; the others are counted."""
ANSWERED = "answered"
"""The state of a client without problems."""

SERVER_DEAD = "SERVER DEAD"
SERVER_STOPPED = "SERVER STOPPED"
BOOKS_WRONG = "BOOKS WRONG"
NOTHING_LEARNED = "NOTHING LEARNED"
BUYING_PAUSED = "BUYING PAUSED"
MODEL_DIVERGED = "MODEL DIVERGED"
SLOW_CLIENTS = "SLOW CLIENTS"
NO_PRICE = "NO PRICE OR NO NODES"
CLIENTS_AWAY = "CLIENTS AWAY"
CLIENTS_FAIL = "CLIENTS FAIL"
NODES_LEFT_OUT = "NODES LEFT OUT"
SAMPLES_SET_ASIDE = "SAMPLES SET ASIDE"
SUPPLIERS_FAIL = "SUPPLIERS FAIL"
STREAMS_FULL = "STREAMS FULL"
MESSAGES_DROPPED = "MESSAGES DROPPED"
CLIENTS_EMPTY = "CLIENTS EMPTY"
CLIENTS_SHORT = "CLIENTS BUY LESS"
FIX_CLIENTS = (
    "fix this error in the client app or on its device; server.log has a line for each client"
)
STILL_BUYING = ". Until then the server still sends them orders, so they may go on buying samples"
PURCHASES = {
    "suppliers": (SUPPLIERS_FAIL, "check the logs of their SuperNodes; nothing is lost meanwhile"),
    "spools": (STREAMS_FULL, "make the spool larger, or send fewer messages"),
    "dropped": (MESSAGES_DROPPED, "make the spool larger, or send fewer messages"),
    "empty": (
        CLIENTS_EMPTY,
        "check their streams and suppliers; if clients have their own prices, raise least_share",
    ),
}
"""The alarm and the advice for each problem of ``told_of_purchases``."""
COUNTS = {
    "short": "exhausted",
    "suppliers": "failing_suppliers",
    "spools": "full_spools",
    "empty": "empty_clients",
}
"""The figure of a run that counts the clients with each problem of ``ClientView.troubles``."""
AS_ASKED = "should_stop ended the run"
"""How the line begins that a server logs where the app's own ``should_stop`` ends a run."""
LINES_AT_END = 5
"""Of the log, that may have it."""
NAMES = (
    SERVER_DEAD,
    SERVER_STOPPED,
    BOOKS_WRONG,
    NOTHING_LEARNED,
    BUYING_PAUSED,
    MODEL_DIVERGED,
    SLOW_CLIENTS,
    NO_PRICE,
    CLIENTS_AWAY,
    CLIENTS_FAIL,
    NODES_LEFT_OUT,
    SAMPLES_SET_ASIDE,
    CLIENTS_SHORT,
    *(name for name, _ in PURCHASES.values()),
)


@dataclass(frozen=True)
class Alarm:
    """One problem of a run."""

    level: Level
    name: str
    what: str
    """What happened."""
    to_do: str


def alarms(view: RunView, told: Mapping[str, Any], state: RunState) -> list[Alarm]:
    """Return what is wrong with a run, red before yellow.

    Args:
        view: the run's folder.
        told: its figures, from ``summary``.
        state: its progress.
    """
    found = [*_of_server(view, state), *(_of_rounds(view, told) if view.rounds else [])]
    found += _of_clients(view, told, found)
    return sorted(found, key=lambda alarm: alarm.level != "red")


def worst(found: Sequence[Alarm]) -> Level:
    """Return the level of the worst alarm; green without any."""
    levels = {alarm.level for alarm in found}
    return "red" if "red" in levels else "yellow" if "yellow" in levels else "green"


def _of_server(view: RunView, state: RunState) -> list[Alarm]:
    """Return alarms about the server: whether it is alive, and whether the run makes progress."""
    now, again = view.round_number, "start the same run again with this folder"
    if state.kind == "dead":
        what = f"its process ended without a message, in round {now:,}"
        to_do = f"{again}: it continues with round {now:,}, and nothing is paid twice"
        return [Alarm("red", SERVER_DEAD, what, to_do)]
    if state.kind == "stopped" and (how := _how_stopped(view)) is not None:
        what = f"{how}, after round {now - 1:,}"
        return [Alarm("yellow", SERVER_STOPPED, what, f"to go on, {again}")]
    if state.kind == "stopped":
        what = f"the server app ended before its last round, after round {now - 1:,}"
        return [
            Alarm("red", SERVER_STOPPED, what, f"see the log for the reason; fix it, and {again}")
        ]
    if not state.is_quiet:
        return []
    lives = "the server is alive and" if view.is_served else "the server, if it is alive,"
    if state.kind == "answers":
        what = f"{lives} has waited for replies of round {now:,} for much longer than usual"
        to_do = (
            "flwr supernode list shows which nodes are online, and the SuperNodes' logs what "
            "they do; the round ends without late replies after the timeout of start, an hour by "
            "default"
        )
        return [Alarm("yellow", SLOW_CLIENTS, what, to_do)]
    what = f"{lives} waits for the price of round {now:,}, or for enough nodes"
    to_do = (
        "check the price feed, and that enough nodes are online: flwr supernode list. If they are, "
        "look in server.log: it names nodes that the server leaves out or that do not reply"
    )
    return [Alarm("yellow", NO_PRICE, what, to_do)]


def _how_stopped(view: RunView) -> str | None:
    """Return how somebody, or the app's own ``should_stop``, ended a run early; else None."""
    lines = last_lines(view.folder, LINES_AT_END) if view.ending == "over" else []
    if any(AS_ASKED in line for line in lines):
        return AS_ASKED
    return how_stopped(view.folder)


def _of_clients(view: RunView, told: Mapping[str, Any], found: Sequence[Alarm]) -> list[Alarm]:
    """Return alarms about clients that replied with an error, were left out or are away."""
    names = {alarm.name for alarm in found}
    goes_on = not (view.is_over or names & {SERVER_DEAD, SERVER_STOPPED})
    away = [one for one in view.away if not one.failed]
    alarms = _of_failing(view, told, are_told=NOTHING_LEARNED in names, goes_on=goes_on)
    if away:
        to_do = (
            "check that their SuperNodes are running: flwr supernode list. If one is online, "
            "server.log says why it takes no part. If one is gone for good: tidegate retire "
            f"{view.folder} NAME"
        )
        alarms.append(Alarm("yellow", CLIENTS_AWAY, named(away), to_do))
    if goes_on:
        alarms += _of_left_out(view, are_away=bool(away))
    return alarms


def _of_failing(
    view: RunView, told: Mapping[str, Any], *, are_told: bool, goes_on: bool
) -> list[Alarm]:
    """Return the alarm about clients that replied with an error.

    Args:
        view: the run's folder.
        told: its figures.
        are_told: whether another alarm has the reason of those that got an order.
        goes_on: whether the server will send orders.
    """
    failing = [one for one in view.away if one.failed]
    left_out = [one.name for one in failing if one.name in view.left_out]
    if not failing or (are_told and not left_out):
        return []
    what, had_orders = named(failing), len(left_out) < len(failing)
    if had_orders:
        what += f": {told['error']}"
    is_buying = had_orders and not told.get("buying_paused_for")
    to_do = FIX_CLIENTS + STILL_BUYING * (goes_on and is_buying)
    return [Alarm("yellow", CLIENTS_FAIL, what + _reasons(view, left_out), to_do)]


def _of_left_out(view: RunView, *, are_away: bool) -> list[Alarm]:
    """Return the alarm about nodes that the server left out and does not know by name."""
    known = {one.name for one in view.clients}
    others = [one for one in view.left_out if one not in known]
    if not others:
        return []
    what = few(others[:MOST_NAMES], len(others)) + _reasons(view, others)
    to_do = "fix this on the device; the server asks it again by itself"
    to_do += ". It may be one of the clients that are away" * are_away
    return [Alarm("yellow", NODES_LEFT_OUT, what, to_do)]


def _reasons(view: RunView, names: Sequence[str]) -> str:
    """Return the first reason that is noted for one of these, and for whom if there are more."""
    for name in names:
        if reason := view.left_out[name]:
            return f": {reason}" if len(names) == 1 else f"; {name} because: {reason}"
    return "; server.log has the reasons" if names else ""


def _of_rounds(view: RunView, told: Mapping[str, Any]) -> list[Alarm]:
    """Return alarms about the newest rounds."""
    found = list[Alarm]()
    if not told["certificate_holds"]:
        what = (
            f"overspend {amount(told['overspend'])} is above the cost debt, which should be "
            "impossible"
        )
        to_do = "stop the run, keep its folder as it is, and report it"
        found.append(Alarm("red", BOOKS_WRONG, what, to_do))
    if told["rounds_without_models"] and not awaits_first(told):
        what = f"no client's model was used in the last {told['rounds_without_models']} rounds"
        to_do = "see the log for which clients failed, were away, or sent a model that was refused"
        if told["failed"]:
            failed = f"{counted(told['failed'], 'client')} replied with an error"
            what += f": {failed}, the first with {told['error']}"
            to_do = FIX_CLIENTS
        found.append(Alarm("red", NOTHING_LEARNED, what, to_do))
    if told["buying_paused_for"] and not view.is_over:
        what = f"buying is paused: {pause_words(told['buying_paused_for'])}"
        to_do = "fix what keeps models from being used: see the log"
        found.append(Alarm("red", BUYING_PAUSED, what, to_do))
    lost = [name for name, value in told["metrics"].items() if value is None]
    if lost:
        names = ", ".join(lost[:MOST_NAMES])
        to_do = "lower the learning rate, and start a new run in another folder"
        found.append(Alarm("red", MODEL_DIVERGED, f"not finite: {names}", to_do))
    if told["set_aside"]:
        to_do = "fix the stream or the supplier of that client; the others continue"
        words = set_aside_words(told["set_aside"])
        found.append(Alarm("yellow", SAMPLES_SET_ASIDE, words, to_do))
    if told["exhausted"] and not view.is_over:
        what = (
            f"{counted(told['exhausted'], 'client')} bought fewer samples than ordered in the last "
            f"round{_in_brackets(view, 'short', told)}: the stream ran dry, or a supplier failed"
        )
        to_do = (
            "their SuperNodes' logs say which of the two; if their streams have no more data, the "
            "money goes to the other clients or stays unspent"
        )
        found.append(Alarm("yellow", CLIENTS_SHORT, what, to_do))
    for matter, words, well in told_of_purchases(told):
        if not well:
            name, to_do = PURCHASES[matter]
            found.append(Alarm("yellow", name, words + _in_brackets(view, matter, told), to_do))
    return found


def _in_brackets(view: RunView, trouble: str, told: Mapping[str, Any]) -> str:
    """Return the names of clients with a problem of purchases, if they are those of the count."""
    clients = [client for client in view.clients if trouble in client.troubles]
    if trouble not in COUNTS or len(clients) != told[COUNTS[trouble]]:
        return ""
    return f" ({few([client.name for client in clients[:MOST_NAMES]], len(clients))})"


def awaits_first(told: Mapping[str, Any]) -> bool:
    """Return whether no client can train yet, because all purchases are under way."""
    return bool(told["under_way"]) and not told["stored"]


def pause_words(rounds: int) -> str:
    """Return for how long clients buy nothing, in words.

    >>> pause_words(1)
    'clients buy nothing in the next round'
    """
    if rounds == 1:
        return "clients buy nothing in the next round"
    return f"clients buy nothing in the next {rounds:,} rounds, unless a model can be used before"


def set_aside_words(count: int) -> str:
    """Return how many samples were set aside, and where to look, in words.

    >>> set_aside_words(1)
    '1 sample could not be read, acquired or stored; the log names the client'
    """
    return (
        f"{counted(count, 'sample')} could not be read, acquired or stored; the log names "
        f"the client{'s' * (count > 1)}"
    )


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
        return "replied with an error"
    if client.owes_answer:
        return "has not replied"
    if client.away_for is None:
        return "has left"
    if client.away_for:
        return f"away for {client.away_for} round" + "s" * (client.away_for > 1)
    return ANSWERED
