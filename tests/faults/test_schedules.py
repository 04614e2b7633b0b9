"""Schedules of faults by number; one that fails is played again by its number alone."""

import pytest
from world import play_schedule

IN_ONE_TEST = 25


@pytest.mark.no_cover
@pytest.mark.parametrize("first", range(0, 200, IN_ONE_TEST))
def test_books_reconcile_whatever_happens(first: int) -> None:
    for number in range(first, first + IN_ONE_TEST):
        try:
            play_schedule(number)
        except BaseException as failure:
            raise AssertionError(f"schedule {number} ends in {failure!r}") from failure
