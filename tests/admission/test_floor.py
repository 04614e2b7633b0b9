"""What every client is bought in any case."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.admission.floor import CREDIT, FIRST_AFTER, least_counts, with_least
from tidegate.errors import ConfigurationError
from tidegate.policies import ControlOptions

clients = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(0, 6)), min_size=1, max_size=4
)


@given(clients, st.integers(0, 40))
def test_money_is_never_exceeded_and_who_is_owed_comes_first(
    fleet: list[tuple[int, int, int]], money: int
) -> None:
    wanted, least, prices = (np.array(column) for column in zip(*fleet, strict=True))
    counts, owed = with_least(wanted, least, prices.astype(np.float64), float(money))
    assert float(counts @ prices) <= money
    assert (owed <= counts).all()
    assert (counts <= np.maximum(wanted, least)).all()
    due = np.where(least > wanted, least, 0)
    if due @ prices <= money:
        assert (owed == due).all()


@given(clients)
def test_without_a_limit_each_has_what_it_wants_or_is_owed(
    fleet: list[tuple[int, int, int]],
) -> None:
    wanted, least, prices = (np.array(column) for column in zip(*fleet, strict=True))
    counts, _ = with_least(wanted, least, prices.astype(np.float64), float("inf"))
    assert counts.tolist() == np.maximum(wanted, least).tolist()


def test_over_a_run_each_is_bought_its_least() -> None:
    """Counted round by round: never more than is owed, and less than a sample behind."""
    money, prices, share = np.array([4.0, 4.0, 8.0]), np.array([1.5, 7.0, 11.0]), 0.25
    spent, stored = np.zeros(3), np.zeros(3, dtype=np.int64)
    for now in range(1, 200):
        count = least_counts(share, money, prices, spent, stored, now)
        spent, stored = spent + count * prices, stored + count
        assert (share * money * now - spent < prices).all()
        assert (spent <= share * money * max(now, CREDIT + now)).all()


@pytest.mark.parametrize("now", [1, FIRST_AFTER + 1])
@pytest.mark.parametrize("price", [5.0, 1e6])
def test_the_first_sample_comes_on_credit_unless_it_is_out_of_all_bounds(
    now: int, price: float
) -> None:
    count = least_counts(0.25, np.ones(1), np.array([price]), np.zeros(1), np.zeros(1, int), now)
    assert count.tolist() == [int(now > FIRST_AFTER and price <= CREDIT * 0.25)]


@pytest.mark.parametrize("share", [-0.1, 1.5, float("nan")])
def test_what_is_no_share_is_refused(share: float) -> None:
    with pytest.raises(ConfigurationError, match="least_share must be from 0 to 1"):
        ControlOptions(least_share=share)


def test_who_empties_its_buffer_or_has_just_joined_is_not_owed_more() -> None:
    money, dear = np.full(1, 4.0), np.array([20.0])
    spent = 0.0
    for now in range(1, 201):  # a buffer that is always empty: a cap of one use
        count = least_counts(0.25, money, dear, np.array([spent]), np.zeros(1, int), now)
        spent += 20.0 * int(count[0])
    assert spent <= 0.25 * 4.0 * (200 + CREDIT)
    joined = least_counts(0.25, np.full(1, 10.0), dear, np.zeros(1), np.zeros(1, int), 2001)
    assert joined.tolist() == [2]  # 20 rounds' money
    assert least_counts(0.25, money, np.array([1e-20]), np.zeros(1), np.zeros(1, int), 9) > 0
