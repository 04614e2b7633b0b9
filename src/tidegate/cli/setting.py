"""A control problem from an experiment's name, a TOML file and flags, in that order."""

import functools
import inspect
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from tidegate._internal.capacities import capacity_groups
from tidegate._internal.saving import read_toml
from tidegate._internal.suggestion import suggestion
from tidegate.admission.floor import LEAST_SHARE
from tidegate.cohorts import Cohorts
from tidegate.errors import ConfigurationError
from tidegate.policies import ControlOptions
from tidegate.policies.presets import EXPERIMENTS, find_policy
from tidegate.prices import PriceLaw, RecordedPrices, price_law, price_text
from tidegate.problem import MOST_ROUNDS, LearningConstants, Problem
from tidegate.problem.delays import Delays, delay_text


class Setting(BaseModel):
    """One control problem; every field is a flag and a key of the TOML file."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, strict=True)

    capacities: tuple[tuple[int, int], ...] = Field(
        description="Samples that each client's memory holds: 8,9,10 or 10x1000 (1,000 clients "
        "with 10 each), or a mixture."
    )
    budget: float = Field(
        gt=0, description="What all clients may spend in a round, in the long run."
    )
    price: Annotated[str, BeforeValidator(price_text)] = Field(
        description="Price of a sample: a number, uniform:LOW,HIGH, "
        "markov:LOW,HIGH,P,Q (after LOW again LOW with probability P, after HIGH again HIGH with "
        "Q) or "
        "trace:FILE.csv:COLUMN."
    )
    price_per_client: bool = Field(
        False,
        description="Draw a price for each client instead of one for all; a trace then has one "
        "column for all or one a client (A,B,...).",
    )
    fraction_train: float = Field(
        1.0,
        gt=0,
        le=1,
        description="Part of the clients that train in a round, drawn again in each, as in "
        "Flower's strategies; all by default.",
    )
    least_available: float = Field(
        1.0,
        gt=0,
        le=1,
        description="Each client is online with its own probability, uniform between this and "
        "1; a cohort is drawn from those online.",
    )
    leaving: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Probability, for each client and round, of leaving for good.",
    )
    delay: Annotated[str, BeforeValidator(delay_text)] = Field(
        "0",
        description="Rounds from the purchase of a sample to its first training: a number, or "
        "uniform:SHORTEST,LONGEST. Until then the purchase holds no slot, and the sample that it "
        "will replace trains on.",
    )
    train_on: int | None = Field(
        None,
        ge=1,
        description="Samples that each client trains on in a round, the least used of those that "
        "it stores; all by default.",
    )
    known_ahead: int = Field(
        0,
        ge=0,
        le=MOST_ROUNDS,
        description="Rounds whose prices are known in advance, as electricity prices are a day "
        "ahead. Tide plans with them, the other policies do not.",
    )
    rounds: int = Field(
        1000, ge=1, description="Number of rounds, T. Default: 1000, or the length of a trace."
    )
    gamma: float = Field(
        0.5,
        gt=0,
        lt=1,
        description="V = T^gamma: more weight on learning, less on debt (acdpp and "
        "drift_plus_penalty).",
    )
    phi: float = Field(
        0.5,
        gt=0,
        lt=1,
        description="rho = 1 - T^-phi: keeps the admission interval open longer (acdpp).",
    )
    retention_horizon: int | None = Field(
        None,
        ge=1,
        le=MOST_ROUNDS,
        description="K, rounds that a sample stays, instead of the planned K (not Tide, where "
        "a sample stays until another takes its place).",
    )
    most_uses: int | None = Field(
        None,
        ge=1,
        le=MOST_ROUNDS,
        description="U: no sample trains in more than so many rounds, whatever prices do. Tide "
        "replaces its samples in time, or lets them go; policies with a larger K are left out.",
    )
    as_in_paper: bool = Field(
        False,
        description="Play the paper's game, in which policies spend ahead without limit and memory "
        "is a limit on average only, whatever other settings say.",
    )
    hard_capacity: bool = Field(
        True,
        description="Never store more than a client's capacity, as on a device; by default. Tide "
        "and the costless oracle never do, with or without it.",
    )
    spend_ahead: float | None = Field(
        0.0,
        ge=0,
        le=MOST_ROUNDS,
        description="Rounds whose budget may be spent ahead: spend at most "
        "budget times (t + this) by the end of every round t, as in a Flower run.",
    )
    least_share: float = Field(
        LEAST_SHARE,
        ge=0,
        le=1,
        description="If clients have their own prices: of the money that a client would get "
        "if all were treated alike, the part reserved for it. Only Tide uses it.",
    )
    endless: bool = Field(
        False, description="Plan without a last round; only Tide can, the others need T."
    )
    domain_diameter: float = Field(1.0, gt=0, description="D of the bound.")
    gradient_noise: float = Field(1.0, gt=0, description="sigma of the bound.")
    loss_bound: float = Field(1.0, gt=0, description="B of the bound: losses lie in [0, B].")
    learning_rate: float = Field(0.5, gt=0, description="eta of the bound.")
    pseudo_dimension: float = Field(100.0, gt=0, description="Pdim of the bound.")

    @field_validator("capacities", mode="before")
    @classmethod
    def _expand(cls, given: object) -> tuple[tuple[int, int], ...]:
        """Expand 8,9,10x3 to one client with 8, one with 9 and three with 10."""
        return capacity_groups(given)

    @classmethod
    def resolve(cls, experiment: str, file: Path | None, flags: dict[str, object]) -> Self:
        """Combine the experiment's values, then the file's, then the given flags."""
        given = {} if file is None else _read(file)
        given |= {name: value for name, value in flags.items() if value is not None}
        if experiment not in EXPERIMENTS:
            known = ", ".join(EXPERIMENTS)
            raise ConfigurationError(f"unknown experiment {experiment!r}; choose from {known}")
        if "capacities" in given and "budget" not in given:
            raise ConfigurationError(
                "capacities need a budget: add --budget, what a round may cost"
            )
        for name in set(given) - set(cls.model_fields):
            listed = "`tidegate plan --help` lists them"
            hint = suggestion(name, cls.model_fields, otherwise=listed)
            raise ConfigurationError(f"unknown setting {name}; {hint}")
        if given.get("as_in_paper"):
            given |= {"hard_capacity": False, "spend_ahead": None}
        chosen = EXPERIMENTS[experiment]
        start = {
            "capacities": list(chosen.buffer_capacities),
            "budget": chosen.budget,
            "price": chosen.price_text,
            "learning_rate": chosen.learning_rate,
        }
        setting = cls.model_validate(start | given)
        if "rounds" not in given and isinstance(setting.price_law, RecordedPrices):
            return cls.model_validate(start | given | {"rounds": len(setting.price_law)})
        return setting

    @functools.cached_property
    def price_law(self) -> PriceLaw:
        """The law that ``price`` names."""
        return price_law(self.price)

    @property
    def recorded(self) -> str:
        """The name of the file that prices come from; empty if they are drawn from a law."""
        if not isinstance(self.price_law, RecordedPrices):
            return ""
        return Path(self.price.removeprefix("trace:").rpartition(":")[0]).name

    def seeds(self, wanted: int) -> range:
        """Return the seeds to run; one for a recorded price path, which is always the same."""
        return range(1 if isinstance(self.price_law, RecordedPrices) else wanted)

    @functools.cached_property
    def problem(self) -> Problem:
        """The control problem."""
        self._check_record()
        mean = self.price_law.mean(self.rounds)
        if not np.any(mean):
            raise ConfigurationError(
                f"prices {self.price!r} are all 0, so there is nothing to decide; give prices "
                "above 0"
            )
        sizes, counts = zip(*self.capacities, strict=True)
        return Problem(
            buffer_capacities=np.repeat(np.array(sizes), counts),
            budget=self.budget,
            mean_price=mean,
            num_rounds=self.rounds,
            cohorts=Cohorts(
                fraction_train=self.fraction_train,
                least_available=self.least_available,
                leaving=self.leaving,
            ),
            delays=Delays.read(self.delay),
            train_on=self.train_on,
            known_ahead=self.known_ahead,
            learning=LearningConstants(
                domain_diameter=self.domain_diameter,
                gradient_noise=self.gradient_noise,
                loss_bound=self.loss_bound,
                learning_rate=self.learning_rate,
                pseudo_dimension=self.pseudo_dimension,
            ),
        )

    def _check_record(self) -> None:
        """Refuse a trace that does not fit the run before any work is done."""
        law, clients = self.price_law, sum(count for _, count in self.capacities)
        if not isinstance(law, RecordedPrices):
            return
        if len(law) < self.rounds:
            raise ConfigurationError(
                f"the trace has {len(law)} rounds, but the run has {self.rounds}: add --rounds "
                f"{len(law)}, or add rows to the file"
            )
        if law.num_columns not in (1, clients if self.price_per_client else 1):
            raise ConfigurationError(
                f"the trace has {law.num_columns} columns for {clients} clients; give one column, "
                "or one a client with --price-per-client"
            )

    def constants(self, policy: str) -> dict[str, Any]:
        """Return the exponents that a policy takes: both, one or none of them."""
        given = {"penalty_exponent": self.gamma, "contraction_exponent": self.phi}
        taken = inspect.signature(find_policy(policy)).parameters
        return {name: value for name, value in given.items() if name in taken}

    @property
    def options(self) -> ControlOptions:
        """Return the policies' options."""
        return ControlOptions(
            retention_horizon=self.retention_horizon,
            most_uses=self.most_uses,
            hard_capacity=self.hard_capacity,
            spend_ahead=self.spend_ahead,
            least_share=self.least_share,
            endless=self.endless,
        )


def _read(file: Path) -> dict[str, object]:
    """Read the settings of a TOML file; a trace's path is relative to the file's folder."""
    values = read_toml(file)
    price = values.get("price")
    if isinstance(price, str) and price.startswith("trace:"):
        values["price"] = f"trace:{file.parent / price.removeprefix('trace:')}"
    return values
