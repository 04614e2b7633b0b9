"""The table of a page says what the CSV file behind it says."""

import re
from pathlib import Path

import pytest
from csv_rows import read
from made_results import make_results

from experiments.tool.comparison import Comparison, write_tables
from experiments.tool.markdown import markdown_table
from experiments.tool.results import read_results

ROOT = Path(__file__).parents[2]
PUBLISHED = sorted(
    file for file in (ROOT / "experiments").glob("*/*.csv") if file.stem.startswith("expected")
    and "best_accuracy_gain" in file.read_text("utf-8").partition("\n")[0]
)  # fmt: skip
ON_THE_PAGE = (
    "acdpp", "acdpp-released_settings", "acdpp-released_settings-matched", "tide",
    "costless_oracle",
)  # fmt: skip
ACCURACIES = {
    "costless_oracle": [[0.5, 0.9], [0.7, 0.9]],
    "constant_admission": [[0.3, 0.5], [0.45, 0.4]],
    "tide": [[0.4, 0.7], [0.2, 0.65]],
}


def test_rows_and_the_file_that_is_made_of_them_have_the_same_table(tmp_path: Path) -> None:
    about, results = read_results(make_results(tmp_path / "made", ACCURACIES))
    comparison = Comparison(results, about)
    summary, _ = write_tables(comparison, tmp_path)
    table = markdown_table(comparison.rows())
    assert markdown_table(read(summary)) == table
    _, _, oracle, constant, tide = table.splitlines()
    # Best of each run: the oracle 90 and 90, constant admission 50 and 45, tide 70 and 65.
    assert oracle.startswith("| costless_oracle | 90.0 ± 0.0 | 42.50 ± 31.77 | 100% | ")
    assert constant.startswith("| constant_admission | 47.5 ± 31.8 |  | 0% | ")
    assert tide.startswith("| tide | 67.5 ± 31.8 | 20.00 ± 0.00 | 47% (")


def test_what_is_not_reached_or_not_known_is_told(tmp_path: Path) -> None:
    about, results = read_results(make_results(tmp_path / "made", ACCURACIES))
    rows = Comparison(results, about).rows()
    rows[2] |= {"best_accuracy_gap_closed_low": None, "best_accuracy_gap_closed_high": None}
    table = markdown_table(rows)
    assert "| 47% (?) |" in table
    constant = table.splitlines()[3]
    assert constant.endswith("| - (1 of 2) |"), "50 % in one run of two"
    without = [row | {"best_accuracy_gap_closed": None} for row in rows]
    assert "gap" not in markdown_table(without).splitlines()[0]


@pytest.mark.parametrize("file", PUBLISHED, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_the_folder_shows_what_was_published(file: Path) -> None:
    assert markdown_table(read(file)) in (file.parent / "README.md").read_text("utf-8")


@pytest.mark.parametrize("file", PUBLISHED, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_the_page_shows_the_gains_that_were_published(file: Path) -> None:
    page = (ROOT / "docs" / "reproduction.md").read_text("utf-8")
    (line,) = re.findall(
        rf"^\| \[.*\({file.relative_to(ROOT)}\) .*$", page.replace("../", ""), re.M
    )
    heading, _, *rows = map(cells, markdown_table(read(file)).splitlines())
    published = {row[0]: dict(zip(heading, row, strict=True)) for row in rows}
    _, _, baseline, *gains = cells(line)
    assert baseline == published["constant_admission"]["best, %"]
    assert gains == [published.get(name, {}).get("gain, points", "") for name in ON_THE_PAGE]


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def test_every_experiment_that_is_compared_is_on_the_page() -> None:
    assert {"cifar10-features", "imagenette-features", "mnist-logistic"} <= {
        file.parent.name for file in PUBLISHED
    }
