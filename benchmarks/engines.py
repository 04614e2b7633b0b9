"""What a round without training costs on Flower's engines, bare and controlled: time and memory.

    python benchmarks/engines.py
    python benchmarks/engines.py --engines process ray --clients 10 100 1000 --rounds 4

Bare FedAvg, AdmissionControl(FedAvg) and AdmissionControl(FoldedFedAvg) take turns, each run in a
new process. Memory is the most that the process of the server app ever had; under Ray that process
holds the messages of all clients, too. A deployment is a SuperLink and SuperNodes on this machine,
with TLS and authentication. The first round, in which processes start and nodes introduce
themselves, is left out.
"""

import argparse
import json
import logging
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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

STRATEGIES = ("bare", "controlled", "folded")
LONGEST = 7200.0
"""Seconds that a run may take."""

Play = Callable[[dict[str, Any]], None]


@contextmanager
def in_process(folder: Path, count: int) -> Iterator[Play]:
    """A process of its own for each run, server and clients together."""

    def play(changes: dict[str, Any]) -> None:
        command = [sys.executable, __file__, "--one", json.dumps(changes), "--clients", str(count)]
        subprocess.run(command, check=True)  # noqa: S603

    yield play


@contextmanager
def on_ray(folder: Path, count: int) -> Iterator[Play]:
    """Flower's Simulation engine."""
    nodes = "--federation-config", f"num-supernodes={count}"
    with simulated(folder / "simulation") as link:

        def play(changes: dict[str, Any]) -> None:
            stored = {**changes, "tidegate-folder": str(folder / "buffers")}
            completed(link, link.run(APP, stored, *nodes))

        yield play


@contextmanager
def on_a_deployment(folder: Path, count: int) -> Iterator[Play]:
    """Flower's Deployment engine."""
    (folder / "deployment").mkdir()
    with deployed(folder / "deployment", count) as link:
        yield lambda changes: completed(link, link.run(APP, changes))


ENGINES = {"process": in_process, "ray": on_ray, "deployment": on_a_deployment}


def completed(link: SuperLink, run_id: str) -> None:
    """Wait for a run, and stop if it failed."""
    if link.finished(run_id, LONGEST) != "finished:completed":
        raise SystemExit(link.log(run_id))


def measure(
    engine: str, count: int, config: dict[str, Any], strategies: Sequence[str]
) -> Iterator[list[str]]:
    """One row for each strategy: seconds a round with the fastest and the slowest, and memory."""
    first = None
    with tempfile.TemporaryDirectory() as name, ENGINES[engine](Path(name), count) as play:
        for strategy in strategies:
            out = Path(name) / f"{strategy}.json"
            play({**config, "clients": count, "strategy": strategy, "out": str(out)})
            found = json.loads(out.read_text())
            if set(found["answers"][1:]) != {count}:
                raise SystemExit(
                    f"{engine}, {strategy}: of {count} clients {found['answers']} answered"
                )
            seconds = found["seconds"][1:]
            median = statistics.median(seconds)
            first = first or median
            yield [
                *(engine, f"{count:,}", f"{config['parameters']:,}", strategy),
                f"{median:.3g} ({min(seconds):.3g} to {max(seconds):.3g})",
                f"{median / first:.2f}",
                f"{found['peak_bytes'] / 1e9:.2f}",
            ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--clients", type=int, nargs="+", default=[3])
    parser.add_argument("--parameters", type=int, default=61_706)
    parser.add_argument("--strategies", nargs="+", choices=STRATEGIES, default=STRATEGIES)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--one", type=json.loads, help=argparse.SUPPRESS)
    given = parser.parse_args()
    logging.getLogger("flwr").setLevel(logging.ERROR)
    if given.one:
        run_app(APP, num_clients=given.clients[0], changes=given.one)
        return
    config = {"num-server-rounds": given.rounds, "parameters": given.parameters}
    table = Table("engine", "clients", "parameters", "strategy", "s a round", "ratio", "GB")
    cases = [(engine, count) for engine in given.engines for count in given.clients]
    for engine, count in track(cases, "measuring", transient=True):
        for row in measure(engine, count, config, given.strategies):
            table.add_row(*row)
    Console().print(f"Seconds: median, fastest and slowest of {given.rounds - 1} rounds")
    Console().print(table)


if __name__ == "__main__":
    main()
