"""The configuration of an experiment, read from a TOML file."""

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)

from experiments.tool.ranking import check_ranking, ranking_name
from tidegate._internal.capacities import capacity_groups
from tidegate._internal.saving import read_toml
from tidegate._internal.suggestion import suggestion
from tidegate.errors import ConfigurationError
from tidegate.policies import ControlOptions, JointPolicy
from tidegate.policies.presets import EXPERIMENTS, PRESETS, find_policy, make_policy
from tidegate.prices import PriceLaw, RecordedPrices, price_law, price_text
from tidegate.problem import MOST_ROUNDS, LearningConstants, Problem
from tidegate.problem.delays import Delays, delay_text
from tidegate.selection import Selection

CONSTANTS = LearningConstants()


def _checked_delay(text: str) -> str:
    """Return the text if it is a valid delay."""
    Delays.read(text)
    return text


class PolicyChoice(BaseModel):
    """One policy of an experiment, and how it is set up."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    """As in ``tidegate.policies.POLICIES``."""
    label: Annotated[str, Field(pattern=r"^[\w.-]*$")] = ""
    """Its name in tables, figures and folders; name and preset by default."""
    preset: str = "as_printed"
    headroom: Annotated[float, Field(ge=1)] = 1.0
    """Slots that clients have for each planned slot; 1 makes capacity a hard limit."""
    match_spending: bool = False
    """Give the policy the budget with which it spends C a round on average over the seeds; K stays
    as planned for C."""
    spend_ahead: Annotated[float, Field(ge=0, le=MOST_ROUNDS)] | None = None
    """s, the rounds whose budget may be spent ahead; no limit by default, as in the paper."""
    most_uses: Annotated[int, Field(ge=1)] | None = None
    """U, the most rounds in which a sample trains; no cap by default."""
    ranking: Annotated[str, AfterValidator(check_ranking)] = ""
    """How clients rank candidates (``experiments.tool.ranking``); empty for samples as they
    come."""
    candidates: Annotated[int, Field(ge=1)] = Selection.candidates
    """New candidates that a client reads for each order, with a ranking."""
    backlog: Annotated[int, Field(ge=0)] = Selection.backlog
    """The most candidates that wait on a client, with a ranking."""
    random_share: Annotated[float, Field(ge=0, le=1)] = 0.0
    group: bool = False
    """Whether what leaves depends on how many samples of its label are stored."""
    train_on: Annotated[int, Field(ge=0)] = 0
    """The most samples that a client trains on in a round; 0 for all that it stores."""

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        find_policy(name)
        return name

    @model_validator(mode="after")
    def _named(self) -> Self:
        if self.preset not in PRESETS:
            raise ConfigurationError(
                f"unknown preset {self.preset!r}; choose from {', '.join(PRESETS)}"
            )
        if not self.label:
            suffix = "" if self.preset == "as_printed" else f"-{self.preset}"
            suffix += f"-{ranking_name(self.ranking)}" if self.ranking else ""
            suffix += "-group" if self.group else ""
            object.__setattr__(self, "label", self.name + suffix)
        return self

    def make(self, problem: Problem, retention_horizon: int | None = None) -> JointPolicy[Any]:
        """Return the policy for a problem, with the planned or the given K."""
        options = ControlOptions(
            retention_horizon=retention_horizon,
            hard_capacity=self.headroom == 1,
            spend_ahead=self.spend_ahead,
            most_uses=self.most_uses,
        )
        return make_policy(self.name, problem, options, preset=self.preset)

    def fixed_horizon(self, problem: Problem) -> int | None:
        """Return the planned K of a problem, to keep while a budget is fitted.

        K is a whole number: with a slightly larger budget the plan may keep samples for one round
        less, and leave part of the memory empty.

        Returns:
            K; None if the budget is not fitted, the policy has no K, or its preset sets K.

        >>> problem = Problem(buffer_capacities=[100], budget=55, mean_price=5.5, num_rounds=100)
        >>> PolicyChoice(name="constant_admission", match_spending=True).fixed_horizon(problem)
        10
        """
        if not self.match_spending or "retention_horizon" in PRESETS[self.preset].get(
            self.name, {}
        ):
            return None
        retention = self.make(problem).retention
        return retention.for_client(0, problem.num_clients)[1] or None


class ExperimentConfig(BaseModel):
    """Policies x seeds on one learning task."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str
    data: str
    """A folder that ``python -m experiments data`` wrote, or a data set of the hub."""
    input_column: str = "image"
    label_column: str = "label"
    test_split: str = "test"
    test_inputs: int = Field(0, ge=0)
    """The number of test inputs to evaluate on; 0 for all."""
    judge_every: int = Field(1, ge=1)
    """Rounds between two evaluations; the last round is always evaluated."""
    partition: str = "classes:2"
    stream: Literal["shuffled", "in order"] = "shuffled"
    """Whether clients read samples in an order drawn from the seed, or in stored order."""
    pool: int = Field(0, ge=0)
    """The first so many samples of each client, read again in a new order whenever all were read; 0
    for every sample once."""
    wrong_labels: float = Field(0.0, ge=0, lt=1)
    """The share of training samples whose label is another class, drawn from the seed."""
    long_tail: float = Field(1.0, ge=1)
    """How many times rarer the last class is in the training data than the first; each class
    between them is rarer than the one before by the same factor. 1 keeps all samples."""
    model: str
    width: int = Field(0, ge=0)
    """Channels of the model's first layer; 0 for the model's default."""
    learning_rate: float = Field(gt=0)
    momentum: float = Field(0.0, ge=0, lt=1)
    local_steps: int = Field(10, ge=1)
    capacities: tuple[int, ...] = EXPERIMENTS["mnist"].buffer_capacities
    """One number a client, as a list or as a text as on the command line."""
    importance: tuple[Annotated[float, Field(ge=0)], ...] = ()
    """α_m, one number a client; all alike by default."""
    budget: float = Field(EXPERIMENTS["mnist"].budget, gt=0)
    price: Annotated[str, BeforeValidator(price_text)] = EXPERIMENTS["mnist"].price_text
    """As on the command line. Seed s takes the s-th stretch of T prices of a recorded trace."""
    delay: Annotated[str, BeforeValidator(delay_text), AfterValidator(_checked_delay)] = "0"
    """Rounds from the purchase of a sample to its first training, as on the command line."""
    rounds: int = Field(100, ge=1)
    seeds: int = Field(10, ge=1)
    first_seed: int = Field(0, ge=0)
    targets: tuple[float, ...] = ()
    """Accuracies whose first round is reported."""
    domain_diameter: float = Field(CONSTANTS.domain_diameter, gt=0)
    gradient_noise: float = Field(CONSTANTS.gradient_noise, gt=0)
    loss_bound: float = Field(CONSTANTS.loss_bound, gt=0)
    pseudo_dimension: float = Field(CONSTANTS.pseudo_dimension, gt=0)
    policies: tuple[PolicyChoice, ...] = Field(min_length=1)

    @field_validator("capacities", mode="before")
    @classmethod
    def _sizes(cls, given: object) -> object:
        """Return one size a client, also from a text such as 40x10,5x2."""
        if not isinstance(given, str):
            return given
        return tuple(size for size, count in capacity_groups(given) for _ in range(count))

    @classmethod
    def read(cls, file: Path, changes: Mapping[str, Any] | None = None) -> Self:
        """Read an experiment from a TOML file, and change some values.

        Args:
            file: the file; paths in it are relative to the current folder.
            changes: values by key, in place of the file's.
        """
        values = {**read_toml(file), **(changes or {})}
        _check_names(f"{file}: an experiment", values, cls)
        policies = values.get("policies", ())
        for policy in policies if isinstance(policies, list) else ():
            if isinstance(policy, Mapping):
                _check_names(f"{file}: a policy", policy, PolicyChoice)
        return cls.model_validate(values)

    @model_validator(mode="after")
    def _distinct_labels(self) -> Self:
        labels = [policy.label for policy in self.policies]
        for label in labels:
            if labels.count(label) > 1:
                raise ConfigurationError(f"two policies are labelled {label!r}; give each a label")
        return self

    @model_validator(mode="after")
    def _importance_of_all(self) -> Self:
        clients = len(self.capacities)
        if self.importance and (len(self.importance) != clients or not any(self.importance)):
            raise ConfigurationError(
                f"importance must have one number for each of the {clients} clients, and not only "
                f"zeros, got {list(self.importance)}"
            )
        return self

    @property
    def all_seeds(self) -> range:
        """The seeds of the experiment."""
        return range(self.first_seed, self.first_seed + self.seeds)

    @property
    def learning(self) -> LearningConstants:
        """The constants of the bound."""
        return constants_of(self)

    def problem(self, seed: int, budget: float | None = None) -> Problem:
        """Return the control problem of one seed."""
        return Problem(
            buffer_capacities=self.capacities,
            budget=self.budget if budget is None else budget,
            mean_price=self.prices(seed).mean(self.rounds),
            num_rounds=self.rounds,
            delays=Delays.read(self.delay),
            learning=self.learning,
        )

    def prices(self, seed: int) -> PriceLaw:
        """Return the price law of one seed."""
        return stretch(self.price, seed, self.rounds)


