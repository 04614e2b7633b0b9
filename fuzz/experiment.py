"""An experiment's TOML file."""

from unittest.mock import patch

from experiments.tool.config import ExperimentConfig
from fuzz.choices import Choices
from fuzz.limits import empty_folder, may_refuse
from tidegate.problem import problem

FILE = """title = "Small"
data = "data/digits"
partition = "classes:2"
model = "logistic"
learning_rate = 0.1
momentum = 0.5
local_steps = 2
capacities = [8, 9, 10]
budget = 16.5
price = "uniform:1,10"
rounds = 20
seeds = 2
targets = [0.5, 0.9]

[[policies]]
name = "acdpp"

[[policies]]
name = "tide"
label = "tide-4"
headroom = 4.0
spend_ahead = 0.0
"""
LINES = FILE.splitlines()
VALUES = (
    *("nan", "inf", "-inf", "-1", "0", "1e400", "10e307", "1e15", "9" * 25, "9" * 5000, '""', "[]"),
    *("true", "2026-01-01", '"\\u0000"', '"../x"', "[[1]]", "{}", '"' + "a" * 5000 + '"', "[nan]"),
    *('"uniform:0,1e308"', '"constant:1e308"', '"markov:1,2,1,1"', '"trace:x.csv:a"', "[1, -1]"),
    *("[" * 3000, "{a=" * 3000, "a." * 500 + "b = 1", "[99999999999999999999]", "[true]", "'x'"),
)
FEW_ROUNDS = 10_000
"""What the true limit permits is slow, not wrong."""


@patch.object(problem, "MOST_ROUNDS", FEW_ROUNDS)
def target(data: bytes) -> None:
    """Any bytes, or a file in which some values were changed; then the problem that it states."""
    choices = Choices(data)
    if choices.number(1):
        lines = list(LINES)
        for _ in range(choices.number(4)):
            line = choices.number(len(lines) - 1)
            key = lines[line].split(" = ")[0]
            lines[line] = f"{key} = {choices.pick(VALUES)}"
        content = "\n".join(lines).encode()
    else:
        content = choices.rest()
        if b"trace:" in content and b"/" in content:
            return  # a path out of the folder may lead to a device that never ends
    with empty_folder() as folder, may_refuse(ValueError, OSError):
        file = folder / "config.toml"
        file.write_bytes(content)
        experiment = ExperimentConfig.read(file)
        given = experiment.problem(experiment.first_seed)
        for policy in experiment.policies[:2]:
            policy.make(given)


def seeds() -> list[bytes]:
    """The file as it is, and with each value changed."""
    edits = [
        bytes([1, 1, line, value]) for line in range(len(LINES)) for value in range(len(VALUES))
    ]
    return [b"\0" + FILE.encode(), *edits]
