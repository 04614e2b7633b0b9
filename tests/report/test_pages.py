"""Pages: whole in themselves, readable by machines and people, on any screen."""

import html.parser
import json
import math
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from check_size import at_size
from recorded_run import recorded_run

from tidegate.cli import main
from tidegate.report.page import TEMPLATES
from tidegate.runs.journal import Journal

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("test_pages")]  # the same pages for all

ROUNDS = at_size(10, 60)
needs_browser = pytest.mark.skipif(
    shutil.which("chromium") is None,
    reason="Chromium is not installed (Debian: apt-get install chromium)",
)


def command(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stopped:
        main(list(arguments))
    return int(stopped.value.code or 0)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    recorded_run(folder / "run")
    odd = {"cost_$_eur_$ <b>": 1.5, "diverged": math.nan}
    Journal(folder / "run").measured(8, "clients", odd)
    assert command("report", str(folder / "run")) == 0
    small = ["--rounds", str(ROUNDS), "--seeds", "2", "--policy", "tide", "--policy", "acdpp"]
    assert command("plan", *small, "--html", str(folder / "plan.html")) == 0
    return {
        "run": folder / "run" / "report.html",
        "plan": folder / "plan.html",
    }


def test_a_report_after_one_round_shows_its_points(tmp_path: Path) -> None:
    recorded_run(tmp_path, until=0)
    assert command("report", str(tmp_path)) == 0
    page = (tmp_path / "report.html").read_text("utf-8")
    marks = re.findall(r"<g clip-path=[^>]*>\s*<use", page)
    assert len(marks) >= page.count("<svg") > 5  # the marks of curves; those of ticks are not cut


@pytest.mark.usefixtures("no_pictures")
def test_two_runs_are_shown_beside_each_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("ranked", "plain"):
        recorded_run(tmp_path / name)
        Journal(tmp_path / name).measured(8, "server", {"beside": {"ranked": 0.75}.get(name, 0.5)})
    assert command("report", str(tmp_path / "ranked"), str(tmp_path / "plain")) == 0
    page = (tmp_path / "ranked" / "report.html").read_text("utf-8")
    words = re.sub(r"<[^>]+>|\s+", " ", page[page.index("Beside another run") :])
    assert re.search(r"server/beside\s+0\.75\s+0\.5\s+0\.25", words)
    assert re.search(r"\sranked\s+plain\s+difference", words)
    assert "server/beside by round: ranked from 0.75" in page
    apart = tmp_path / "other" / "ranked"
    apart.parent.mkdir()
    recorded_run(apart, run="another")
    assert command("report", str(tmp_path / "ranked"), str(apart)) == 0
    page = (tmp_path / "ranked" / "report.html").read_text("utf-8")
    words = re.sub(r"<[^>]+>|\s+", " ", page[page.index("Beside another run") :])
    assert re.search(
        r"\srecorded, tide, 22 a round\s+another, tide, 22 a round\s+difference", words
    )  # folders of one name


class Reader(html.parser.HTMLParser):
    """Collects what a page is made of, and insists that every tag is closed."""

    VOID = ("meta", "br", "link", "use")

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def read(page: Path) -> Reader:
    reader = Reader()
    reader.feed(page.read_text("utf-8"))
    assert not reader.open
    return reader


PAGES = ("run", "plan")


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_whole_in_itself(pages: dict[str, Path], name: str) -> None:
    reader = read(pages[name])
    for tag, attributes in reader.tags:
        assert tag not in ("script", "link", "img", "iframe", "object")
        for key in ("src", "href", "xlink:href"):
            assert (attributes.get(key) or "#").startswith("#"), attributes
    styles = re.findall(r"url\(([^)]*)\)", pages[name].read_text("utf-8"))
    assert all(target.strip("'\"").startswith("#") for target in styles)


@pytest.mark.parametrize("name", PAGES)
def test_a_page_can_be_read_without_seeing_it(pages: dict[str, Path], name: str) -> None:
    reader = read(pages[name])
    tags = Counter(tag for tag, _ in reader.tags)
    assert tags["h1"] == tags["main"] == 1
    assert ("html", {"lang": "en"}) in reader.tags
    assert tags["table"] == tags["caption"] > 0
    for tag, attributes in reader.tags:
        if tag == "svg":
            assert attributes["role"] == "img"
            assert len(attributes["aria-label"] or "") > 30
        if tag == "th":
            assert attributes["scope"] in ("row", "col")
    ids = [attributes["id"] for _, attributes in reader.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert tags["svg"] >= {"run": 4, "plan": 2}[name]


def brightness(colour: str) -> float:
    """WCAG's relative luminance."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    light = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts]
    return 0.2126 * light[0] + 0.7152 * light[1] + 0.0722 * light[2]


def contrast(one: str, other: str) -> float:
    bright, dark = sorted((brightness(one), brightness(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_words_and_lines_stand_out(theme: int) -> None:
    style = (TEMPLATES / "base.html").read_text("utf-8")
    blocks = re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", blocks[theme]))
    for name in ("ink", "quiet", "link"):
        assert contrast(colours[name], colours["paper"]) >= 4.5, name
    for name in ("ink", "green", "yellow", "red"):
        assert contrast(colours[name], colours["shade"]) >= 4.5, name
    for number in range(7):
        assert contrast(colours[f"series-{number}"], colours["paper"]) >= 3, number


BROWSER = (
    *("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"),
    *("--no-first-run", "--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--allow-file-access-from-files", "--virtual-time-budget=5000"),
)
LOOKS = """<!doctype html>
<iframe src="{page}" style="width:{width}px;height:900px;border:0"></iframe>
<p id="found"></p><script>
document.querySelector("iframe").onload = function () {{
  const inner = this.contentDocument, all = name => [...inner.querySelectorAll(name)];
  all("details").forEach(one => one.open = true);
  const columns = getComputedStyle(inner.querySelector(".pictures")).gridTemplateColumns;
  document.querySelector("#found").textContent = JSON.stringify({{
    wide: inner.documentElement.scrollWidth,
    sections: all("section").length,
    pictures: all("svg").every(one => one.getBoundingClientRect().height > 100),
    columns: columns.split(" ").length,
  }});
}};
</script>"""


@pytest.mark.process
@needs_browser
@pytest.mark.parametrize(("width", "columns"), [(360, 1), (1100, 2)])
@pytest.mark.parametrize("name", PAGES)
def test_a_browser_shows_it_on_a_phone_and_on_a_desk(
    pages: dict[str, Path], name: str, width: int, columns: int, tmp_path: Path
) -> None:
    look = tmp_path / "look.html"
    look.write_text(LOOKS.format(page=pages[name].as_uri(), width=width), "utf-8")
    done = subprocess.run(
        [*BROWSER, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", look.as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    (text,) = re.findall(r'<p id="found">(.*?)</p>', done.stdout)
    found = json.loads(text)
    assert found["wide"] <= width  # nothing sticks out
    assert found["sections"] >= 5
    assert found["pictures"] is True
    assert found["columns"] == columns


def test_the_plan_page_tells_what_was_simulated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "plan.html"
    flags = ["--capacities", "10x3", "--budget", "15", "--rounds", str(ROUNDS), "--seeds", "2"]
    policies = ["--policy", "tide", "--policy", "acdpp", "--currency", "EUR", "--as-in-paper"]
    assert command("plan", *flags, *policies, "--html", str(page), "--json") == 0
    plan = json.loads(capsys.readouterr().out)
    text = page.read_text("utf-8")
    words = " ".join(html.unescape(re.sub(r"<[^>]+>", " ", text)).split())
    for expected in (
        "3 clients with 10 slots each; 15 EUR a round",
        "budget, EUR a round",
        "What money and memory buy",
        ", money in EUR",
        "Prices are drawn from the law",
        "Keep a sample for",
        "What a cap on uses costs",
    ):
        assert expected in words
    table = text[text.index("<caption><span>A round") :].partition("</table>")[0]
    for row in plan["policies"]:
        cells = re.findall(rf">{row['policy']}</th>(.*?)</tr>", table)[0]
        assert f"{row['effective_per_round'] / plan['limit']:.0%}</td>" in cells
        assert cells.count("<td>") == 8
    alone = [*flags, "--policy", "tide", "--html", str(page)]
    assert command("plan", *alone) == 0
    assert "Keep a sample for" not in page.read_text("utf-8")  # Tide has no K
