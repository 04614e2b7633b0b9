"""A run's page answers first: what was spent, what it gave, who needs attention, and why."""

import html
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from recorded_run import BUDGET, ROUNDS, recorded_run

from tidegate.cli import main
from tidegate.report.live import summary
from tidegate.report.run_page import write_run_page
from tidegate.report.tables import amount
from tidegate.runs.reader import RunView, read_run

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("no_pictures")]
Words = Callable[[RunView], str]


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> RunView:
    folder = tmp_path_factory.mktemp("run")
    recorded_run(folder)
    return read_run(folder)


@pytest.fixture
def words(tmp_path: Path) -> Words:
    """The words of a run's page."""

    def write(view: RunView) -> str:
        write_run_page(view, tmp_path / "page.html", now=0.0)
        body = (tmp_path / "page.html").read_text("utf-8").partition("<main>")[2]
        return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", body)).split())

    return write


def ending(view: RunView, above: float, **changed: object) -> RunView:
    """The same run, had it ended so much above its budget."""
    last = view.rounds[-1]
    paid = BUDGET * ROUNDS + above - sum(row.spent for row in view.rounds[:-1])
    rounds = [*view.rounds[:-1], replace(last, spent=paid, overspend=above, cost_debt=999.0)]
    return replace(view, rounds=rounds, **changed)  # type: ignore[arg-type]


def test_the_tiles_are_the_answer(view: RunView, words: Words) -> None:
    figures, page = summary(view, 0.0), words(view)
    spent = amount(figures["spent"])
    bought = sum(client.total_admitted for client in view.clients)
    stored = sum(client.stored for client in view.clients)
    assert f"Spent {spent} of {amount(BUDGET * ROUNDS)} " in page
    assert f"server/accuracy 0.8 the highest, in round {ROUNDS}, after spending {spent}." in page
    assert f"{bought} bought {stored} stored, {bought - stored} let go" in page
    assert "Who needs attention Nobody The run is over." in page
    assert page.index("Who needs attention") < page.index("What the money bought")
    assert "In its last 5 measurements server/accuracy was between 0.4 and 0.8." in page


def test_a_run_without_a_name_says_what_it_is(view: RunView, words: Words) -> None:
    assert words(view).startswith("recorded, tide, 22 a round ")
    hashed = replace(view, run="0123456789abcdef" * 2, app="tide/my-fleet", starts=[(0.0, {})])
    assert words(hashed).startswith(f"my-fleet, 1 January, tide, {BUDGET:g} a round ")


def test_constant_admission_is_counted_for_the_same_money(
    view: RunView, words: Words, capsys: pytest.CaptureFixture[str]
) -> None:
    page = words(view)
    (money, counted, measured) = map(
        float,
        re.findall(
            r"For ([\d.]+), constant admission would have had ([\d.]+) .*?; tide had ([\d.]+) ",
            page,
        )[0],
    )
    assert money <= sum(row.spent for row in view.rounds)
    assert measured <= view.rounds[-1].effective_samples
    budget = str(sum(row.spent for row in view.rounds) / ROUNDS)
    with pytest.raises(SystemExit):
        main(
            [
                "plan",
                "--from",
                str(view.folder),
                "--policy",
                "constant_admission",
                "--budget",
                budget,
            ]
        )
    row = re.findall(r"constant_admission.*", capsys.readouterr().out)[0].split()
    assert counted == pytest.approx(ROUNDS * float(row[-2]), rel=0.01)
    assert money == pytest.approx(ROUNDS * float(row[3]), rel=0.01)
    assert "no model was trained for it" in page
    assert "constant admission would" not in words(replace(view, policy="constant_admission"))


def test_what_only_the_theory_needs_is_folded_away(
    view: RunView, words: Words, tmp_path: Path
) -> None:
    page = words(replace(ending(view, 44.0), exposure=3.0))
    assert "it is 999. After every round the total overspend was at most the cost debt" in page
    assert "orders without a reply may have cost up to 3 more" in page
    body = (tmp_path / "page.html").read_text("utf-8").partition("<main>")[2]
    assert "cost debt" not in re.sub(r"<details>.*?</details>", "", body, flags=re.DOTALL)
    last = replace(ending(view, 44.0).rounds[-1], cost_debt=43.0)
    broken = words(replace(view, rounds=[*view.rounds[:-1], last]))
    assert "it is 43. NOT after every round the total" in broken
    assert "BOOKS WRONG" in broken


def test_spending_ahead_is_explained(view: RunView, words: Words) -> None:
    page = words(ending(view, 44.0, options={**view.options, "spend_ahead": None}))
    assert "27.5 a round where the budget allows 22" in page
    assert "44 ahead of the budget, 2 times what a round brings." in page
    assert "no limit on spending ahead" in page
    assert "This run ended before they had saved it all" in page
    options = {**view.options, "spend_ahead": 5.0}
    going = words(ending(view, 44.0, options=options, ending="", num_rounds=100))
    assert "may spend 5 rounds' budget early" in going
    assert "falls towards the budget" in going


def test_money_that_is_left_is_explained(view: RunView, words: Words) -> None:
    assert "of the budget is left" not in words(ending(view, -0.1))
    quiet = words(ending(view, -44.0))
    assert "44 of the budget is left, 2 times what a round brings." in quiet
    assert "lower prices" in quiet
    troubled = ending(view, -44.0)
    paused = [replace(row, pause=1) for row in troubled.rounds]
    page = words(replace(troubled, rounds=paused, exposure=3.0))
    assert f"Buying paused in {ROUNDS - 1} rounds. 3 is reserved for orders without" in page


def test_every_reason_for_money_that_is_left_is_named(view: RunView, words: Words) -> None:
    behind = ending(view, -44.0)
    apart = [replace(row, slots=row.training_size + 1) for row in behind.rounds]
    apart[2] = replace(apart[2], answered=apart[2].orders - 1)
    apart[4:6] = [replace(row, slots=row.training_size) for row in apart[4:6]]
    page = words(replace(behind, rounds=apart, policy="constant_admission"))
    assert "In 1 round some orders had no reply." in page
    assert "In 2 rounds all slots were full." in page
    assert "What these do not explain, the policy saved for lower prices." in page
    assert "slots were full" not in words(replace(behind, rounds=apart, policy="tide"))
