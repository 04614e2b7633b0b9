"""Flower's own quickstarts, before and after: a few lines more, and with everything the same model.

The apps are used as they are, apart from these lines. Their data are made here.
"""

import json
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from documented_lines import APP, LOAD, Quickstart, add_tidegate, edited, gate
from flwr.app import Message
from guide import ADDED, blocks
from quickstart_data import stand_in
from real_data import DATA, WHERE

from tidegate.flower import LocalGrid
from tidegate.flower.app import run_app
from tidegate.flower.strategy import AdmissionControl
from tidegate.runs.reader import read_run

pytestmark = [
    pytest.mark.data("flower-apps"),
    pytest.mark.no_cover,
]

CLIENTS = 4

LOADER = "trainloader, _ = load_data(partition_id, num_partitions, batch_size)\n"

QUICKSTARTS = {
    "quickstart-pytorch": Quickstart(
        "pytorchexample",
        {
            "import torch\n": "import torch\nfrom torch.utils.data import DataLoader\n",
            APP: gate(f"{LOAD}, 1)[0].dataset"),
            LOADER: "trainloader = DataLoader("
            "gate.samples(context), batch_size=batch_size, shuffle=True)\n",
        },
        "final_model.pt", ("torch",), {"num-server-rounds": 2},
    ),
    "quickstart-sklearn": Quickstart(
        "sklearnexample",
        {
            "import warnings\n": "import warnings\nimport numpy as np\n",
            APP: gate(f"list(zip(*{LOAD})[:2]))"),
            "X_train, y_train, _, _ = load_data(partition_id, num_partitions)":
            "X_train, y_train = map(np.stack, zip(*gate.samples(context)))",
        },
        "logreg_model.pkl", ("sklearn",), {"num-server-rounds": 3},
    ),
    "quickstart-xgboost": Quickstart(
        "quickstart_xgboost",
        {
            APP: gate(f"range({LOAD})[2])"),
            "train_dmatrix, _, num_train, _ = load_data(partition_id, num_partitions)":
            "train_dmatrix, _, num_train, _ = load_data(partition_id, num_partitions)\n"
            "    train_dmatrix = train_dmatrix.slice(list(gate.samples(context)))",
        },
        "final_model.json", ("xgboost",), {"params.nthread": 1, "fraction-train": 1.0},
        "FedXgbBagging(",
    ),
    "quickstart-jax": Quickstart(
        "jaxexample",
        {
            APP: gate(f"{LOAD}, context.run_config[\"batch-size\"])[0]"),
            LOADER: "trainloader = gate.samples(context)\n",
        },
        "final_model.npz", ("jax", "flax", "optax"), {"num-server-rounds": 2, "batch-size": 8},
    ),
    "quickstart-numpy": Quickstart(
        "quickstart_numpy",
        {
            APP: gate("range(10)"),
            "# Simulate local": "assert len(gate.samples(context)) == 10\n    # Simulate local",
        },
        "final_model.npz",
    ),
}  # fmt: skip


@pytest.fixture
def _seen_anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    stand_in(monkeypatch)
    push = LocalGrid.push_messages

    def in_their_own_order(self: LocalGrid, messages: Iterable[Message]) -> list[str]:
        """Not as the strategy has drawn them: clients share generators of random numbers."""
        return push(self, sorted(messages, key=lambda one: one.metadata.dst_node_id))

    monkeypatch.setattr(LocalGrid, "push_messages", in_their_own_order)
    yield
    packages = {app.package for app in QUICKSTARTS.values()}
    for name in [name for name in sys.modules if name.partition(".")[0] in packages]:
        del sys.modules[name]


