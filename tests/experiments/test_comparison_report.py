"""Runs side by side, on results whose comparison is known beforehand."""

import csv
import math
from pathlib import Path

import pytest
from made_results import make_results
from rich.console import Console

from experiments.tool.comparison import Comparison, write_tables
from experiments.tool.figures import draw
from experiments.tool.page import write_comparison_page
from experiments.tool.results import read_results
from tidegate.policies import POLICIES
from tidegate.report.figures import look_of, looks_of

ACCURACIES = {
    "costless_oracle": [[0.5, 0.9], [0.7, 0.9]],
    "constant_admission": [[0.3, 0.5], [0.45, 0.4]],
    "tide": [[0.4, 0.7], [0.2, 0.65]],
}


@pytest.fixture
def comparison(tmp_path: Path) -> Comparison:
    about, results = read_results(make_results(tmp_path / "made", ACCURACIES))
    return Comparison(results, about)


def test_differences_are_taken_on_equal_seeds(comparison: Comparison) -> None:
    # Best of each run: tide 70 and 65, constant admission 50 and 45.
    gain = comparison.difference("tide", "best_accuracy")
    assert gain is not None
    assert gain.mean == pytest.approx(20.0)
    assert gain.half_width == pytest.approx(0.0, abs=1e-9)  # the same on both seeds
    closed, whole = comparison.gap_closed("tide"), comparison.gap_closed("costless_oracle")
    assert closed is not None
    assert whole is not None
    assert closed.mean == pytest.approx(20 / 42.5)
    assert whole.mean == pytest.approx(1.0)
    assert comparison.measures("tide")["mean_accuracy"].mean == pytest.approx(48.75)


def test_the_first_round_that_reaches_a_target_is_told(comparison: Comparison) -> None:
    assert comparison.rounds_to("costless_oracle", 0.5) == (1.0, 2)
    assert comparison.rounds_to("tide", 0.5) == (2.0, 2)
    median, reached = comparison.rounds_to("constant_admission", 0.5)
    assert math.isinf(median)  # one run in two
    assert reached == 1


def test_rows_are_plain_and_tables_show_them(comparison: Comparison, tmp_path: Path) -> None:
    _, constant, tide = comparison.rows()
    assert tide["best_accuracy"] == 67.5
    assert tide["limit_reached"] == 0.5
    assert tide["best_accuracy_gain"] == 20.0
    assert constant["rounds_to_50"] is None
    summary, rounds = write_tables(comparison, tmp_path / "out")
    with summary.open() as lines:
        read = list(csv.DictReader(lines))
    assert [row["policy"] for row in read] == list(ACCURACIES)
    assert float(read[2]["peak_stored"]) == 50
    with rounds.open() as lines:
        curve = [row for row in csv.DictReader(lines) if row["policy"] == "tide"]
    assert [float(row["best"]) for row in curve] == pytest.approx([30, 67.5])
    console = Console(width=170, record=True, file=(tmp_path / "shown").open("w"))
    console.print(comparison.table())
    shown = console.export_text()
    assert "47%" in shown  # of the gap
    assert "- (1/2)" in shown
    assert "50%" in shown  # of the limit
    assert "a part of 20," in comparison.legend()
    console.file.close()


def test_a_policy_without_a_budget_has_no_limit(comparison: Comparison) -> None:
    (limits,) = [one for one in comparison.table().columns if one.header == "limit"]
    assert list(limits.cells) == ["-", "50%", "50%"]


def lead_of(folder: Path, accuracies: dict[str, list[list[float]]]) -> str:
    about, results = read_results(make_results(folder / "results", accuracies))
    page = folder / "page.html"
    write_comparison_page(Comparison(results, about), page, "python -m experiments compare")
    several = any(len(runs) > 1 for runs in accuracies.values())
    assert ("bands 80% intervals" in page.read_text("utf-8")) is several
    return page.read_text("utf-8").partition('class="lead">')[2].partition("</p>")[0]


def test_a_page_leads_with_the_lead_and_its_interval(tmp_path: Path) -> None:
    told = lead_of(tmp_path, ACCURACIES)
    assert told.startswith("tide leads constant_admission by 20.0 ±0.0 points on the same seeds")
    assert told.endswith("costless_oracle, which has no budget, reaches 90.0 ±0.0 %.")


@pytest.mark.no_cover
@pytest.mark.long
def test_a_difference_that_may_be_chance_is_not_called_a_lead(tmp_path: Path) -> None:
    near = {"tide": [[0.6], [0.4], [0.5]], "tide-margin": [[0.5], [0.52], [0.4]]}
    told = lead_of(tmp_path / "several", near)
    assert told.startswith("No policy leads for certain: tide and tide-margin differ by 2.67 ±")
    assert " leads tide" not in told
    told = lead_of(tmp_path / "single", {label: runs[:1] for label, runs in near.items()})
    assert told.startswith("tide is 10.0 points above tide-margin on the one seed")
    assert "may be chance" in told
    told = lead_of(tmp_path / "alone", {"tide": [[0.6], [0.4]]})
    assert told.startswith("tide reaches 50.0 ±")


def test_two_labels_of_one_policy_do_not_look_alike() -> None:
    assert look_of("tide") == ("#009E73", "-")
    assert len({colour for colour, _ in map(look_of, POLICIES)}) == len(POLICIES)
    looks = looks_of(["tide", *(f"tide-{number}" for number in range(12))])
    assert looks["tide"] == look_of("tide")
    assert len({str(look) for look in looks.values()}) == len(looks) == 13


def test_pictures_are_drawn(comparison: Comparison, tmp_path: Path) -> None:
    for path in draw(comparison, tmp_path / "out"):
        assert path.read_bytes().startswith(b"\x89PNG")
        assert path.stat().st_size > 20_000


def test_a_folder_without_results_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has no finished run"):
        read_results(tmp_path)
