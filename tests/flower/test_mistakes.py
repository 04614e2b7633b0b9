"""A user's mistake in an app: the message names the place and the remedy, and no code is 0.

Each is played on ``tidegate run``. What can be seen at the start costs nothing.
"""

import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Any

import pytest
from fleet import Fleet

from tidegate.cli import main

pytestmark = pytest.mark.contract  # mods, and what Flower does with an error

APP = Template("""
import numpy as np
from functools import partial
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod, fixedclipping_mod
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import *
from tidegate.flower import *
from tidegate.policies import acdpp
from tidegate.selection import Selection

bought = []
MODEL = ArrayRecord({"w": Array(np.zeros(2))})

def data(context):
    return [np.full(2, float(number)) for number in range(200)]

def buy(sample, key):
    bought.append(key)
    return sample

class Feed:
    def mean(self, num_rounds):
        return 1.0

    def at(self, round_number, clients):
        $prices

def reply(message, arrays=MODEL, **metrics):
    metrics = MetricRecord({"num-examples": 1, **metrics})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

gate = ClientGate(**{"open_stream": data, "buffer_capacity": 10, "acquire": buy, $gate})
client = ClientApp($mods)

@client.train()
def train(message, context):
    $train

$evaluates
def evaluate(message, context):
    $evaluate

server = ServerApp()

@server.main()
def main(grid, context):
    terms = {"strategy": FedAvg(fraction_evaluate=0.0), "policy": "tide", "budget": 55, "prices": 5}
    control = AdmissionControl(**{**terms, $control})
    control.start(grid, **{"initial_arrays": MODEL, "num_rounds": 3, $start})
""")
RIGHT = {
    "prices": "return 1.0",
    "gate": "",
    "mods": "mods=[gate]",
    "train": "gate.samples(context); return reply(message)",
    "evaluates": "@client.evaluate()",
    "evaluate": "return reply(message)",
    "control": "",
    "start": "",
}
PROJECT = """
[project]
name = "mistaken"
version = "1.0.0"
[tool.flwr.app]
publisher = "me"
[tool.flwr.app.components]
serverapp = "{0}:server"
clientapp = "{0}:client"
[tool.flwr.app.config]
rounds = 3
tidegate-folder = ""
"""


@dataclass(frozen=True, kw_only=True)
class Mistake:
    says: str
    """What the command prints, as a pattern."""
    code: int = 2
    """Its exit code: 2 for a refusal, 1 for a run that was of no use, 0 for a warning alone."""
    costs: bool = False
    """Whether only a client that has bought can notice it."""
    raises: bool = False
    """Whether the user's own code raised, so that a traceback is shown."""
    arguments: str = ""
    """Of the command."""
    app: dict[str, str] = field(default_factory=dict)
    """The parts of the app that differ from the right one."""


def gate(parts: str, says: str, code: int = 2, **more: Any) -> Mistake:
    return Mistake(says=says, code=code, app={"gate": parts}, **more)


def terms(parts: str, says: str, code: int = 2, **more: Any) -> Mistake:
    return Mistake(says=says, code=code, app={"control": parts}, **more)


def start(parts: str, says: str, **more: Any) -> Mistake:
    return Mistake(says=says, app={"start": parts}, **more)


def train(body: str, says: str, code: int = 1, **more: Any) -> Mistake:
    return Mistake(says=says, code=code, costs=True, app={"train": body}, **more)


def mods(listed: str, says: str) -> Mistake:
    return Mistake(says=says, app={"mods": listed})


