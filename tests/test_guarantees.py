"""Every promise of docs/guarantees.md has tests that run, and ``guards.toml`` names them."""

import os
import re
import subprocess
import sys
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


@pytest.mark.process
@pytest.mark.share(120)  # it collects a good part of the tests
@pytest.mark.parametrize("size", ["check", "full"])
def test_every_promise_has_a_test_that_runs(size: str) -> None:
    named = set[str]()
    for promise, guards in GUARDS.items():
        assert guards["tests"], f"nothing guards this at each change: {promise}"
        named.update(guards["tests"], guards.get("full", []) if size == "full" else [])
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
