"""Write a self-contained HTML page that needs no network, for phones too, light and dark.

Templates have the words, one plain object has the numbers. Matplotlib draws pictures as SVG inside
the page; they use the page's colours, so that they follow the reader's choice of light or dark, and
show their values under the pointer. Needs the ``report`` extra.
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
from tidegate._internal.words import counted
from tidegate.errors import ConfigurationError
from tidegate.report.figures import COLOURS
from tidegate.report.tables import about, amount, show

if TYPE_CHECKING:
    import jinja2
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TEMPLATES = Path(__file__).parent / "templates"
INK = "#010203"
"""A placeholder for the colour of the page's text."""
SERIES = {colour.lower(): f"var(--series-{number})" for number, colour in enumerate(COLOURS)}
"""The page's colour for each colour of ``figures``."""
QUIET = "#808080"
"""The colour of grids, visible on white and on black."""
MOST_TIPS = 400
"""Places of a picture that show their values under the pointer."""
POINTS = 72
"""Of an inch, in which an SVG is measured."""
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
Tips = Sequence[tuple[float, str]]
"""Places across a picture, from left to right, and what the pointer shows there."""
MakePicture = Callable[..., "Picture"]


@dataclass(frozen=True)
class Picture:
    """A drawing with its caption."""

    svg: str
    """The drawing, with a label for screen readers."""
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
    """Refuse a page that cannot be written, before any work is done."""
    check_packages("jinja2", "matplotlib")
    check_place(path)


def check_packages(*packages: str) -> None:
    """Refuse a page if packages are missing, and say how to install them."""
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
    """Write a page of sections.

    Args:
        path: the file.
        title: the title of the page.
        lead: the answer, in a sentence or two; lines after the first are smaller.
        sections: the sections below the lead.
    """
    render(path, "page.html", title=title, lead=lead, sections=sections)


def render(path: Path, template: str, **values: object) -> None:
    """Write a page from a template."""
    text = _environment().get_template(template).render(version=tidegate.__version__, **values)
    path.write_text(text, "utf-8")


def sentences(template: str, macro: str, *values: object) -> list[str]:
    """Return the sentences of a macro of a template; empty lines separate them."""
    text = getattr(_environment().get_template(template).module, macro)(*values)
    return [" ".join(part.split()) for part in re.split(r"\n\s*\n", text) if part.strip()]


def _environment() -> "jinja2.Environment":
    """Return what fills in templates: all that is written into HTML is escaped."""
    import jinja2  # noqa: PLC0415 - loaded only where something is written

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=jinja2.select_autoescape(["html"]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"amount": amount, "about": about, "counted": counted, "show": show}
    return environment


@contextmanager
def drawing() -> Iterator[MakePicture]:
    """Draw in the style of a page; yields a function that makes a picture of a figure."""
    from matplotlib import rc_context  # noqa: PLC0415 - an extra

    numbers = itertools.count(1)

    def picture(figure: "Figure", alt: str, caption: str = "", tips: Tips = ()) -> Picture:
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
        svg = _of_the_page(text.getvalue(), next(numbers), alt)
        return Picture(svg.replace("</svg>", f"{_tips(figure, tips)}</svg>"), caption)

    with rc_context(STYLE):
        yield picture


def new_panel(title: str) -> tuple["Figure", "Axes"]:
    """Return a figure of one panel; a wide screen shows two side by side."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - an extra

    figure = Figure(figsize=(5.2, 4.0), layout="constrained")
    axes = figure.subplots()
    axes.set_title(title)
    return figure, axes


def _tips(figure: "Figure", tips: Tips) -> str:
    """Return a strip across the panel for each place; its title shows under the pointer."""
    if not tips:
        return ""
    shown = tips[:: -(-len(tips) // MOST_TIPS)]
    width, height = (POINTS * float(size) for size in figure.get_size_inches())
    (axes,) = figure.axes
    box, pixels = axes.get_position(), float(figure.bbox.width)
    places = [width * float(axes.transData.transform((at, 0))[0]) / pixels for at, _ in shown]
    edges = [(a + b) / 2 for a, b in itertools.pairwise(places)]
    left, right = width * box.x0, width * box.x1
    strips = zip([left, *edges], [*edges, right], shown, strict=True)
    top, tall = height * (1 - box.y1), height * box.height
    marks = (
        f'<rect x="{a:.1f}" y="{top:.1f}" width="{max(b - a, 0):.1f}" height="{tall:.1f}">'
        f"<title>{html.escape(words)}</title></rect>"
        for a, b, (_, words) in strips
    )
    return f'<g class="tips">{"".join(marks)}</g>'


def _of_the_page(svg: str, number: int, alt: str) -> str:
    """Return an SVG for the page: the page's colours, unique names, no fixed size, a label."""
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
