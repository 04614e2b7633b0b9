"""What a SuperLink spends on nodes that have nothing to do: they ask for messages every 3 s.

    python benchmarks/superlink.py

Opens connections as SuperNodes do, without TLS, and asks as fast as answers come. Printed is the
processor time of the SuperLink for one question, and how many nodes one core would keep that way.
"""

import argparse
import contextlib
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flwr.supernode.fleet_http_connection import http_request_response
from rich.console import Console
from rich.progress import track
from rich.table import Table

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests" / "helpers"))

from deployment import SuperLink  # noqa: E402

SECONDS_BETWEEN_POLLS = 3
ASKING = 8
"""Threads that ask at the same time."""


def processor_seconds(process: int) -> float:
    """Of a process so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ask(nodes: list[Callable[[], Any]], seconds: float) -> int:
    """Ask for all nodes in turn, from several threads; how often."""
    end, counts = time.monotonic() + seconds, [0] * ASKING

    def some(number: int) -> None:
        mine = nodes[number::ASKING]
        while mine and time.monotonic() < end:
            mine[counts[number] % len(mine)]()
            counts[number] += 1

    threads = [threading.Thread(target=some, args=(number,)) for number in range(ASKING)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts)


def measure(count: int, seconds: float, *, database: bool) -> list[str]:
    """One row: nodes that are connected, and what their questions cost."""
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as open_ones:
        folder = Path(name)
        options = ["--insecure", *(["--database", str(folder / "state.db")] if database else [])]
        link = SuperLink(folder / "link", connection="insecure = true", options=options)
        open_ones.enter_context(link)
        nodes = []
        for _ in range(count):
            _, receive, *_ = open_ones.enter_context(
                http_request_response(f"127.0.0.1:{link.port}", insecure=True)
            )
            nodes.append(receive)
        ask(nodes, 1.0)  # warms up
        before = processor_seconds(link.link.pid)
        asked = ask(nodes, seconds)
        each = (processor_seconds(link.link.pid) - before) / asked
        return [
            *(f"{count:,}", "SQLite" if database else "memory", f"{asked / seconds:,.0f}"),
            *(f"{1000 * each:.2f}", f"{SECONDS_BETWEEN_POLLS / each:,.0f}"),
        ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=[10, 100, 400])
    parser.add_argument("--seconds", type=float, default=10.0)
    given = parser.parse_args()
    table = Table("nodes", "state in", "polls a second", "ms of a core each", "nodes a core")
    cases = [(count, database) for database in (False, True) for count in given.nodes]
    for count, database in track(cases, "measuring", transient=True):
        table.add_row(*measure(count, given.seconds, database=database))
    Console().print(table)


if __name__ == "__main__":
    main()
