"""The first sentences of a run's page: the result, and how certain it is."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tidegate.report.alarms import awaits_first
from tidegate.report.incidents import RESTART, Incident
from tidegate.report.run_state import clock
from tidegate.report.tables import amount
from tidegate.runs.reader import RunView

RECENT = 5
"""The last measurements, which show how much a metric still changes."""


def run_answer(
    view: RunView, told: Mapping[str, Any], now: float, trouble: Sequence[Incident]
) -> str:
    """Return the lead of a run's page: the result, its certainty, the state, and what went wrong.

    Args:
        view: the run; at least one round is settled.
        told: its figures, from ``live.summary``.
        now: seconds since 1970.
        trouble: what went wrong.
    """
    judged = _judged(view)
    of = "" if view.num_rounds is None else f" of {view.num_rounds:,}"
    came_to = [
        *(f"{name} {_digits(values[max(values)])}" for name, values in judged.items()),
        f"{amount(told['spent'])} spent of the {amount(told['allowed'])} that the budget allowed"
        + (f" ({told['spent'] / told['allowed']:.0%})" if told["allowed"] > 0 else ""),
        f"{amount(told['effective_samples'])} effective samples",
    ]
    sentences = [
        f"After round {len(view.rounds):,}{of}: {', '.join(came_to)}.",
        _certainty(judged),
        _trouble(told, trouble),
        (
            f"{view.policy} with a budget of {amount(view.budget)} a round and "
            f"{len(view.clients):,} clients: {told['state']}. This page was written on "
            f"{clock(now)}."
        ),
    ]
    return "\n".join(filter(None, sentences))


def _judged(view: RunView) -> dict[str, Mapping[int, float]]:
    """Return the metrics of the model, accuracies and the server's own first."""
    names = [name for name in view.metrics if not name.startswith("train/")]
    names.sort(key=lambda name: ("accuracy" not in name, not name.startswith("server/")))
    return {name: view.metrics[name] for name in names}


def _certainty(judged: Mapping[str, Mapping[int, float]]) -> str:
    """Return how certain the figures of a single run are."""
    counted = "Money and counts come from receipts, exact to the last sample"
    if not judged:
        return f"{counted}; no metric of the model was measured."
    name, values = next(iter(judged.items()))
    last = [values[number] for number in sorted(values)[-RECENT:]]
    finite = [one for one in last if math.isfinite(one)]
    moved = ""
    if len(finite) > 1:
        low, high = _digits(min(finite)), _digits(max(finite))
        moved = f" In its last {len(finite)} measurements it was between {low} and {high}."
    return f"{counted}; {name} is that of a single run, and other seeds may give another.{moved}"


def _trouble(told: Mapping[str, Any], trouble: Sequence[Incident]) -> str:
    silent = 0 if awaits_first(told) else told["rounds_without_models"]
    now = f"No client's model was used in the last {silent} rounds. " if silent else ""
    if not trouble:
        return now.strip()
    told_of = "; ".join(f"{one.what} ({one.where})" for one in trouble)
    if all(one.mark == RESTART for one in trouble):
        return f"{now}{told_of[0].upper()}{told_of[1:]}."
    return f"{now}Not all went well: {told_of}."


def _digits(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else "not a number"