GATE_FIRST = "no client can take part.* put a ClientGate first into the ClientApp's mods"
NO_DATA = "it must return a stream .* or a data set of which each item is one sample"
CAPACITY = "buffer_capacity must be a whole number of at least 1 and at most 100000000, got "
WORTH = "it must return one number for each candidate"
NOTHING = ".* no client's model was used in any of these rounds"
MISTAKES = {
    # The ten that once ended in silence, or in an error that named something else.
    "a clipping mod first": mods("mods=[fixedclipping_mod, gate]", GATE_FIRST),
    "noise first": mods("mods=[LocalDpMod(1.0, 1.0, 1.0, 1e-5), gate]", GATE_FIRST),
    "worth gives rows": gate(
        "'worth': lambda some, m, c: np.zeros((len(some), 2))",
        "worth returned an object of ndarray; it must return one number for each" + NOTHING,
        1,
    ),
    "worth gives nothing": gate("'worth': lambda *_: None", f"worth returned None; {WORTH}", 1),
    "no such key in subject": gate(
        "'subject': lambda sample: {}['patient']", "subject raised KeyError: 'patient'" + NOTHING, 1
    ),
    "a folder in the app": terms(
        "'folder': 'app/run'",
        "saved in app/run: .* inside the app's folder, which `flwr run`",
        0,
        costs=True,
    ),
    "no evaluation": Mistake(
        code=1,
        costs=True,
        app={"control": "'strategy': FedAvg()", "evaluates": ""},
        says="evaluate.* under @app.evaluate.. needs a strategy with fraction_evaluate=0.0"
        ".* 6 of 6 evaluate messages to clients failed",
    ),
    "samples in evaluation": Mistake(
        code=1,
        costs=True,
        app={"control": "'strategy': FedAvg()", "evaluate": "gate.samples(context)"},
        says="this message has no order, .* evaluate on other data of the node",
    ),
    # What a server is given.
    "a budget as text": terms("'budget': '55'", "budget must be a number above 0, got '55'"),
    "a budget below 0": terms("'budget': -1.0", "budget must be a number above 0, got -1.0"),
    "a budget of True": terms("'budget': True", "budget must be a number above 0, got True"),
    "a budget that buys nothing": terms(
        "'budget': 0.001", "a budget of 0.001 a round .* raise the budget" + NOTHING, 1
    ),
    "a negative price": terms("'prices': -5", "price must be 0 or more and at most .*, got -5"),
    "prices of 0": terms("'prices': 0", "prices must be more than 0 on average over 3 rounds"),
    "no price": terms("'prices': None", "prices must be a number, a text.* got None"),
    "a misspelt law": terms("'prices': 'unifrom:1,9'", "unknown price law 'unifrom'; choose"),
    "a price that no receipt could hold": terms(
        "'prices': 1e16", "must be 0 or more and at most 1e"
    ),
    "more money than a receipt holds": terms(
        "'budget': 1e15, 'prices': 1e15", "a budget of 1e.15 in each of 3 rounds is more than"
    ),
    "a dear feed": terms("'prices': 1e15", "a sample costs 1e.15 on average: .* raise the bud", 1),
    "a feed that knows nobody": Mistake(
        app={"control": "'prices': Feed()", "prices": "return {'another': 1.0}"},
        says="the price feed has no price for 'partition-0', 'partition-1' in round 1",
    ),
    "a policy in capitals": terms("'policy': 'Tide'", "unknown policy 'Tide'; did you mean tide"),
    "no policy": terms("'policy': None", "policy must be a function of a problem and options, got"),
    "a policy of nothing": terms(
        "'policy': lambda problem, options: None", "result of policy must be a JointPolicy, got N"
    ),
    "a policy without a name": terms(
        "'policy': lambda problem, options: None, 'folder': 'run'", "a lambda has none; use a named"
    ),
    "a class of strategies": terms(
        "'strategy': FedAvg", "strategy must be a Strategy, got <class .*; such as FedAvg()"
    ),
    "spending ahead as text": terms("'spend_ahead': '1'", "spend_ahead must be 0 or more and at"),
    "a folder of 5": terms("'folder': 5", "folder must be a path, such as 'run', got 5"),
    "a folder without a name": terms(
        "'folder': ''", "folder must be a path, such as 'run', got ''"
    ),
    "a folder nowhere": terms(
        "'folder': '/proc/x'", "folder='/proc/x' cannot be created .*; choose"
    ),
    "a folder that is a file": terms(
        "'folder': 'app/pyproject.toml'", "pyproject.toml' is a file; give a folder"
    ),
    "settings in a dictionary": terms(
        "'planning': {'headroom': 4}", "planning must be a Planning, got .'headroom': 4.; such as P"
    ),
    "importance of a stranger": terms(
        "'trust': ClientTrust(importance={'site-0': 2.0})",
        r"not in this run: \['site-0'\]; check",
        0,
        costs=True,
    ),
    "a sink that is no sink": terms("'sinks': [5]", r"5 has no decided\(\)"),
    "a misspelt sink": terms("'sinks': ['promteheus']", "'promteheus' .*; did you mean prometheus"),
    "one sink, not a list": terms(
        "'sinks': 'prometheus'", "sinks must be a list, got 'prometheus'"
    ),
    "a class of sinks": terms("'sinks': [FedAvg]", "FedAvg'> is a class; pass an instance"),
    "more uses than the cap": terms(
        "'policy': partial(acdpp), 'planning': Planning(retention_horizon=3, most_uses=2)",
        "most_uses",
    ),
    "nobody trains": terms(
        "'strategy': FedAvg(fraction_train=0.0)", "FedAvg has fraction_train = 0.0, so no node tr"
    ),
    "too few nodes": terms(
        "'strategy': FedAvg(min_available_nodes=5)", "min_available_nodes = 5 nodes, .* --clients 5"
    ),
    # What it is started with.
    "no rounds": start("'num_rounds': 0", "num_rounds must be a whole number of at least 1, got 0"),
    "rounds as text": start("'num_rounds': '3'", "num_rounds must be a whole .*, got '3'"),
    "half a round": start("'num_rounds': 2.5", "num_rounds must be a whole .*, got 2.5"),
    "a list for a model": start(
        "'initial_arrays': [np.zeros(2)]", "initial_arrays must be a ArrayRecord, got .* such as"
    ),
    "a model of NaN": start(
        "'initial_arrays': ArrayRecord({'w': Array(np.full(2, np.nan))})",
        "cannot train the initial model: its array 'w' has numbers that are not finite",
    ),
    "a model of integers": Mistake(
        app={
            "control": "'strategy': QFedAvg(client_learning_rate=0.1)",
            "start": "'initial_arrays': ArrayRecord({'w': Array(np.zeros(2, int))})",
        },
        says="QFedAvg only works with floats, but the model's array 'w' is int64",
    ),
    "a misspelt argument": start(
        "'evaluate_func': None", "start.. has no argument 'evaluate_func'"
    ),
    "an evaluation of the server's that gives a number": start(
        "'evaluate_fn': lambda now, arrays: 0.5",
        "result of evaluate_fn must be a Mapping, got 0.5; such as MetricRecord",
    ),
    # The gate.
    "no gate": mods("", GATE_FIRST),
    "a class of gates": mods("mods=[ClientGate]", GATE_FIRST),
    "no room": gate("'buffer_capacity': 0", CAPACITY + "0; a client that stores nothing"),
    "a capacity as text": gate("'buffer_capacity': '10'", CAPACITY + "'10'"),
    "a capacity that raises": gate(
        "'buffer_capacity': lambda context: context.node_config['capacity']",
        "no client can take part.* buffer_capacity raised KeyError: 'capacity'",
        raises=True,
    ),
    "a capacity of nothing": gate(
        "'buffer_capacity': lambda context: None",
        "the result of buffer_capacity must .*, got None",
    ),
    "data in place of a function": gate(
        "'open_stream': data(None)", "open_stream must be a function of a context, got .*; such as"
    ),
    "no argument for a context": gate(
        "'open_stream': lambda: []", "open_stream must be a function"
    ),
    "two arrays in a tuple": gate(
        "'open_stream': lambda c: (1, 2)", f"returned a tuple; {NO_DATA}"
    ),
    "a generator": gate("'open_stream': lambda c: iter([1])", f"returned a list_iter.*; {NO_DATA}"),
    "a table": gate("'open_stream': lambda c: {'x': 1}", f"open_stream returned a dict; {NO_DATA}"),
    "no data returned": gate("'open_stream': lambda c: None", f"returned a NoneType; {NO_DATA}"),
    "a missing file": gate(
        "'open_stream': lambda c: open('points.csv')",
        "open_stream raised FileNotFoundError: .*points.csv.* no client can take part: ",
        raises=True,
    ),
    "no data": gate(
        "'open_stream': lambda c: []", "stream of partition-0 has run dry" + NOTHING, 1
    ),
    "samples of a kind that cannot be stored": gate(
        "'open_stream': lambda c: [object()] * 50, 'acquire': None",
        "cannot store the sample: a object would not come back as it is; turn it into" + NOTHING,
        1,
    ),
    "an acquire that raises": gate(
        "'acquire': lambda sample, key: {}[key]",
        "acquire raised KeyError: " + ".*" + NOTHING,
        1,
        raises=True,
    ),
    "an acquire without a return": gate(
        "'acquire': lambda sample, key: None",
        "acquire returned None; it must return the sample to store" + NOTHING,
        1,
        raises=True,
    ),
    "an acquire of one argument": gate("'acquire': lambda sample: sample", "does not accept them"),
    "acquire and supplier": gate("'supplier': lambda c: None", "either acquire, .* not both"),
    "a supplier that is none": gate(
        "'acquire': None, 'supplier': lambda c: 5",
        r"supplier returned 5, which has no ask\(\); it returns the node.* no client can take part",
    ),
    "patience without a supplier": gate("'give_up_after': 3", "give_up_after = 3 needs a supplier"),
    "30 days": gate(
        "'keep_at_most': '30 days'", "keep_at_most must be .* such as '12h', .* got '30"
    ),
    "worth is no function": gate("'worth': 5", "worth must be a function of candidates and a mess"),
    "worth takes too little": gate("'worth': lambda some: []", "which does not accept them"),
    "worth gives too few": gate(
        "'worth': lambda *_: [1.0]",
        "worth returned 1 numbers for 20 candidates; it must return one",
        1,
    ),
    "worth gives a number": gate("'worth': lambda *_: 1.0", f"worth returned 1.0; {WORTH}", 1),
    "worth gives names": gate("'worth': lambda some, m, c: ['high'] * len(some)", WORTH, 1),
    "worth gives only NaN": gate("'worth': lambda some, m, c: [np.nan] * len(some)", WORTH, 1),
    "worth raises": gate(
        "'worth': lambda *_: {}['layer']", "worth raised KeyError: 'layer'", 1, raises=True
    ),
    "no such key in group": gate(
        "'group': lambda sample: {}['class']",
        "group failed on .* with KeyError: 'class'; it gets a complete" + NOTHING,
        1,
        costs=True,
        raises=True,
    ),
    "a group of no argument": gate("'group': lambda: 'a'", "group must be a function of a sample"),
    "more in training than in store": gate(
        "'train_on': 20", "train_on is 20, but buffer_capacity is 10: .* raise buffer_capacity"
    ),
    "a ceiling as text": gate("'spend_at_most': '5'", "spend_at_most must be a number from 0 to"),
    "a ceiling of 0": gate(
        "'spend_at_most': 0", "bought nothing: so far its own ceiling, spend_at_most" + NOTHING, 1
    ),
    "a selection of 20": gate("'selection': 20", "selection must be a Selection, got 20; such as"),
    "a function that gives no selection": gate(
        "'selection': lambda context: 20",
        "the result of selection must be a Selection, got 20; such",
    ),
    "a selection without worth": gate(
        "'selection': Selection()",
        "chooses among its candidates at random; pass worth=",
        0,
        costs=True,
    ),
    # What a client's functions reply.
    "samples never asked for": train("return reply(message)", r"train on gate.samples\(context\)"),
    "no reply": train(
        "gate.samples(context)", "training function returned None; it must return a M"
    ),
    "a message in place of the context": train("gate.samples(message)", "with its own context"),
    "no model": train(
        "gate.samples(context); return Message(RecordDict(), reply_to=message)",
        "sent no model this round .* add the ArrayRecord to its reply",
    ),
    "two models": train(
        "gate.samples(context); two = reply(message); two.content['two'] = MODEL; return two",
        "the app's strategy ends the run: Expected exactly one ArrayRecord",
        2,
    ),
    "a model of another shape": train(
        "gate.samples(context); return reply(message, ArrayRecord({'w': Array(np.zeros(3))}))",
        r"its array 'w' is float64 of \(3,\), but the model's is float64 of \(2,\)" + NOTHING,
    ),
    "a model with other names": train(
        "gate.samples(context); return reply(message, ArrayRecord({'v': Array(np.zeros(2))}))",
        r"they differ in \['v', 'w'\]" + NOTHING,
    ),
    "a model that diverged": train(
        "gate.samples(context); return reply(message, ArrayRecord([np.full(2, np.nan)]))",
        "its array '0' has numbers that are not finite" + NOTHING,
    ),
    "a loss that is not finite": train(
        "gate.samples(context); return reply(message, loss=float('inf'))",
        "its metric 'loss' is not finite" + NOTHING,
    ),
    "training raises": train(
        "raise OSError('no disk')", "6 of 6 train .* OSError: no disk", raises=True
    ),
    "training fails at the end": train(
        "gate.samples(context); assert len(bought) < 20; return reply(message)",
        "no client's model was used in the last round",
        raises=True,
    ),
    "an evaluation without a reply": Mistake(
        code=1,
        costs=True,
        app={"control": "'strategy': FedAvg()", "evaluate": "return None"},
        says="the app's evaluate function returned None; it must return a Message",
    ),
    # The command.
    "too few clients": Mistake(
        arguments="--clients 1",
        says="min_.*_nodes = 2 nodes, but this process has only 1: .*--clients 2",
    ),
    "a key that the app lacks": Mistake(
        arguments="--set round=4", says="the app's config has no key 'round'; did you mean rounds"
    ),
    "buffers where nobody may write": Mistake(
        arguments="--set tidegate-folder=/proc/x",
        says="this node cannot keep its samples in /proc/x .*; let its user write there, or set "
        "tidegate-folder to another folder.* no client can take part",
    ),
    "a value of another kind": Mistake(
        arguments="--set rounds=many",
        says="rounds = 'many' must be a whole number, such as the app's",
    ),
}


