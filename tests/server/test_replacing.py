"""A copy with changes is what ``dataclasses.replace`` gives."""

from dataclasses import replace

import pytest

from tidegate.server.account import Account, with_changes


def test_it_is_what_replace_gives() -> None:
    account = Account(9, buffer_id="b", missing=(0, 3))
    changed = with_changes(account, missing=(), candidates=4)
    assert changed == replace(account, missing=(), candidates=4)
    assert account.missing == (0, 3)


def test_a_field_that_is_not_there_is_refused() -> None:
    with pytest.raises(TypeError, match="Account has no spent"):
        with_changes(Account(9), spent=3.0)