def run(folder: Path, app: Quickstart, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run an app as if for the first time; the model that it saves."""
    for name in [name for name in sys.modules if name.partition(".")[0] == app.package]:
        del sys.modules[name]
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 - the apps draw from it
    if "torch" in app.needs:
        import torch

        torch.manual_seed(0)
    monkeypatch.chdir(folder)
    run_app(folder, num_clients=CLIENTS, changes=app.changes)
    return read(folder / app.model)


def read(path: Path) -> Any:
    if path.suffix == ".npz":
        with np.load(path) as saved:
            return {name: saved[name].tobytes() for name in saved}
    if path.suffix == ".json":
        return json.loads(path.read_text("utf-8"))
    if path.suffix == ".pt":
        import torch

        return {name: one.numpy().tobytes() for name, one in torch.load(path).items()}
    import joblib  # type: ignore[import-untyped]

    model = joblib.load(path)
    return model.coef_.tobytes(), model.intercept_.tobytes()


@contextmanager
def compiled_once(folder: Path) -> Iterator[None]:
    """Every client of every run compiles the same network, which takes JAX seconds each time."""
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    def put(settings: Mapping[str, Any]) -> None:
        for name, value in settings.items():
            jax.config.update(name, value)
        compilation_cache.reset_cache()

    settings = {
        "jax_compilation_cache_dir": str(folder),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    before = {name: getattr(jax.config, name) for name in settings}
    put(settings)
    try:
        yield
    finally:
        put(before)


@pytest.mark.usefixtures("_seen_anew")
@pytest.mark.filterwarnings("ignore")  # what their frameworks warn of is theirs
@pytest.mark.parametrize("name", QUICKSTARTS)
def test_a_quickstart_of_flower_learns_the_same_with_a_few_lines_more(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = QUICKSTARTS[name]
    for package in app.needs:
        pytest.importorskip(package)
    source = DATA / WHERE["flower-apps"] / name
    for folder in ("before", "after"):
        shutil.copytree(source, tmp_path / folder)
    add_tidegate(tmp_path / "after", app)
    started: list[AdmissionControl] = []
    begin = AdmissionControl._begin

    def noticed(self: AdmissionControl, *arguments: Any) -> None:
        started.append(self)
        begin(self, *arguments)

    monkeypatch.setattr(AdmissionControl, "_begin", noticed)
    with compiled_once(tmp_path / "compiled") if "jax" in app.needs else nullcontext():
        before = run(tmp_path / "before", app, monkeypatch)
        assert not started
        after = run(tmp_path / "after", app, monkeypatch)
    (control,) = started
    assert all(row.training_size for row in control.rounds)
    assert after == before


@pytest.mark.process  # patch
@pytest.mark.usefixtures("_seen_anew")
@pytest.mark.filterwarnings("ignore")
def test_the_guide_is_a_whole_diff_of_the_quickstart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    if shutil.which("patch") is None:
        pytest.skip("there is no patch program here")
    folder = tmp_path / "app"
    shutil.copytree(DATA / WHERE["flower-apps"] / "quickstart-pytorch", folder)
    patches = blocks(ADDED, "diff")
    for patch in patches:
        command = ["patch", "-p1", "--fuzz=0"]
        subprocess.run(command, cwd=folder, input=patch, text=True, check=True)
    said = re.findall(r"(\d+) lines more, (\d+) lines less", ADDED.read_text("utf-8"))
    changed = [line for patch in patches for line in patch.splitlines()[2:]]
    assert said == [tuple(str(sum(line[0] == sign for line in changed)) for sign in "+-")]

    client = folder / "pytorchexample" / "client_app.py"
    person = {'# subject=lambda sample: sample["patient"]': 'subject=lambda sample: "patient-0"'}
    client.write_text(edited(client.read_text("utf-8"), person), "utf-8")
    changes = {"num-server-rounds": 3, "folder": str(tmp_path / "run")}
    app = Quickstart("pytorchexample", {}, "final_model.pt", ("torch",), changes)
    run(folder, app, monkeypatch)
    rows = read_run(tmp_path / "run").rounds
    assert [row.answered for row in rows] == [CLIENTS] * 3
    assert all(row.overspend <= 1e-9 for row in rows)
    assert rows[-1].training_size > rows[0].training_size > 0