def _check_names(whose: str, values: Mapping[str, Any], model: type[BaseModel]) -> None:
    """Refuse an unknown key, and suggest a similar one."""
    for name in values:
        if name not in model.model_fields:
            known = ", ".join(model.model_fields)
            hint = suggestion(name, model.model_fields, otherwise=f"there are {known}")
            raise ConfigurationError(f"{whose} has no {name!r}; {hint}")


def constants_of(holder: object) -> LearningConstants:
    """Return the constants of the bound among an object's attributes; defaults for the others."""
    names = (field.name for field in dataclasses.fields(LearningConstants))
    return LearningConstants(**{n: getattr(holder, n) for n in names if hasattr(holder, n)})


@functools.lru_cache(maxsize=64)
def stretch(text: str, seed: int, rounds: int) -> PriceLaw:
    """Return a price law; for a recorded trace, its ``seed``-th stretch of ``rounds`` prices."""
    law = price_law(text)
    if not isinstance(law, RecordedPrices):
        return law
    first = seed * rounds
    if first + rounds > len(law):
        raise ConfigurationError(
            f"the trace {text!r} has {len(law)} prices, but seed {seed} needs those from "
            f"{first + 1} to {first + rounds}; use a longer trace, fewer seeds or fewer rounds"
        )
    return RecordedPrices(law.values[first : first + rounds])
