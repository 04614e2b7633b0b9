"""``tidegate new``: write a Flower app to start from."""

import keyword
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from tidegate.errors import ConfigurationError

TEMPLATE = Path(__file__).parent / "template"


def new(
    folder: Annotated[Path, typer.Argument(help="Folder to create; the app gets its name.")],
) -> None:
    """Write a Flower app in which every fresh sample has a price.

    The layout is Flower's own: `pyproject.toml`, `client_app.py`, `server_app.py` and `task.py`,
    which holds model, data and training. It runs as it is, on handwritten digits and without a
    download: in this process, on Flower's Simulation engine, and on a deployment. Keep runs outside
    its folder, because Flower sends the folder to every node; a `.gitignore` excludes runs that are
    in it.

    An app, and its first run:

        tidegate new my-fleet

        tidegate run my-fleet --set folder=run
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigurationError(
            f"{folder} already exists and is not empty; choose another name, or an empty folder"
        )
    name = folder.resolve().name
    package = _package(name)
    names = {"my-fleet": name, "my_fleet": package}
    for source in sorted(TEMPLATE.rglob("*")):
        if source.is_dir() or "__pycache__" in source.parts:
            continue
        place = source.relative_to(TEMPLATE).as_posix()
        # The template has no dot in its name, because git and packagers would act on it.
        place = ".gitignore" if place == "gitignore" else place
        target = folder / place.replace("my_fleet", package)
        target.parent.mkdir(parents=True, exist_ok=True)
        text = re.sub("my[-_]fleet", lambda found: names[found[0]], source.read_text("utf-8"))
        target.write_text(text, "utf-8")
    typer.echo(f"wrote {folder}: model, data and training are in {folder / package / 'task.py'}")
    typer.echo(f"run it with: tidegate run {folder} --set folder=run")


def _package(name: str) -> str:
    """Return the name of an app's Python package."""
    package = name.replace("-", "_")
    if not re.fullmatch(r"[a-z][a-z0-9]*([_-][a-z0-9]+)*", name) or keyword.iskeyword(package):
        raise ConfigurationError(
            f"{name!r} cannot be the name of an app; use lower-case letters, digits and hyphens, "
            "such as my-fleet, and no Python keyword"
        )
    if find_spec(package) is not None:
        raise ConfigurationError(
            f"{name!r} cannot be the name of an app: the Python package {package!r} exists "
            "already; choose another"
        )
    return package