def write_app(folder: Path, name: str, **parts: str) -> Path:
    """An app whose module has this name, right except for these parts."""
    folder.mkdir()
    (folder / "pyproject.toml").write_text(PROJECT.format(name))
    (folder / f"{name}.py").write_text(APP.substitute(RIGHT | parts))
    return folder


def played(folder: Path, mistake: Mistake, capfd: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """The exit code of the command, and what it prints on both streams in one line."""
    write_app(folder / "app", f"app_{folder.name}", **mistake.app)
    with pytest.raises(SystemExit) as ended:
        main(["run", "app", *(mistake.arguments or "--clients 2").split()])
    out, error = capfd.readouterr()
    return int(ended.value.code or 0), error + out


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_told_with_its_remedy(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    mistake = MISTAKES[name]
    code, printed = played(tmp_path, mistake, capfd)
    assert code == mistake.code, printed
    assert re.search(mistake.says, " ".join(printed.split())), printed
    app = sys.modules.pop(f"app_{tmp_path.name}", None)
    assert bool(getattr(app, "bought", ())) == mistake.costs, printed
    assert ("Traceback" in printed) == mistake.raises, printed
    assert "tidegate/cli/" not in printed


def test_the_app_without_a_mistake_ends_with_0(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code, printed = played(tmp_path, Mistake(says=""), capfd)
    assert code == 0, printed
    assert len(MISTAKES) >= 40


ON_FLOWER = {
    "a clipping mod first": GATE_FIRST,
    "training raises": "NothingLearnedError: no client's model was used in the last 1 round.*",
}
"""Where the run's status is what a user sees of it, what its log says."""


@pytest.mark.full
@pytest.mark.deployment
@pytest.mark.share(60)
def test_on_a_deployment_the_run_fails_and_its_log_says_why(fleet: Fleet, tmp_path: Path) -> None:
    runs = {}
    for name in ON_FLOWER:
        parts = {"start": "'num_rounds': 1", **MISTAKES[name].app}
        runs[name] = fleet.run(write_app(tmp_path / name, "mistaken", **parts), {})
    for name, says in ON_FLOWER.items():
        assert fleet.finished(runs[name]) == "finished:failed", fleet.log(runs[name])
        log = " ".join(fleet.log(runs[name]).split())
        assert re.search(says, log), log
        assert "<class" not in log
