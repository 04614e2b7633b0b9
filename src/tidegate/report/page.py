"""One self-contained HTML page: opens from disk without a network, on a phone, light and dark.

Pictures are drawn by Matplotlib as SVG and lie in the page; their colours are the page's, so that
they follow the reader's choice of light or dark. Needs the ``report`` extra.
"""

import html
import io
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tidegate
from tidegate.errors import ConfigurationError
from tidegate.report.figures import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TEMPLATES = Path(__file__).parent / "templates"
INK = "#010203"
"""Stands for the colour of the page's text."""
SERIES = {colour.lower(): f"var(--series-{number})" for number, colour in enumerate(COLOURS)}
"""The page's own colour for each of ours."""
QUIET = "#808080"
"""Of grids: seen on white and on black."""
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "tidegate",
    "text.parse_math": False,  # clients choose the names of metrics
    "font.family": "sans-serif",
    "font.size": 11,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlelocation": "left",
    "axes.titlesize": "medium",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": QUIET,
    "grid.alpha": 0.25,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "legend.frameon": False,
    "lines.linewidth": 2.0,
}


@dataclass(frozen=True)
class Picture:
    """A drawing with the words that stand for it."""

    svg: str
    """With a label for those who do not see it."""
    caption: str = ""


@dataclass(frozen=True)
class Rows:
    """A table; the first cell of a row names it."""

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Section:
    """A part of a page, in this order: words, a command, tables, pictures, tables on demand."""

    title: str
    paragraphs: Sequence[str] = ()
    command: str = ""
    tables: Sequence[Rows] = ()
    pictures: Sequence[Picture] = ()
    details: Sequence[Rows] = ()


def check_page(path: Path) -> None:
    """Refuse, before any work is done, a page that could not be written."""
    check_packages("jinja2", "matplotlib")
    check_place(path)


def check_packages(*packages: str) -> None:
    """Say how to install what a page needs and is not there; pictures need Matplotlib."""
    for package in packages:
        try:
            __import__(package)
        except ImportError:
            raise ConfigurationError(
                f"pages need {package}: pip install 'tidegate[report]'"
            ) from None


def check_place(path: Path) -> None:
    """Refuse a place where no page can be written."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise ConfigurationError(f"cannot write {path}: a page's name must end in .html")
    if path.is_dir():
        raise ConfigurationError(f"cannot write {path}: it is a folder; name a file")
    if not path.absolute().parent.is_dir():
        raise ConfigurationError(f"cannot write {path}: its folder does not exist; create it first")


def write_page(path: Path, title: str, lead: str, sections: Sequence[Section]) -> None:
    """Write a page.

    Args:
        path: of the file.
        title: of the page.
        lead: the answer, in a sentence or two; lines after the first stand below it, smaller.
        sections: below it.
    """
    import jinja2  # noqa: PLC0415 - an extra

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    text = environment.get_template("page.html").render(
        title=title, lead=lead, sections=sections, version=tidegate.__version__
    )
    path.write_text(text, "utf-8")


@contextmanager
def drawing() -> Iterator[Callable[["Figure", str, str], Picture]]:
    """Draw in the style of a page; gives a function that makes a picture of a figure."""
    from matplotlib import rc_context  # noqa: PLC0415 - an extra

    numbers = itertools.count(1)

    def picture(figure: "Figure", alt: str, caption: str = "") -> Picture:
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
        return Picture(_of_the_page(text.getvalue(), next(numbers), alt), caption)

    with rc_context(STYLE):
        yield picture


def new_panel(title: str) -> tuple["Figure", "Axes"]:
    """A figure of one panel; on a wide screen two stand side by side."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - an extra

    figure = Figure(figsize=(5.2, 4.0), layout="constrained")
    axes = figure.subplots()
    axes.set_title(title)
    return figure, axes


def _of_the_page(svg: str, number: int, alt: str) -> str:
    """An SVG as a part of a page: its colours, its names, no size of its own, and a label."""
    svg = svg[svg.index("<svg") :]
    svg = svg.replace(INK, "currentColor")
    for ours, theirs in SERIES.items():
        svg = svg.replace(ours, theirs)
    svg = re.sub(r'id="', f'id="p{number}-', svg)
    svg = re.sub(r"url\(#", f"url(#p{number}-", svg)
    svg = re.sub(r'href="#', f'href="#p{number}-', svg)
    head, _, rest = svg.partition(">")
    head = re.sub(r' (width|height)="[^"]*"', "", head)
    return f'{head} role="img" aria-label="{html.escape(alt)}">{rest}'
