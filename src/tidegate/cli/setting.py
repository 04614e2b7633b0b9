"""A control problem from an experiment's name, a TOML file and flags, in that order."""

import functools
import inspect
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
import typer
from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic_core import PydanticUndefined

from tidegate.policies import ControlOptions
from tidegate.presets import EXPERIMENTS
from tidegate.prices import PriceLaw, RecordedPrices, price_law
from tidegate.problem import LearningConstants, Problem


class Setting(BaseModel):
    """One control problem; every field is a flag and a key of the TOML file."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    capacities: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        description="Samples that each client's memory holds: 8,9,10 or 10x1000 (1,000 clients "
        "with 10 each), or a mixture.",
        min_length=1,
    )
    budget: float = Field(gt=0, description="What may be spent in a round, in the long run.")
    price: str = Field(
        description="Price of a sample: constant:P, uniform:LOWEST,HIGHEST, "
        "markov:LOW,HIGH,STAY_LOW,STAY_HIGH or trace:FILE.csv:COLUMN."
    )
    price_per_client: bool = Field(
        False,
        description="Draw a price for each client instead of one for all; a trace then needs one "
        "column a client (trace:FILE.csv:A,B,...).",
    )
    rounds: int = Field(1000, ge=1, description="Number of rounds, T.")
    gamma: float = Field(
        0.5, gt=0, lt=1, description="V = T^gamma: more weight on learning, less on debt."
    )
    phi: float = Field(
        0.5, gt=0, lt=1, description="rho = 1 - T^-phi: keeps the admission interval open longer."
    )
    hard_capacity: bool = Field(
        False,
        description="Never store more than a client's capacity; the paper limits the average only.",
    )
    domain_diameter: float = Field(1.0, gt=0, description="D of the bound.")
    gradient_noise: float = Field(1.0, gt=0, description="sigma of the bound.")
    loss_bound: float = Field(1.0, gt=0, description="B of the bound: losses lie in [0, B].")
    learning_rate: float = Field(0.5, gt=0, description="eta of the bound.")
    pseudo_dimension: float = Field(100.0, gt=0, description="Pdim of the bound.")

    @field_validator("capacities", mode="before")
    @classmethod
    def _expand(cls, given: object) -> object:
        """8,9,10x3 -> (8, 9, 10, 10, 10)."""
        if not isinstance(given, str):
            return given
        expanded: list[int] = []
        for part in given.split(","):
            size, _, count = part.strip().partition("x")
            if not (size.isdecimal() and (count or "1").isdecimal()):
                raise ValueError(f"{part!r} is no capacity; write 8,9,10 or 10x1000")
            expanded += [int(size)] * int(count or "1")
        return expanded

    @classmethod
    def resolve(cls, experiment: str, file: Path | None, flags: dict[str, object]) -> Self:
        """The experiment's values, then the file's, then the flags that were given."""
        if experiment not in EXPERIMENTS:
            known = ", ".join(EXPERIMENTS)
            raise ValueError(f"unknown experiment {experiment!r}; choose from {known}")
        chosen = EXPERIMENTS[experiment]
        values: dict[str, object] = {
            "capacities": chosen.buffer_capacities,
            "budget": chosen.budget,
            "price": chosen.price_text,
            "learning_rate": chosen.learning_rate,
        }
        if file is not None:
            try:
                values |= tomllib.loads(file.read_text(encoding="utf-8"))
            except tomllib.TOMLDecodeError as wrong:
                raise ValueError(f"{file} is not TOML: {wrong}") from None
        values |= {name: value for name, value in flags.items() if value is not None}
        return cls.model_validate(values)

    @functools.cached_property
    def price_law(self) -> PriceLaw:
        """The law that ``price`` names."""
        return price_law(self.price)

    def seeds(self, wanted: int) -> range:
        """The seeds to run: a recorded price path is the same for all of them, so one will do."""
        return range(1 if isinstance(self.price_law, RecordedPrices) else wanted)

    @functools.cached_property
    def problem(self) -> Problem:
        """The control problem."""
        mean = self.price_law.mean(self.rounds)
        if not np.any(mean):
            raise ValueError(f"prices {self.price!r} are all 0: nothing needs to be decided")
        return Problem(
            buffer_capacities=self.capacities,
            budget=self.budget,
            mean_price=mean,
            num_rounds=self.rounds,
            learning=LearningConstants(
                domain_diameter=self.domain_diameter,
                gradient_noise=self.gradient_noise,
                loss_bound=self.loss_bound,
                learning_rate=self.learning_rate,
                pseudo_dimension=self.pseudo_dimension,
            ),
        )

    @property
    def options(self) -> ControlOptions:
        """γ, φ and hard capacity."""
        return ControlOptions(
            penalty_exponent=self.gamma,
            contraction_exponent=self.phi,
            hard_capacity=self.hard_capacity,
        )


def with_setting(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command one flag for each field of ``Setting``, and hand it the setting.

    The command takes the setting as its first argument and has parameters of its own besides.
    """
    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]

    @functools.wraps(command)
    def wrapped(*, experiment: str, problem: Path | None, **given: Any) -> None:
        flags = {name: given.pop(name) for name in Setting.model_fields}
        command(Setting.resolve(experiment, problem, flags), **given)

    where = "The problem"
    names = ", ".join(EXPERIMENTS)
    shared = [
        _flag("experiment", str, "mnist", f"Start from a setting of the paper: {names}.", where),
        _flag("problem", Path | None, None, "TOML file with these settings; flags win.", where),
    ]
    for name, entry in Setting.model_fields.items():
        kind = _kind(entry.annotation)
        shown = "" if entry.default in (PydanticUndefined, False) else f" Default: {entry.default}."
        shared.append(_flag(name, kind, None, f"{entry.description}{shown}", where))
    keyword_only = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in [*own, *shared]]
    wrapped.__signature__ = inspect.Signature(keyword_only)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {one.name: one.annotation for one in keyword_only}
    return wrapped


def _kind(annotation: object) -> Any:
    plain: dict[object, Any] = {float: float | None, int: int | None, bool: bool | None}
    return plain.get(annotation, str | None)


def _flag(name: str, kind: Any, default: object, text: str, panel: str) -> inspect.Parameter:
    spelled = name.replace("_", "-")
    option = typer.Option(
        f"--{spelled}/--no-{spelled}" if kind == bool | None else f"--{spelled}",
        help=text,
        rich_help_panel=panel,
        show_default=bool(default),
    )
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind, option],
    )
