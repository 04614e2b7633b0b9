"""Every promise of docs/guarantees.md has a test that runs at each change, and one at full size."""

import os
import re
import subprocess
import sys
from pathlib import Path

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


def numbers(text: str) -> set[str]:
    """The numbers of a page or of a test's code, written alike; 95 % is 0.95 in code."""
    text = re.sub(r"\b(\d\d) %", r"0.\1", text)
    return {re.sub("[,_]", "", one) for one in re.findall(r"\d(?:[\d,_]*\d)?(?:\.\d+)?", text)}


@pytest.mark.parametrize(("promise", "change", "full"), rows(), ids=[row[0] for row in rows()])
def test_sizes_are_those_of_the_tests(promise: str, change: str, full: str) -> None:
    """A test that changes its size must change the page."""
    for cell in (change, full):
        files = set(re.findall(r"`([\w/]+\.py)::", change + cell))
        code = set[str]().union(*(numbers((ROOT / "tests" / one).read_text()) for one in files))
        said = set[str]().union(*map(numbers, re.findall(r"\(([^()]*)\)", cell)))
        assert sorted(said - code) == [], promise


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
