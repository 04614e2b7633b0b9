"""``tidegate run``: a Flower app in this process."""

import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer


def run(
    app: Annotated[
        Path, typer.Argument(help="Folder of a Flower app.", show_default="this folder")
    ] = Path(),
    *,
    clients: Annotated[int, typer.Option(min=1, help="Clients in the fleet.")] = 10,
    change: Annotated[
        list[str] | None,
        typer.Option("--set", help="A value of the run-config, as `key=value`; repeatable."),
    ] = None,
) -> None:
    """Run a Flower app in this process: no Ray, no servers, the same app.

    APP is the folder that holds the app's `pyproject.toml`. Clients are function calls, one after
    another, and their buffers live in memory unless the run-config gives a `tidegate-folder`. The
    same seed gives the same orders, receipts and model as `flwr run` does on Flower's Simulation
    and Deployment engines.

    The quickstart, LeNet on MNIST:

        tidegate run examples/quickstart

    Five clients, and a run that the same command resumes:

        tidegate run examples/quickstart --clients 5 --set folder=run --set tidegate-folder=run/b
    """
    try:
        from tidegate.flower.app import run_app  # noqa: PLC0415 - not everyone has Flower
    except ModuleNotFoundError as missing:
        raise ValueError(
            f"{missing.name} is not installed; pip install 'tidegate[flower]'"
        ) from missing
    except ImportError as unsupported:
        raise ValueError(str(unsupported)) from unsupported
    run_app(app, num_clients=clients, changes=dict(map(_pair, change or [])))


def _pair(text: str) -> tuple[str, Any]:
    """``key=value``, where the value is TOML, or else a plain text."""
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise ValueError(f"--set {text!r} must read key=value")
    try:
        return key, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key, value
