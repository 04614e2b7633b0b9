"""The site is built without a warning, and its pages show code as code."""

import html
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tidegate

pytestmark = [
    pytest.mark.long,
    pytest.mark.no_cover,
    pytest.mark.process,
    pytest.mark.xdist_group("test_site"),  # they share a site that is built once
]

ROOT = Path(__file__).parent.parent
API = ("reference/python", "reference/flower")
WIDEST = 80
"""Characters of code in a line of a page, in a window of 1,300 pixels."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder


def page(site: Path, name: str) -> str:
    return (site / name / "index.html").read_text("utf-8")


def text(markup: str) -> str:
    return html.unescape(re.sub(r"<[^>]+>", "", markup))


def test_the_site_has_its_pages_and_the_help_of_every_command(site: Path) -> None:
    for name in (*API, "howto/write-a-policy", "scale"):
        assert page(site, name)
    assert "tidegate plan" in page(site, "reference/commands")


@pytest.mark.parametrize("name", API)
def test_examples_of_docstrings_are_code(site: Path, name: str) -> None:
    shown = page(site, name)
    code = re.findall(r'<div class="language-pycon highlight">.*?</div>', shown, re.DOTALL)
    assert sum(text(example).count(">>> ") for example in code) == text(shown).count(">>> ") > 10
    assert "<blockquote" not in shown  # what Markdown makes of a doctest without a fence
    assert "# doctest:" not in shown


@pytest.mark.parametrize("name", API)
def test_signatures_are_wrapped(site: Path, name: str) -> None:
    signatures = re.findall(
        r'<div class="[^"]*doc-signature[^"]*">(.*?)</div>', page(site, name), re.DOTALL
    )
    assert len(signatures) > 50
    assert [
        line for each in signatures for line in text(each).splitlines() if len(line) > WIDEST
    ] == []


def test_search_finds_every_public_name(site: Path) -> None:
    index = json.loads((site / "search/search_index.json").read_text("utf-8"))
    found = {entry["location"].rpartition(".")[2] for entry in index["docs"]}
    assert set(tidegate.__all__) - found == set()
    assert {"AdmissionControl", "ClientGate"} <= found


def test_commands_are_wrapped_and_printed_tables_are_not(site: Path) -> None:
    blocks = re.findall(
        r'<div class="language-\w+ (columns (?:wide )?)?highlight">(.*?)</div>',
        page(site, "policies") + page(site, "howto/deploy-with-tls"),
        re.DOTALL,
    )
    tables = [text(block) for marked, block in blocks if marked]
    others = [text(block) for marked, block in blocks if not marked]
    assert any("constant_admission  " in table for table in tables)
    assert any("openssl req" in other for other in others)
    assert not any("openssl req" in table for table in tables)
    assert "styles/site.css" in page(site, "policies")
