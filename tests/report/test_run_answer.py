"""A run's page leads with what it came to, how sure that is, and why it cost what it did."""

from dataclasses import replace

import pytest
from recorded_run import BUDGET, ROUNDS, recorded_run

from tidegate.report.incidents import incidents
from tidegate.report.live import summary
from tidegate.report.run_answer import run_answer
from tidegate.report.spending import spending_in_words
from tidegate.report.tables import amount
from tidegate.runs.reader import RunView, read_run

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> RunView:
    folder = tmp_path_factory.mktemp("run")
    recorded_run(folder)
    return read_run(folder)


def answer(view: RunView) -> list[str]:
    return run_answer(view, summary(view, 0.0), 0.0, incidents(view)).split("\n")


def ending(view: RunView, above: float, **changed: object) -> RunView:
    """The same run, had it ended so much above its budget."""
    last = view.rounds[-1]
    paid = BUDGET * ROUNDS + above - sum(row.spent for row in view.rounds[:-1])
    rounds = [*view.rounds[:-1], replace(last, spent=paid, overspend=above, cost_debt=999.0)]
    return replace(view, rounds=rounds, **changed)  # type: ignore[arg-type]


def spent(view: RunView) -> str:
    return " ".join(spending_in_words(view, summary(view, 0.0)))


def test_the_first_line_is_the_result(view: RunView) -> None:
    told = summary(view, 0.0)
    first, certainty, *_ = answer(view)
    assert first.startswith(f"After round {ROUNDS} of {ROUNDS}: server/accuracy 0.8, ")
    assert f"{amount(told['spent'])} spent of the {amount(BUDGET * ROUNDS)} that" in first
    assert first.endswith(f"{amount(told['effective_samples'])} effective samples.")
    assert "is that of a single run" in certainty
    assert "In its last 5 measurements it was between 0.4 and 0.8." in certainty


def test_what_was_not_measured_is_not_told_of(view: RunView) -> None:
    silent = replace(view, metrics={"train/loss": {1: 0.5}})
    first, certainty, *_ = answer(silent)
    assert "loss" not in first
    assert "no metric of the model was measured" in certainty


def test_cost_debt_and_exposure_are_explained_where_they_are_given(view: RunView) -> None:
    last = replace(ending(view, 44.0).rounds[-1], exposure=3.0)
    kept = spent(replace(view, rounds=[*view.rounds[:-1], last]))
    assert "; in all overspend 44. The cost debt, " in kept
    assert "is 999; after every round the total overspend was at most the cost debt" in kept
    assert "Orders without a reply may have cost up to 3 more (exposure)." in kept
    assert "exposure" not in spent(replace(view, rounds=[replace(last, exposure=0.0)]))
    broken = spent(replace(view, rounds=[*view.rounds[:-1], replace(last, cost_debt=43.0)]))
    assert "is 43; NOT after every round the total" in broken


def test_spending_ahead_is_explained(view: RunView) -> None:
    free = ending(view, 44.0, options={"spend_ahead": None})
    told = spent(free)
    assert "27.5 a round where the budget allows 22" in told
    assert "It is 44 ahead of the budget, the budget of 2 rounds." in told
    assert "no limit on spending ahead" in told
    assert "This run ended before they had saved it all" in told
    going = spent(ending(view, 44.0, options={"spend_ahead": 5.0}, ending="", num_rounds=100))
    assert "may spend 5 rounds' budget early" in going
    assert "falls towards the budget" in going


def test_money_that_is_left_is_explained(view: RunView) -> None:
    assert "is not spent" not in spent(ending(view, -0.1))
    quiet = spent(ending(view, -44.0))
    assert "44 of the budget is not spent, the budget of 2 rounds." in quiet
    assert "lower prices" in quiet
    troubled = ending(view, -44.0)
    rounds = [replace(row, pause=1, exposure=3.0) for row in troubled.rounds]
    told = spent(replace(troubled, rounds=rounds))
    assert f"buying paused in {ROUNDS - 1} rounds; 3 is reserved for orders without a reply" in told


def test_every_reason_for_money_that_is_left_is_named(view: RunView) -> None:
    behind = ending(view, -44.0)
    apart = [replace(row, slots=row.training_size + 1) for row in behind.rounds]
    apart[2] = replace(apart[2], answered=apart[2].orders - 1)
    apart[4:6] = [replace(row, slots=row.training_size) for row in apart[4:6]]
    told = spent(replace(behind, rounds=apart, policy="constant_admission"))
    assert "in 1 round some orders had no reply" in told
    assert "in 2 rounds all slots were full" in told
    assert "What these do not explain, the policy saved for lower prices." in told
    by_tide = spent(replace(behind, rounds=apart, policy="tide"))
    assert "slots were full" not in by_tide
