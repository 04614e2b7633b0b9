"""``tidegate retire``: take a client out of a run for good."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from tidegate._internal.suggestion import suggestion
from tidegate.cli.running import AsJson
from tidegate.errors import ConfigurationError
from tidegate.runs.reader import RunView, read_run
from tidegate.runs.retirements import ask

MOST_NAMES = 10
"""Clients that an error lists; the others are counted."""


def retire(
    folder: Annotated[Path, typer.Argument(help="The folder that the server saves the run to.")],
    clients: Annotated[
        list[str],
        typer.Argument(metavar="CLIENT...", help="Names, as `tidegate watch` shows them."),
    ],
    *,
    undo: Annotated[
        bool, typer.Option("--undo", help="Let clients that were retired take part again.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Take clients out of a run for good: a phone that broke, a site that left.

    The server no longer waits for them or plans for their slots, and `tidegate watch`, the report,
    Prometheus and the alerts no longer count them as away or as missing an answer. What they spent
    stays in the books. If an order was never answered, the most that it could have cost is booked
    as spent.

    The request is kept in FOLDER/retired.jsonl. A running server applies it when its next round
    begins, and a stopped one when it is started again. Asking twice changes nothing.

    A site that has left:

        tidegate retire run site-3

    The server refuses a node that comes back under the name of a retired client, with one line in
    its log. To let it in again:

        tidegate retire run site-3 --undo
    """
    view = read_run(folder)
    _check_names(view, clients)
    retired = {one.name for one in view.retired}
    changed = [one for one in dict.fromkeys(clients) if (one in retired) == undo]
    if changed:
        ask(folder, changed, retired=not undo)
    if as_json:
        facts = {
            "run": view.run,
            "changed": changed,
            "retired": [one.name for one in read_run(folder).retired],
            "takes_effect": _when(view),
        }
        typer.echo(json.dumps(facts, indent=2))
        return
    for client in dict.fromkeys(clients):
        if client in changed:
            state = "takes part again" if undo else "is retired"
            typer.echo(f"{client} {state} {_when(view)}")
        else:
            typer.echo(f"{client} is {'not retired' if undo else 'retired already'}")


def _when(view: RunView) -> str:
    """Return when the server reads a request."""
    if view.is_played:
        return "if the run is continued: all its rounds are done"
    if view.ending or view.is_gone:
        return "when the server is started again"
    return "from the next round on"


def _check_names(view: RunView, clients: Sequence[str]) -> None:
    """Refuse a name that is not in the run, and list those that are."""
    known = [one.name for one in view.clients]
    for client in clients:
        if client in known:
            continue
        if not known:
            raise ConfigurationError(f"{view.folder} has no clients yet; wait for its first round")
        more = len(known) - MOST_NAMES
        names = ", ".join(known[:MOST_NAMES]) + (f" and {more:,} more" if more > 0 else "")
        meant = suggestion(client, known, otherwise="tidegate watch lists those that are away")
        raise ConfigurationError(f"run {view.run} has no client {client!r}; {meant} ({names})")
