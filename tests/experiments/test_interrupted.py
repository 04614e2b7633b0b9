"""A command that is interrupted or killed, with its runs in processes of their own."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from check_size import at_size
from deployment import wait_for

from experiments.tool.results import CONFIG, UNFINISHED

ROOT = Path(__file__).parents[2]
WORKERS = at_size(1, 2)
EXPERIMENT = """
title = "small"
data = "{data}"
model = "logistic"
learning_rate = 0.1
capacities = [8, 8]
partition = "iid"
budget = 5.0
rounds = 3000
judge_every = 3000
seeds = 8
policies = [{{name = "constant_admission"}}]
"""


@pytest.mark.share(120)  # two processes that load torch, one after the other
@pytest.mark.process
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_nothing_goes_on_after_the_command(small: str, tmp_path: Path, how: signal.Signals) -> None:
    (tmp_path / "mine.toml").write_text(EXPERIMENT.format(data=small))
    command = [sys.executable, "-m", "experiments", "run", "mine.toml", "--workers", f"{WORKERS}"]
    # Where the tests themselves run in the background, interrupts are ignored, and that is passed
    # on; what is handled is not.
    ours = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        begun = subprocess.Popen(
            command,
            cwd=tmp_path,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
    finally:
        signal.signal(signal.SIGINT, ours)
    runs = tmp_path / "runs" / "mine" / "constant_admission"
    workers = wait_for(lambda: all_at_work(runs), "runs under way")
    begun.send_signal(how)
    begun.communicate(timeout=60)
    assert begun.returncode != 0
    wait_for(lambda: None if any(map(alive, workers)) else True, "the end of the workers", 60)
    assert len(list(runs.glob(f"*/{CONFIG}"))) == WORKERS  # of eight


def all_at_work(runs: Path) -> set[int] | None:
    """Their processes, by the names of the rows that they write."""
    found = {int(rows.suffix.split("-")[1]) for rows in runs.glob(f"*/{UNFINISHED}-*")}
    return found if len(found) == WORKERS else None


def alive(process: int) -> bool:
    """Neither gone nor waiting to be forgotten."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"
