"""One flag of the command line for each setting of a control problem."""

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic_core import PydanticUndefined

from tidegate.cli.setting import Setting
from tidegate.policies.presets import EXPERIMENTS


@dataclass(frozen=True)
class Flags:
    """What somebody gave of a problem, before anything is filled in."""

    experiment: str
    file: Path | None
    given: Mapping[str, object]
    """The flags that were given, by the fields of ``Setting``."""

    def setting(self) -> Setting:
        """Return the problem."""
        return Setting.resolve(self.experiment, self.file, dict(self.given))


def with_setting(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command one flag for each field of ``Setting``.

    The command takes ``Flags`` as its first argument, besides its own parameters.
    """
    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]

    @functools.wraps(command)
    def wrapped(*, experiment: str, problem: Path | None, **given: Any) -> None:
        flags = {name: given.pop(name) for name in Setting.model_fields}
        chosen = {name: value for name, value in flags.items() if value is not None}
        command(Flags(experiment, problem, chosen), **given)

    names = ", ".join(EXPERIMENTS)
    shared = [
        _flag(
            "experiment",
            str,
            "mnist",
            f"Where other settings come from: the paper's {names}.",
        ),
        _flag("problem", Path | None, None, "TOML file with these settings; flags win."),
    ]
    for name, entry in Setting.model_fields.items():
        silent = entry.default in (PydanticUndefined, None) or isinstance(entry.default, bool)
        silent = silent or name == "rounds"
        shown = "" if silent else f" Default: {entry.default}."
        shared.append(_flag(name, _kind(entry.annotation), None, f"{entry.description}{shown}"))
    keyword_only = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in [*own, *shared]]
    wrapped.__signature__ = inspect.Signature(keyword_only)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {one.name: one.annotation for one in keyword_only}
    return wrapped


OPPOSITES = {
    "hard_capacity": "soft-capacity",
    "endless": "with-an-end",
    "price_per_client": "one-price",
    "as_in_paper": "as-in-a-fleet",
}
"""How a flag that a file switches on is switched off again."""


def _kind(annotation: object) -> Any:
    plain: dict[object, Any] = {float: float | None, int: int | None, bool: bool | None}
    optional = (float | None, int | None)
    return plain.get(annotation, annotation if annotation in optional else str | None)


def _flag(name: str, kind: Any, default: object, text: str) -> inspect.Parameter:
    spelled = f"--{name.replace('_', '-')}"
    if name in OPPOSITES:
        spelled += f"/--{OPPOSITES[name]}"
    option = typer.Option(
        spelled, help=text, rich_help_panel="The problem", show_default=bool(default)
    )
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind, option],
    )
