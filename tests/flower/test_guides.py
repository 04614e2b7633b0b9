"""The guides that tell how to run an app, followed as they are printed, on all three engines.

A network with BatchNorm goes the same ways: given everything, it becomes that of the bare app.
"""

import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from check_size import SIZE, at_size
from deployment import BIN
from documented_lines import APP, LOAD, Quickstart, add_tidegate, gate
from guide import ADDED, PLAIN, PRICES, RED, ROOT, TLS, Guide, blocks, joined

from tidegate.cli import main
from tidegate.flower.strategy import AdmissionControl
from tidegate.runs.reader import read_run, saved_books

pytest.importorskip("sklearn", reason="the apps read scikit-learn's digits")

BATCH_NORM = Quickstart(
    "batch_norm",
    {
        APP: gate(f"{LOAD})"),
        "load_data(partition_id, num_partitions)": "gate.samples(context)",
    },
    "network.pt",
)
ROUNDS = at_size(2, 5)

share = pytest.mark.share(480)  # processes that mostly wait; one share, so they stay together
on_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="there is no Ray here")
with_openssl = pytest.mark.skipif(
    shutil.which("openssl") is None or shutil.which("ssh-keygen") is None,
    reason="there is no openssl or no ssh-keygen here",
)
with_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="there is no torch here"
)


def lines(page: Path) -> list[str]:
    """The commands of a page, one by one."""
    return [line for block in blocks(page, "text") for line in joined(block).splitlines()]


def line(page: Path, beginning: str) -> str:
    """The one command of a page that begins so, for the app that needs no download."""
    (found,) = [one for one in lines(page) if one.startswith(beginning)]
    return found.replace("quickstart-pytorch", "plain")


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guide]:
    """Where a reader has the apps: an example with its lines, a network before and after."""
    if shutil.which("patch") is None:
        pytest.skip("there is no patch program here")
    reader = Guide(tmp_path_factory.mktemp("desk"))
    for folder in (reader.folder, reader.folder / "before"):
        shutil.copytree(PLAIN, folder / "plain")
    for patch in blocks(PLAIN / "README.md", "diff"):
        subprocess.run(
            ["patch", "-p1", "--no-backup-if-mismatch", "--fuzz=0"],
            cwd=reader.folder / "plain", input=patch, text=True, check=True, capture_output=True,
        )  # fmt: skip
    for name in ("bare", "gated"):
        shutil.copytree(ROOT / "tests" / "helpers" / "batch_norm_app", reader.folder / name)
    add_tidegate(reader.folder / "gated", BATCH_NORM)
    add_tariff(reader.folder)
    yield reader
    reader.stop()


def add_tariff(folder: Path) -> None:
    """The app with the first feed of another page, in which each client has its price."""
    shutil.copytree(folder / "plain", folder / "tariff")
    feed = blocks(PRICES, "python")[0].rpartition("strategy = ")[0]
    server = folder / "tariff" / "plain" / "server_app.py"
    text = server.read_text("utf-8")
    assert text.count('prices="uniform:1,10"') == 1
    own = text.replace('prices="uniform:1,10"', "prices=Tariff()")
    server.write_text(f"{feed}\n{own}", "utf-8")


def assert_own_prices(run: Path, names: list[str], rounds: int) -> None:
    """Both clients pay their own price, and the one with the slow link gets some samples, too."""
    view = read_run(run)
    assert [one.name for one in view.clients] == names
    assert len(view.rounds) == rounds
    near, far = view.clients
    assert (near.total_spent, far.total_spent) == (
        2.5 * near.total_admitted,
        6 * far.total_admitted,
    )
    assert near.total_admitted > 0
    told = [json.loads(one) for one in (run / "prices.jsonl").read_text().split("\n") if one]
    assert [one["prices"] for one in told] == [dict(zip(names, (2.5, 6.0), strict=True))] * rounds


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guide]:
    """The guide to a deployment, followed until both SuperNodes are online."""
    reader = Guide(tmp_path_factory.mktemp("site"))
    (config,) = blocks(TLS, "toml")
    (reader.folder / "home" / "config.toml").write_text(reader.here(config), "utf-8")
    try:
        for one in lines(TLS):
            if one.startswith("flwr supernode list"):
                break
            reader.follow(one)
        yield reader
    finally:
        reader.stop()


