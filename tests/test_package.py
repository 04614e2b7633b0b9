import subprocess
import sys

import pytest

import tidegate


def fresh(code: str) -> str:
    """Run code in a new interpreter; what it prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.process
def test_importing_loads_neither_torch_nor_flwr_nor_the_command_line() -> None:
    loaded = fresh("import sys, tidegate; print(*sorted({m.split('.')[0] for m in sys.modules}))")
    assert not {"torch", "flwr", "typer", "rich", "pydantic", "matplotlib"} & set(loaded.split())


@pytest.mark.process
@pytest.mark.timing
def test_importing_takes_less_than_300_milliseconds() -> None:
    """Processor time of the importing thread, so that a busy machine does not count.

    Where NumPy alone is slow to load (a slow machine, old releases), what is ours may take as much
    longer as NumPy does.
    """
    timed = (
        "import time; start = time.thread_time(); import numpy; middle = time.thread_time();"
        "import tidegate; print(middle - start, time.thread_time() - middle)"
    )
    runs = [tuple(map(float, fresh(timed).split())) for _ in range(7)]
    numpy_alone, ours = (min(column) for column in zip(*runs, strict=True))
    slowness = max(numpy_alone / 0.075, 1.0)
    assert ours < 0.15 * slowness
    assert numpy_alone + ours < 0.3 * slowness


def test_everything_public_exists_and_is_documented() -> None:
    for name in tidegate.__all__:
        assert getattr(tidegate, name).__doc__, name
    names = tidegate.__all__
    assert names == sorted(names, key=lambda name: (not name.isupper(), name[0].islower(), name))


@pytest.mark.process
def test_it_runs_as_a_module() -> None:
    command = [sys.executable, "-m", "tidegate", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"tidegate {tidegate.__version__}"
