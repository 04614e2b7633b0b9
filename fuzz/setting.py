"""What the command line is given, as flags or in a file."""

from unittest.mock import patch

from fuzz.choices import Choices
from fuzz.limits import empty_folder, may_refuse
from tidegate._internal import capacities
from tidegate.admission.rule import Quote
from tidegate.cli.run import key_and_value
from tidegate.cli.setting import Setting
from tidegate.flower.app import _settings
from tidegate.policies.presets import make_policy
from tidegate.problem import problem

FLAGS = ("capacities", "price", "experiment")
FILE = """capacities = "8,9,10x3"
budget = 16.5
price = "uniform:1,10"
rounds = 50
gamma = 0.4
hard_capacity = true
retention_horizon = 4
"""
FILES = (FILE, 'price = "markov:2,8,0.75,0.5"\nphi = 0.9\n', "capacities = [8, 9]\nbudget = 1e3\n")
APP = '[tool.flwr.app.components]\nserverapp = "quickstart.server_app:app"\n'
FEW_CLIENTS = 10_000
FEW_ROUNDS = 10_000
"""What the true limits permit is slow, not wrong."""


@patch.object(capacities, "MOST_CLIENTS", FEW_CLIENTS)
@patch.object(problem, "MOST_ROUNDS", FEW_ROUNDS)
def target(data: bytes) -> None:
    """A file of settings, one flag's text, a ``--set`` of an app, or an app's own file."""
    choices = Choices(data)
    how = choices.number(7)
    content = choices.rest()
    text = content.decode("utf-8", "replace")
    if "trace:" in text and "/" in text:
        return  # a path out of the folder may lead to a device that never ends
    with empty_folder() as folder, may_refuse(ValueError, OSError):
        file = folder / "pyproject.toml"
        file.write_bytes(content)
        if how == 0:
            key_and_value(text)
        elif how == 1:
            _settings(folder)
        elif how in (2, 3):
            flags: dict[str, object] = {"budget": 5.0, FLAGS[how - 2]: text}
            _use(Setting.resolve("mnist", None, flags))
        else:
            _use(Setting.resolve("mnist", file, {}))


def _use(given: Setting) -> None:
    if given.problem.num_clients > FEW_CLIENTS:
        raise AssertionError("more clients than the limit")
    for name in ("acdpp", "tide"):
        rule = make_policy(name, given.problem, given.options, **given.constants(name)).admission
        quote = Quote(5.0)
        rule.decide(rule.learn(rule.start(), quote), quote, 1e9)


def seeds() -> list[bytes]:
    """Files and flags that people write."""
    pairs = [b"\0rounds=3", b'\0name="x"', b"\0a=[1, 2]", b"\1" + APP.encode()]
    flags = [b"\0028,9,10x1000", b"\002" + b"9" * 30, b"\003uniform:1,10", b"\003constant:5.5"]
    deep = b"\4capacities = " + b"[" * 3000
    return [*pairs, *flags, *(b"\4" + text.encode() for text in FILES), deep]