def here(command: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run an app by the command line in this process, as if it had never been loaded."""
    monkeypatch.chdir(folder)
    for name in [name for name in sys.modules if name.split(".")[0] in ("plain", "batch_norm")]:
        del sys.modules[name]
    program, *arguments = shlex.split(command)
    assert program == "tidegate"
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert not stopped.value.code


def lines_added(patch: str) -> int:
    """Lines that are new or changed; empty ones do not count."""
    return sum(one.startswith("+") and one != "+" for one in patch.splitlines()[2:])


def assert_within_budget(log: str, rounds: int) -> None:
    """What the log says of each round: both nodes have answered, and the money is enough."""
    told = re.findall(
        r"round (\d+): (\d) of 2 orders answered.*? admitted for ([\d.,]+), (\d+) in training", log
    )
    assert [int(now) for now, *_ in told] == [*range(1, rounds + 1)], log
    spent = 0.0
    for now, answered, paid, stored in told:
        spent += float(paid.replace(",", ""))
        assert answered == "2"
        assert spent <= 55 * int(now) + 0.1 * rounds  # the log gives four digits
        assert 0 < int(stored) <= 20


def config(desk: Guide, saved: str) -> list[str]:
    """The network's rounds, and where its server saves it."""
    model = json.dumps(str(desk.folder / saved))
    return [f"num-server-rounds={ROUNDS}", f"model={model}"]


def trained_here(app: str, desk: Guide, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    options = shlex.join(f"--set={one}" for one in config(desk, f"{app}.pt"))
    here(f"tidegate run {app} --clients 2 {options}", desk.folder, monkeypatch)
    return saved(desk, f"{app}.pt")


def saved(desk: Guide, name: str) -> dict[str, Any]:
    import torch

    found: dict[str, Any] = torch.load(desk.folder / name)
    return found


@pytest.fixture(scope="module")
def bare(desk: Guide) -> dict[str, Any]:
    """The network of the app without Tidegate, trained in this process."""
    with pytest.MonkeyPatch.context() as patch:
        return trained_here("bare", desk, patch)


def assert_same(found: dict[str, Any], bare: dict[str, Any]) -> None:
    """The same network bit for bit, which names most of the images that it has not seen."""
    assert list(found["network"]) == list(bare["network"])
    for name, tensor in bare["network"].items():
        assert found["network"][name].dtype == tensor.dtype, name
        assert found["network"][name].numpy().tobytes() == tensor.numpy().tobytes(), name
    assert found["accuracy"] == bare["accuracy"]
    assert bare["accuracy"] > 0.9


def test_the_lines_are_few() -> None:
    (said,) = re.findall(r"need \[(\d+) lines\]", ADDED.read_text("utf-8"))
    assert sum(map(lines_added, blocks(PLAIN / "README.md", "diff"))) == int(said)


@share
@pytest.mark.deployment
def test_an_app_with_the_lines_keeps_to_its_budget_in_this_process(
    desk: Guide, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[AdmissionControl] = []
    begin = AdmissionControl._begin

    def noticed(self: AdmissionControl, *arguments: Any) -> None:
        started.append(self)
        begin(self, *arguments)

    monkeypatch.setattr(AdmissionControl, "_begin", noticed)
    command = line(ADDED, "tidegate run")
    here(command.partition(" --beside")[0], desk.folder / "before", monkeypatch)
    assert not started
    here(command, desk.folder, monkeypatch)
    assert len(read_run(desk.folder / "run").rounds) == 10
    control, as_they_come = started
    assert len(control.rounds) == 10
    assert all(row.answered == 10 for row in control.rounds)
    for row in (*control.rounds, *as_they_come.rounds):
        assert row.overspend <= 1e-9
    assert control.rounds[-1].training_size >= 90  # of 100 slots


@share
@on_ray
@pytest.mark.deployment
def test_an_app_with_the_lines_keeps_to_its_budget_on_simulation(desk: Guide) -> None:
    (block,) = [block for block in blocks(ADDED, "text") if "--stream" in block]
    block = block.replace("quickstart-pytorch", "plain")
    assert_within_budget(desk.call(block), rounds=10)
    assert len(list((desk.folder / ".local/state/tidegate").glob("*.sqlite"))) == 2


@share
@with_torch
@pytest.mark.deployment
def test_a_network_is_that_of_the_bare_app_in_this_process(
    desk: Guide, bare: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_same(trained_here("gated", desk, monkeypatch), bare)


@share
@on_ray
@with_torch
@pytest.mark.full  # the guide's own run of Ray is enough at each change
@pytest.mark.deployment
def test_a_network_is_that_of_the_bare_app_on_simulation(desk: Guide, bare: dict[str, Any]) -> None:
    options = line(ADDED, "flwr run quickstart-pytorch --stream").removeprefix("flwr run plain")
    values = shlex.quote(" ".join(config(desk, "simulated.pt")))
    desk.call(f"flwr run gated {options} --run-config {values}")
    assert_same(saved(desk, "simulated.pt"), bare)


@share
@pytest.mark.deployment
def test_clients_have_the_prices_of_the_guide_in_this_process(
    desk: Guide, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = desk.folder / "own-here"
    options = f"--clients 2 --set num-server-rounds=3 --set folder={run}"
    here(f"tidegate run tariff {options}", desk.folder, monkeypatch)
    assert_own_prices(run, ["partition-0", "partition-1"], rounds=3)


@share
@on_ray
@pytest.mark.full  # the guide's own run of Ray is enough at each change
@pytest.mark.deployment
def test_clients_have_the_prices_of_the_guide_on_simulation(desk: Guide) -> None:
    run = desk.folder / "own-simulated"
    options = line(ADDED, "flwr run quickstart-pytorch --stream").removeprefix("flwr run plain")
    values = f"num-server-rounds=3 folder={json.dumps(str(run))}"
    desk.call(f"flwr run tariff {options} --run-config {shlex.quote(values)}")
    assert_own_prices(run, ["partition-0", "partition-1"], rounds=3)


@pytest.fixture(scope="module")
def deployed(site: Guide, desk: Guide) -> dict[str, str]:
    """Runs of the apps on the deployment, which go on side by side: each mostly waits."""
    printed = line(ADDED, "flwr run quickstart-pytorch fleet").replace(
        "plain", str(desk.folder / "plain")
    )
    values = shlex.quote(" ".join(config(desk, "deployed.pt")))
    gated = f"flwr run {desk.folder / 'gated'} fleet --run-config {values}"
    own = f"num-server-rounds=3 folder={json.dumps(str(site.folder / 'var' / 'own'))}"
    tariff = f"flwr run {desk.folder / 'tariff'} fleet --run-config {shlex.quote(own)}"
    commands = {"plain": printed}
    if SIZE == "full":
        commands |= {"gated": gated, "tariff": tariff}
    return {name: site.begin_run(command) for name, command in commands.items()}


@share
@with_openssl
@pytest.mark.deployment
def test_the_guide_to_a_deployment_runs_as_printed(site: Guide) -> None:
    text = TLS.read_text("utf-8")
    assert [printed for printed in site.own if printed not in text] == []
    run_id, log = "", ""
    printed = lines(TLS)
    for one in printed[printed.index("flwr supernode list fleet") :]:
        if one.startswith("flwr run"):
            run_id = site.begin_run(one)
            site.await_run(run_id)
        else:
            shown = site.follow(one, run_id)
            log = shown if one.startswith("flwr log") else log
    for one in lines(RED):
        assert site.follow(one)
    assert site.nodes == 2
    run = site.folder / "var" / "fleet" / "run"
    assert f"the run is saved in {run}" in log
    assert f"the run is saved in {run}" in (run / "server.log").read_text("utf-8")
    with tarfile.open(run.parent / "run-backup.tar.gz") as backup:
        assert "run/rounds.jsonl" in backup.getnames()
    view = read_run(run)
    assert [one.name for one in view.clients] == ["site-0", "site-1"]
    assert len(view.rounds) == 3
    assert all(row.answered == 2 for row in view.rounds)
    assert saved_books(run).app == "me/my-fleet"  # other apps will not resume it
    assert len(list((site.folder / "var" / "tidegate").glob("*.sqlite"))) == 2


@share
@with_openssl
@pytest.mark.deployment
def test_an_app_with_the_lines_keeps_to_its_budget_on_a_deployment(
    site: Guide, deployed: dict[str, str]
) -> None:
    site.await_run(deployed["plain"])
    assert_within_budget(site.follow(line(ADDED, "flwr log"), deployed["plain"]), rounds=3)


@share
@with_openssl
@pytest.mark.full
@pytest.mark.deployment
def test_clients_have_the_prices_of_the_guide_on_a_deployment(
    site: Guide, deployed: dict[str, str]
) -> None:
    site.await_run(deployed["tariff"])
    assert_own_prices(site.folder / "var" / "own", ["site-0", "site-1"], rounds=3)


@share
@with_openssl
@with_torch
@pytest.mark.full
@pytest.mark.deployment
def test_a_network_is_that_of_the_bare_app_on_a_deployment(
    site: Guide, desk: Guide, deployed: dict[str, str], bare: dict[str, Any]
) -> None:
    site.await_run(deployed["gated"])
    assert_same(saved(desk, "deployed.pt"), bare)


UNITS = {"fleet-superlink": "flower-superlink", "fleet-site": "flower-supernode"}
"""The services of the guide, in its order, and what each of them starts."""


@pytest.mark.process
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_the_units_of_the_guide_are_understood_by_systemd(tmp_path: Path) -> None:
    for name, unit in zip(UNITS, blocks(TLS, "ini"), strict=True):
        path = tmp_path / f"{name}.service"
        path.write_text(unit.replace("/opt/fleet/bin", str(BIN)), "utf-8")
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", str(path)],
            capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"},
        )  # fmt: skip
        assert [line for line in done.stderr.splitlines() if path.name in line] == []


def test_the_units_start_what_the_guide_starts_by_hand() -> None:
    for program, unit in zip(UNITS.values(), blocks(TLS, "ini"), strict=True):
        (command,) = re.findall(
            r"^ExecStart=/opt/fleet/bin/(.*?[^\\])$", unit, re.DOTALL | re.MULTILINE
        )
        by_hand = next(one for one in lines(TLS) if one.startswith(program))
        assert shlex.split(joined(command)) == shlex.split(by_hand)
        # Flower starts its other programs by name, and a service has systemd's own PATH.
        assert "Environment=PATH=/opt/fleet/bin:" in unit


def test_the_page_on_what_is_red_has_every_alert() -> None:
    alerts = re.findall(r"alert: (\w+)", (ROOT / "monitoring/alerts.yml").read_text("utf-8"))
    told = RED.read_text("utf-8")
    assert len(alerts) >= 13
    assert [name for name in alerts if f"| {name} |" not in told] == []
