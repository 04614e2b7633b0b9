"""A copy with changes is what ``dataclasses.replace`` gives."""

from dataclasses import replace

import pytest

from tidegate._internal.replacing import with_changes
from tidegate.server.account import Account


def test_it_is_what_replace_gives() -> None:
    account = Account(9, total_spent=2.0, batches=((0, 3),))
    changed = with_changes(account, total_spent=3.5, exhausted=True)
    assert changed == replace(account, total_spent=3.5, exhausted=True)
    assert account.total_spent == 2.0
    assert hash(changed) == hash(replace(account, total_spent=3.5, exhausted=True))


def test_a_field_that_is_not_there_is_refused() -> None:
    with pytest.raises(TypeError, match="Account has no spent"):
        with_changes(Account(9), spent=3.0)
