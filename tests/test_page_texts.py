"""What the pages say, looked at without running anything."""

import re
from pathlib import Path

import pytest

import tidegate

ROOT = Path(__file__).parent.parent
OF_THE_PROJECT = [
    ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG", "ROADMAP")
]
PAGES = [*OF_THE_PROJECT, *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_page_is_empty_or_unfinished(page: Path) -> None:
    text = page.read_text("utf-8")
    assert len(text.splitlines()) > 10
    assert not re.search(r"@[A-Z]+@| @@ [a-z]|TODO|TBD", text)


def test_every_part_of_the_reference_says_what_it_holds() -> None:
    """Before the docstrings, which are only in the site."""
    for page in (ROOT / "docs" / "reference").glob("*.md"):
        for heading, below in re.findall(
            r"^(#+ .*)\n+(.*)$", page.read_text("utf-8"), re.MULTILINE
        ):
            assert not below.startswith(":::"), f"{page.name}: {heading}"


def test_links_lead_somewhere() -> None:
    beside = [
        page
        for folder in ("benchmarks", "experiments", "tests")
        for page in (ROOT / folder).rglob("*.md")
    ]
    for page in [*PAGES, *beside]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text("utf-8")):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def newest_entry(changelog: str) -> str:
    """The name of the first section that says anything."""
    sections = re.split(r"^## \[(.+?)\].*$", changelog, flags=re.MULTILINE)[1:]
    told = (name for name, text in zip(sections[::2], sections[1::2], strict=True) if text.strip())
    return next(told)


def entry_of(version: str) -> str:
    """Where a version is described: on the way to a release, under what is not yet released."""
    return "Unreleased" if ".dev" in version else version


def test_the_changelog_knows_the_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert newest_entry(changelog) == entry_of(tidegate.__version__)


def test_a_changelog_that_lags_behind_the_version_is_found() -> None:
    released = "## [Unreleased]\n\n## [0.1.0] - 2026-11-16\n\n- All of it.\n"
    assert newest_entry(released) == entry_of("0.1.0")
    assert newest_entry(released) != entry_of("0.2.0")
    assert newest_entry(released) != entry_of("0.2.0.dev0")
