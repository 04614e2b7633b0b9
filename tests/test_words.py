"""Short sentences and paragraphs, and words of ours only where they are explained."""

import re
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
LONGEST_SENTENCE = 35
LONGEST_PARAGRAPH = 120
MOST_WORDS = 36_000
"""Of all pages together with the changelog."""
OF_FORMULAS = ("theory", "paper")
"""Their sentences hold more symbols than words."""
OF_README = 500
WORDS_OF_OURS = ("cost debt", "spend certificate", "exposure", "horizon")
EXPLAINED_IN = ("guarantees", "glossary", "symbols", "theory", "paper")
"""Reference and theory; other pages say what these words mean in words that every reader has."""


def words(text: str) -> list[str]:
    """What stands between spaces and has a letter or a digit: no bars, dashes or bullets."""
    return [word for word in text.split() if re.search(r"\w", word)]


def prose(page: Path) -> str:
    """A page without code, formulas, pictures and the addresses of links."""
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"!\[.*?\]\(.*?\)", "", text, flags=re.DOTALL)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    text = re.sub(r"\$\$.*?\$\$|\\\[.*?\\\]", "", text, flags=re.DOTALL)
    return re.sub(r"`[^`]*`", "`code`", text)


def paragraphs(page: Path) -> list[str]:
    """Paragraphs, items of lists and cells of tables, each in one line."""
    parts = re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )|\n(?=#)|\n(?=\|)|\|", prose(page))
    return [" ".join(part.split()) for part in parts if part.strip()]


def sentences(paragraph: str) -> list[str]:
    return re.split(r"(?<=[.!?])[\"*)\]]*\s+", paragraph)


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.stem not in OF_FORMULAS], ids=lambda page: page.stem
)
def test_sentences_and_paragraphs_are_short(page: Path) -> None:
    found = paragraphs(page)
    long = [
        one
        for one in chain.from_iterable(map(sentences, found))
        if len(words(one)) > LONGEST_SENTENCE
    ]
    assert long == []
    assert [one for one in found if len(words(one)) > LONGEST_PARAGRAPH] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_words_of_ours_are_where_they_are_explained(page: Path) -> None:
    if page.stem in EXPLAINED_IN:
        pytest.skip("reference or theory")
    text = " ".join(prose(page).lower().split())
    assert [word for word in WORDS_OF_OURS if word in text] == []


def test_readme_is_read_in_three_minutes() -> None:
    assert len(words((ROOT / "README.md").read_text("utf-8"))) <= OF_README


def test_all_pages_are_read_in_an_afternoon() -> None:
    pages = [*PAGES, ROOT / "CHANGELOG.md"]
    assert sum(len(words(page.read_text("utf-8"))) for page in pages) <= MOST_WORDS


def test_long_sentences_and_paragraphs_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("One two. " + "word " * 36 + "end.\n\n- " + "short one. " * 61, "utf-8")
    found = paragraphs(page)
    assert [len(words(one)) for one in chain.from_iterable(map(sentences, found))][:2] == [2, 37]
    assert [len(words(one)) for one in found] == [39, 122]
