"""Every promise of docs/guarantees.md has a test that runs at each change, and one at full size."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def guards() -> list[tuple[set[str], set[str]]]:
    """(at every change, at full size) of each promise: the tests that the page names."""
    page = (ROOT / "docs" / "guarantees.md").read_text("utf-8")
    section = page.split("## Which test guards what")[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    found = []
    for promise, change, full in rows[2:]:
        small, large = (set(re.findall(r"`([\w/]+\.py::\w+)", cell)) for cell in (change, full))
        assert small, f"nothing guards this at each change: {promise}"
        assert large or "the same" in full, f"nothing guards this at full size: {promise}"
        found.append((small, small | large))  # what runs at each change runs at full size, too
    return found


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
