"""A guest in somebody else's package is found by its name, checked, and used, without our help."""

import shutil
import tomllib
from pathlib import Path

import pytest
from flwr.serverapp.strategy import FedAvg
from gated_apps import MODEL, echo_app

from tidegate.flower import AdmissionControl, ClientGate, LocalGrid
from tidegate.prices import PricePath, UniformPrice
from tidegate.testing import check_sink, check_stream

PACKAGE = Path(__file__).parents[1] / "helpers" / "toy_guest"
ROUNDS = 4


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The toy package, as pip would leave it in a folder of packages; and that folder."""
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text("utf-8"))["project"]
    about = tmp_path / f"toy_guest-{project['version']}.dist-info"
    about.mkdir()
    shutil.copy(PACKAGE / "toy_guest.py", tmp_path)
    told = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (about / "METADATA").write_text(told)
    points = [
        f"[{group}]\n" + "".join(f"{name} = {place}\n" for name, place in places.items())
        for group, places in project["entry-points"].items()
    ]
    (about / "entry_points.txt").write_text("\n".join(points))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_stream_and_a_sink_of_somebody_else_obey_the_laws(installed: Path) -> None:
    from toy_guest import ToySink, ToyStream

    check_stream(ToyStream)
    check_sink(ToySink)


def test_a_run_reads_a_stream_and_finds_a_sink_of_somebody_else(installed: Path) -> None:
    from toy_guest import ToyStream

    control = AdmissionControl(
        FedAvg(fraction_evaluate=0.0),
        "tide",
        budget=22.0,
        prices=PricePath(UniformPrice(1, 10), seed=1),
        sinks=["toy"],
    )
    app = echo_app(ClientGate(lambda context: ToyStream(), 8))
    grid = LocalGrid(app, [{"partition-id": number} for number in range(3)])
    control.start(grid, MODEL, ROUNDS)
    assert (installed / "toy.log").read_text().splitlines() == [
        f"round {row.round_number}: {row.spent:g}" for row in control.rounds
    ]
    assert sum(row.admitted for row in control.rounds) > 0
