"""The grid of ACDPP's settings: some of its rows again, and its table."""

import math
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from check_size import at_size
from csv_rows import read
from experiment_scripts import FOLDER, load

import tidegate
from tidegate.admission.interval import ClosingInterval

pytestmark = pytest.mark.no_cover  # long loops, covered elsewhere

GRID = FOLDER / "grid"


@pytest.fixture
def grid(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load(GRID / "grid.py", monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize(
    ("constants", "phi", "weight"),
    [
        ("constant_admission", math.nan, math.nan),
        ("default", 0.5, 10.0),
        ("released", 0.9, 1000.0),
        ("measured", 0.8, 1e6),
    ][: at_size(2, 4)],
)
def test_a_row_is_computed_again(
    constants: str, phi: float, weight: float, grid: ModuleType
) -> None:
    setting = grid.Setting(100, constants, phi, weight)
    rows = [row for row in read(GRID / "expected.csv") if tuple(row.values())[:4] == setting.key]
    assert rows == [grid.measured(setting, seeds=10)]


def test_every_setting_has_its_row_at_equal_spending(grid: ModuleType) -> None:
    rows = read(GRID / "expected.csv")
    assert [tuple(row.values())[:4] for row in rows] == [
        setting.key for setting in grid.settings([100, 1000])
    ]
    assert len(rows) == 2 * 211
    for row in rows:
        assert float(row["spent"]) == pytest.approx(55.0, rel=grid.TOLERANCE), row


def test_its_page_shows_the_table(grid: ModuleType) -> None:
    page = (GRID / "README.md").read_text("utf-8")
    assert "\n".join(grid.summary(read(GRID / "expected.csv"))) in page


def test_what_was_done_is_not_done_again(
    grid: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "expected.csv").write_bytes((GRID / "expected.csv").read_bytes())
    grid.main(tmp_path, [100, 1000], seeds=10, workers=1, minutes=math.inf)
    assert "422 of 422 rows" in capsys.readouterr().out


def test_as_printed_the_rule_is_bang_bang(grid: ModuleType) -> None:
    """In rounds with an open interval it always takes one of the ends."""
    mnist = tidegate.EXPERIMENTS["mnist"]
    problem = mnist.problem(at_size(300, 1000))
    policy = tidegate.make_policy("acdpp", problem)
    interval = getattr(policy.admission, "interval", None)
    assert isinstance(interval, ClosingInterval)
    choices = [
        grid.choices(tidegate.simulate(policy, problem, mnist.price, seed), interval)
        for seed in range(at_size(3, 10))
    ]
    open_rounds, interior = np.sum(choices, axis=0)
    assert open_rounds > 150 * len(choices)
    assert interior == 0
