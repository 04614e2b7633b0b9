"""What the documentation's pages get when the site is built.

The help of every command where a page asks for it, and pictures of experiments, which lie outside
of ``docs``; links to folders of the repository become words. Tables that a command printed are
marked, since their lines must not be wrapped.
"""

import html
import re
from pathlib import Path

import typer.cli
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from tidegate.cli.app import COMMANDS, app, command_of

PLACE = "<!-- commands -->"
ROOT = Path(__file__).parent.parent
OUTSIDE = r"(?:\.\./)+((?:experiments|examples|src|tests|benchmarks)[^)]*)"
BLOCK = re.compile(r"^( *)```(text|none|console)\n(.*?)(?=^ *```)", re.DOTALL | re.MULTILINE)
ROW = re.compile(r" *\||.*\S {2,}\S.*\S {2,}\S")

WIDE = 88
"""Characters of a row, from which on a printed table gets small letters."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pictures of experiments."""
    for picture in sorted((ROOT / "experiments").rglob("*.png")):
        place = picture.relative_to(ROOT).as_posix()
        files.append(File.generated(config, f"pictures/{place}", abs_src_path=str(picture)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fill in commands, mark printed tables, and mend links that lead out of ``docs``."""
    if PLACE in markdown:
        markdown = markdown.replace(PLACE, _commands())
    markdown = BLOCK.sub(_marked, markdown)
    markdown = re.sub(rf"\]\({OUTSIDE}(?<=\.png)\)", r"](pictures/\1)", markdown)
    return re.sub(rf"\[([^\]]*)\]\({OUTSIDE}\)", r"\1", markdown)


def _marked(block: re.Match[str]) -> str:
    """Give a block with two rows or more, of three columns or more, the class ``columns``."""
    indent, language, text = block.groups()
    rows = [line for line in text.splitlines() if ROW.match(line)]
    if not rows[1:]:
        return block[0]
    wide = " .wide" if max(map(len, rows)) > WIDE else ""
    return f"{indent}``` {{.{language} .columns{wide}}}\n{text}"


def _commands() -> str:
    command = typer.main.get_command(app)
    command.commands = {name: command_of(name) for name in COMMANDS}
    context = command.make_context("tidegate", ["plan"], resilient_parsing=True)
    text = html.unescape(typer.cli.get_docs_for_click(obj=command, ctx=context, name="tidegate"))
    return "\n## " + text.replace("```console\n$ ", "```text\n").split("\n## ", 1)[1]
