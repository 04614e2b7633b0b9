"""Shows the examples of docstrings as code when the site is built.

Examples stand in the docstrings as bare doctests, which Markdown takes for nested quotations. This
extension of Griffe, which reads the docstrings for mkdocstrings, puts a fence around each.
"""

import re
from typing import Any

import griffe

DOCTEST = re.compile(r"^( *)>>> .*(?:\n *\S.*)*", re.MULTILINE)
FLAGS = re.compile(r" *# doctest: \+.*$", re.MULTILINE)


class Examples(griffe.Extension):
    """Fences the doctests of every docstring."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Fence the doctests of a package that has been read."""
        _fence(pkg)


def _fence(thing: griffe.Object) -> None:
    if thing.docstring:
        thing.docstring.value = DOCTEST.sub(_fenced, thing.docstring.value)
    for member in thing.members.values():
        if isinstance(member, griffe.Object):  # not a name for something that stands elsewhere
            _fence(member)


def _fenced(doctest: re.Match[str]) -> str:
    indent = doctest[1]
    return f"{indent}```pycon\n{FLAGS.sub('', doctest[0])}\n{indent}```"
