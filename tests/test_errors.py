"""Errors by what a caller can do about them, and what the command line makes of each."""

import pytest

import tidegate.cli.simulate as simulate_command
from tidegate import errors
from tidegate.cli import main
from tidegate.errors import (
    ConfigurationError,
    DamagedFileError,
    RunDiffersError,
    SupplierError,
    TidegateError,
    WireError,
)


def test_every_kind_is_a_tidegate_error() -> None:
    kinds = [one for one in vars(errors).values() if isinstance(one, type)]
    assert all(issubclass(one, TidegateError) for one in kinds)
    assert len(kinds) == 8
    assert not issubclass(SupplierError, ValueError)  # no value of the caller's is wrong


def test_each_carries_what_a_caller_needs() -> None:
    damaged = DamagedFileError("run/books.sqlite", "is damaged (too short)", "take a copy")
    assert str(damaged) == "run/books.sqlite is damaged (too short); take a copy"
    assert (damaged.source, damaged.remedy) == ("run/books.sqlite", "take a copy")
    differs = RunDiffersError("made with budget = 5", name="budget", saved=5, given=7)
    assert (differs.name, differs.saved, differs.given) == ("budget", 5, 7)
    failed = SupplierError("the price feed", "does not answer")
    assert str(failed) == "the price feed does not answer"
    assert (failed.supplier, failed.reason) == ("the price feed", "does not answer")


@pytest.mark.parametrize(
    "mistake",
    [
        ConfigurationError("budget must be positive, got -1"),
        WireError("no round"),
        DamagedFileError("a file", "is damaged", "take a copy"),
        RunDiffersError("another run", name="run", saved="a", given="b"),
    ],
)
def test_a_mistake_of_the_users_is_one_line_on_the_command_line(
    mistake: TidegateError, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise mistake

    monkeypatch.setattr(simulate_command, "run_policies", refuse)
    with pytest.raises(SystemExit) as ended:
        main(["simulate", "--rounds", "5"])
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"tidegate: {mistake}\n"


@pytest.mark.parametrize("bug", [ValueError("inside"), SupplierError("the price feed", "failed")])
def test_what_is_not_the_users_mistake_shows_its_traceback(
    bug: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise bug from KeyError("in the user's own code")

    monkeypatch.setattr(simulate_command, "run_policies", fail)
    with pytest.raises(type(bug), match=str(bug)):
        main(["simulate", "--rounds", "5"])
