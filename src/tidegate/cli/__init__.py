"""The command line: each command parses, calls and prints."""

import reprlib
import sys
from typing import TYPE_CHECKING, Any

from tidegate.errors import SupplierError, TidegateError

if TYPE_CHECKING:
    import typer


def main(arguments: list[str] | None = None) -> None:
    """Run ``tidegate``."""
    from tidegate.cli.app import app  # noqa: PLC0415 - loaded only where the command runs

    run_commands(app, "tidegate", arguments)


def run_commands(app: "typer.Typer", name: str, arguments: list[str] | None) -> None:
    """Run a program's command; a user's mistake ends with one line and exit code 2.

    Other exceptions, and those of the user's own code, show their traceback.
    """
    try:
        app(args=arguments, prog_name=name)
    except (OSError, TidegateError, ValueError) as error:
        lines = _lines(error)
        if not lines:
            raise
    from rich.console import Console  # noqa: PLC0415 - loaded only where there is a mistake

    for line in lines:
        Console(stderr=True).print(f"{name}: {line}", style="red", markup=False, soft_wrap=True)
    sys.exit(2)


def _lines(error: Exception) -> list[str]:
    """Return what to say of a user's mistake; nothing of an exception that shows its traceback."""
    if isinstance(error, SupplierError) and error.__cause__ is not None:
        return []  # a user's feed or supplier raised
    if isinstance(error, TidegateError):
        return [str(error)]
    if isinstance(error, OSError):
        return [f"{error.filename}: {error.strerror}" if error.filename else str(error)]
    from pydantic import ValidationError  # noqa: PLC0415 - takes long to load

    if isinstance(error, ValidationError):
        return [_mistake(dict(mistake)) for mistake in _causes(error.errors())]
    return []


def _mistake(details: dict[str, object]) -> str:
    """Return one line for a value that a setting refuses."""
    where = ".".join(str(part) for part in details["loc"])  # type: ignore[attr-defined]
    reason = str(details["msg"]).removeprefix("Value error, ").replace("Input should", "it should")
    if details["type"] == "missing":
        return f"{where} is missing"
    return f"{where} = {reprlib.repr(details['input'])}: {reason}" if where else reason


def _causes(mistakes: list[Any]) -> list[Any]:
    """Leave out errors about a list that only repeat errors about its items."""
    parts = {mistake["loc"][:1] for mistake in mistakes if len(mistake["loc"]) > 1}
    return [mistake for mistake in mistakes if mistake["loc"] not in parts]
