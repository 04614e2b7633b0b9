"""What the documentation's pages get when the site is built.

The help of every command where a page asks for it, and pictures of experiments, which lie outside
of ``docs``; links to folders of the repository become words.
"""

import html
import re
from pathlib import Path

import typer.cli
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from tidegate.cli.app import app

PLACE = "<!-- commands -->"
ROOT = Path(__file__).parent.parent
OUTSIDE = r"(?:\.\./)+((?:experiments|examples)[^)]*)"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pictures of experiments."""
    for picture in sorted((ROOT / "experiments").rglob("*.png")):
        place = picture.relative_to(ROOT).as_posix()
        files.append(File.generated(config, f"pictures/{place}", abs_src_path=str(picture)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fill in commands, and mend links that lead out of ``docs``."""
    if PLACE in markdown:
        markdown = markdown.replace(PLACE, _commands())
    markdown = re.sub(rf"\]\({OUTSIDE}(?<=\.png)\)", r"](pictures/\1)", markdown)
    return re.sub(rf"\[([^\]]*)\]\({OUTSIDE}\)", r"\1", markdown)


def _commands() -> str:
    command = typer.main.get_command(app)
    context = command.make_context("tidegate", ["plan"], resilient_parsing=True)
    text = html.unescape(typer.cli.get_docs_for_click(obj=command, ctx=context, name="tidegate"))
    return "\n## " + text.replace("```console\n$ ", "```text\n").split("\n## ", 1)[1]
