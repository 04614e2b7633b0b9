"""Every promise of docs/guarantees.md has tests that run, and ``guards.toml`` names them."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
GUARDS: dict[str, dict[str, list[str]]] = tomllib.loads(
    (ROOT / "tests" / "guards.toml").read_text("utf-8")
)


def test_each_promise_of_the_page_has_a_guard_and_no_guard_is_left_over() -> None:
    page = (ROOT / "docs" / "guarantees.md").read_text("utf-8")
    promises = [name.strip(".,") for name in re.findall(r"^\| \*\*(.+?)\*\*", page, re.MULTILINE)]
    assert promises == list(GUARDS)


def marks(guard: str) -> str:
    """The decorators of a test, or what it is assigned from."""
    file, _, name = guard.partition("::")
    for node in ast.parse((ROOT / "tests" / file).read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return " ".join(map(ast.unparse, node.decorator_list))
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return ast.unparse(node.value)
    raise AssertionError(f"there is no test {guard}")


@pytest.mark.parametrize("promise", GUARDS)
def test_every_promise_has_a_test_that_runs(promise: str) -> None:
    guards = GUARDS[promise]
    assert guards["tests"], f"nothing guards this at each change: {promise}"
    for guard in guards["tests"]:
        assert "mark.full" not in marks(guard), guard
    for guard in guards.get("full", []):
        assert "mark.full" in marks(guard), guard
