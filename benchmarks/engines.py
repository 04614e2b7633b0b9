"""What a round without training costs on each of the three engines, bare and controlled.

    python benchmarks/engines.py --clients 3

Starts a SuperLink and SuperNodes on this machine, with TLS and authentication, and stops them. The
first round, in which processes start and nodes introduce themselves, is left out.
"""

import argparse
import json
import logging
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

HERE = Path(__file__).parent
APP = HERE / "idle_app"
sys.path.insert(0, str(HERE.parent / "tests" / "helpers"))

from deployment import SuperLink, deployed, simulated  # noqa: E402

from tidegate.flower.app import run_app  # noqa: E402

Play = Callable[[dict[str, Any]], None]


def cases(folder: Path, config: dict[str, Any], play: Play, told: str) -> list[str]:
    """Seconds a round, bare and controlled, with the fastest and the slowest."""
    cells = [told]
    for controlled in (False, True):
        out = folder / f"{told.split(maxsplit=1)[0]}-{controlled}.json"
        play({**config, "controlled": controlled, "out": str(out)})
        seconds = json.loads(out.read_text())[1:]
        median = statistics.median(seconds)
        cells.append(f"{median:.3f} ({min(seconds):.3f} to {max(seconds):.3f})")
    return cells


def completed(link: SuperLink, run_id: str) -> None:
    """Wait for a run, and stop if it failed."""
    if link.finished(run_id) != "finished:completed":
        raise SystemExit(link.log(run_id))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--clients", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=6)
    given = parser.parse_args()
    logging.getLogger("flwr").setLevel(logging.ERROR)
    count, config = given.clients, {"num-server-rounds": given.rounds}
    table = Table("engine", "bare FedAvg, s", "AdmissionControl(FedAvg), s")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def in_process() -> list[str]:
            return cases(
                folder,
                config,
                lambda changes: run_app(APP, num_clients=count, changes=changes),
                "this process",
            )

        def on_ray() -> list[str]:
            nodes = "--federation-config", f"num-supernodes={count}"
            stored = {**config, "tidegate-folder": str(folder / "buffers")}
            with simulated(folder / "simulation") as link:
                return cases(
                    folder,
                    stored,
                    lambda changes: completed(link, link.run(APP, changes, *nodes)),
                    "Flower Simulation (Ray)",
                )

        def on_a_deployment() -> list[str]:
            (folder / "deployment").mkdir()
            with deployed(folder / "deployment", count) as link:
                return cases(
                    folder,
                    config,
                    lambda changes: completed(link, link.run(APP, changes)),
                    "Flower Deployment, TLS",
                )

        for engine in track((in_process, on_ray, on_a_deployment), "measuring", transient=True):
            table.add_row(*engine())
    Console().print(f"{count} clients, 61,706 parameters; median of {given.rounds - 1} rounds")
    Console().print(table)


if __name__ == "__main__":
    main()
