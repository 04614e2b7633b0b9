"""Every promise of docs/guarantees.md has a test that runs at each change, and one at full size."""

import ast
import functools
import itertools
import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any, Literal

import pytest

ROOT = Path(__file__).parent.parent


def rows() -> list[tuple[str, str, str]]:
    """(promise, tests at every change, tests at full size), as the page has them."""
    page = (ROOT / "docs" / "guarantees.md").read_text("utf-8")
    section = page.split("## Which test guards what")[1].split("\n## ")[0]
    lines = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    return [(promise.strip(), change, full) for promise, change, full in lines[2:]]


def guards() -> list[tuple[set[str], set[str]]]:
    """(at every change, at full size) of each promise: the tests that the page names."""
    found = []
    for promise, change, full in rows():
        small, large = (set(re.findall(r"`([\w/]+\.py::\w+)", cell)) for cell in (change, full))
        assert small, f"nothing guards this at each change: {promise}"
        assert large or "the same" in full, f"nothing guards this at full size: {promise}"
        found.append((small, small | large))  # what runs at each change runs at full size, too
    return found


class AtOneSize(ast.NodeTransformer):
    """Puts what a test takes at each change, or at full size, in place of ``at_size(...)``."""

    def __init__(self, arm: Literal[0, 1]) -> None:
        self.arm = arm

    def visit_Call(self, node: ast.Call) -> Any:
        if isinstance(node.func, ast.Name) and node.func.id == "at_size":
            return self.visit(node.args[self.arm])
        return self.generic_visit(node)


@functools.cache
def parts(file: str, arm: Literal[0, 1]) -> dict[str, list[ast.stmt]]:
    """What a test's file defines at one of the sizes, by name."""
    tree = AtOneSize(arm).visit(ast.parse((ROOT / "tests" / file).read_text("utf-8")))
    found = defaultdict[str, list[ast.stmt]](list)
    for one in tree.body:
        for target in getattr(one, "targets", [getattr(one, "target", one)]):
            named = target.value if isinstance(target, ast.Attribute) else target
            found[getattr(named, "name", getattr(named, "id", ""))].append(one)
    return found


def numbers_in_test(test: str, arm: Literal[0, 1]) -> set[float]:
    """The numbers in a test, and in whatever of its file the test uses, at one of the sizes."""
    file, name = test.split("::")
    known = parts(file, arm)
    found, seen, due = set[float](), set[str](), [name]
    while due:
        seen.add(part := due.pop())
        for one in itertools.chain.from_iterable(map(ast.walk, known[part])):
            if isinstance(one, ast.Constant) and isinstance(one.value, int | float):
                found.add(one.value)
            if isinstance(one, ast.Name) and one.id in known.keys() - seen:
                due.append(one.id)
    return found


def numbers_said(cell: str) -> set[float]:
    """The numbers that a cell gives in brackets and in digits; 95 % is 0.95 in a test."""
    found = set[float]()
    for said in re.findall(r"\(([^()]*)\)", cell):
        for number, percent in re.findall(r"(\d(?:[\d,]*\d)?)( %)?", said):
            value = int(number.replace(",", ""))
            found.add(value / 100 if percent else value)
    return found


@pytest.mark.parametrize(("promise", "change", "full"), rows(), ids=[row[0] for row in rows()])
def test_sizes_are_those_of_the_tests(promise: str, change: str, full: str) -> None:
    """A test that changes its size must change the page."""
    tests = [re.findall(r"`([\w/]+\.py::\w+)`", cell) for cell in (change, change + full)]
    small = set[float]().union(*(numbers_in_test(one, 0) for one in tests[0]))
    large = set[float]().union(*(numbers_in_test(one, 1) for one in tests[1]))
    assert sorted(numbers_said(change) - small) == [], promise
    assert sorted(numbers_said(full) - large) == [], promise


@pytest.mark.process
@pytest.mark.share(120)  # it collects a good part of the tests
@pytest.mark.parametrize("size", ["check", "full"])
def test_every_promise_has_a_test_that_runs(size: str) -> None:
    named = set[str]().union(*(row[size == "full"] for row in guards()))
    files = sorted({f"tests/{name.split('::')[0]}" for name in named})
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *files],
        cwd=ROOT, env={**os.environ, "TIDEGATE_CHECK": size},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    selected = set(re.findall(r"^tests/([\w/]+\.py::\w+)", done.stdout, re.MULTILINE))
    assert len(named) > 30
    assert sorted(named - selected) == []
