"""``Strategy.start`` as Flower 1.43 announced it, for tests on versions that do not have it yet."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest
from flwr.app import ArrayRecord, ConfigRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy


def start(  # noqa: PLR0913, PLR0917 - as many as Flower has
    strategy: Strategy,
    grid: Grid,
    initial_arrays: ArrayRecord,
    num_rounds: int = 3,
    timeout: float = 3600,
    train_config: ConfigRecord | None = None,
    evaluate_config: ConfigRecord | None = None,
    evaluate_fn: Callable[[int, ArrayRecord], Any] | None = None,
    should_stop: Callable[[int, Result], bool] | None = None,
) -> Result:
    """Stop after a completed round if ``should_stop`` says so, with the result up to there."""
    result, arrays = Result(), initial_arrays
    to_train, to_evaluate = train_config or ConfigRecord(), evaluate_config or ConfigRecord()

    def evaluate(number: int) -> None:
        measured = None if evaluate_fn is None else evaluate_fn(number, arrays)
        if measured is not None:
            result.evaluate_metrics_serverapp[number] = measured

    evaluate(0)
    for number in range(1, num_rounds + 1):
        messages = strategy.configure_train(number, arrays, to_train, grid)
        average, metrics = strategy.aggregate_train(
            number, grid.send_and_receive(messages, timeout=timeout)
        )
        if average is not None:
            result.arrays = arrays = average
        if metrics is not None:
            result.train_metrics_clientapp[number] = metrics
        messages = strategy.configure_evaluate(number, arrays, to_evaluate, grid)
        seen = strategy.aggregate_evaluate(number, grid.send_and_receive(messages, timeout=timeout))
        if seen is not None:
            result.evaluate_metrics_clientapp[number] = seen
        evaluate(number)
        if should_stop is not None and should_stop(number, result):
            break
    return result


def has(argument: str) -> bool:
    """Whether the installed Flower's own ``start`` takes this argument."""
    return argument in inspect.signature(Strategy.start).parameters


def give_should_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ``Strategy.start`` take ``should_stop``; the installed Flower's own, if it does."""
    if not has("should_stop"):
        monkeypatch.setattr(Strategy, "start", start)
