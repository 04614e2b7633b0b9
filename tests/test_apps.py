"""Template and examples as Flower apps: ``flwr build`` packs them whole, for any hub to take."""

import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from tidegate.cli import main
from tidegate.flower.flower_internals import NEWEST_TRIED, OLDEST_FLOWER

pytestmark = [pytest.mark.process, pytest.mark.no_cover]

ROOT = Path(__file__).parents[1]
EXAMPLES = ("plain", "quickstart", "showcase")
FLWR = Path(sys.executable).with_name("flwr")
NEEDS = {"quickstart": "torch", "showcase": "paho"}
"""What the components of an app import, besides Flower and scikit-learn."""

HUB_TYPES = {".py", ".toml", ".md", ".yaml", ".yml", ".json", ".jsonl", ".editorconfig"}
HUB_NAMES = {".gitignore", "LICENSE", "LICENSE.md"}
HUB_BYTES, HUB_FILES, HUB_NAME = 1024 * 1024, 1000, 32
"""What Flower Hub takes: kinds of files, the size of each, how many, characters of a name."""


@pytest.fixture(params=[pytest.param("template", marks=pytest.mark.contract), *EXAMPLES])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The folder of an app; the template's as ``tidegate new`` writes it."""
    if request.param != "template":
        return ROOT / "examples" / str(request.param)
    with pytest.raises(SystemExit):
        main(["new", str(tmp_path / "south-sea")])
    return tmp_path / "south-sea"


def settings(app: Path) -> dict[str, Any]:
    return tomllib.loads((app / "pyproject.toml").read_text("utf-8"))


def files(folder: Path) -> set[str]:
    """All files of a folder, but for what Python compiled and a cache of a tool."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    places = [path.relative_to(folder) for path in paths]
    return {
        place.as_posix()
        for place in places
        if "__pycache__" not in place.parts and not place.parts[0].endswith("_cache")
    }


def unpacked(app: Path, folder: Path) -> Path:
    """Pack an app with Flower's own command, and unpack what it wrote."""
    folder.mkdir()
    quiet = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
    built = subprocess.run(
        [FLWR, "build", "--app", app], cwd=folder, capture_output=True, text=True, check=False,
        timeout=120, env={**os.environ, **quiet, "FLWR_HOME": str(folder / "home")},
    )  # fmt: skip
    assert built.returncode == 0, built.stdout + built.stderr
    assert "missing" not in built.stdout + built.stderr
    (bundle,) = folder.glob("*.fab")
    with zipfile.ZipFile(bundle) as packed:
        packed.extractall(folder / app.name)
    return folder / app.name


def test_the_bundle_holds_every_file_and_its_components_load_from_it(
    app: Path, tmp_path: Path
) -> None:
    if app.name in NEEDS:
        pytest.importorskip(NEEDS[app.name])
    bundle = unpacked(app, tmp_path / "bundle")
    assert files(bundle) - {".info/CONTENT"} == files(app) - {".gitignore"}
    assert (bundle / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    places = [place.partition(":")[0] for place in components(app).values()]
    code = (
        "import importlib, json, sys\n"
        "print(json.dumps([importlib.import_module(name).__file__ for name in sys.argv[1:]]))\n"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code, *places], cwd=bundle, capture_output=True, text=True,
        check=False, timeout=120,
    )  # fmt: skip
    assert loaded.returncode == 0, loaded.stderr
    found = json.loads(loaded.stdout.splitlines()[-1])
    assert len(found) == 2
    assert all(Path(one).is_relative_to(bundle) for one in found)


def components(app: Path) -> dict[str, str]:
    named: dict[str, str] = settings(app)["tool"]["flwr"]["app"]["components"]
    return named


def test_flower_hub_would_take_every_file(app: Path) -> None:
    names = files(app)
    assert len(names) <= HUB_FILES
    for name in names:
        place = app / name
        assert place.suffix in HUB_TYPES or name in HUB_NAMES, name
        assert place.stat().st_size <= HUB_BYTES, name
    project = settings(app)["project"]
    assert re.fullmatch(r"[a-z][a-z0-9-]*", project["name"])
    assert len(project["name"]) <= HUB_NAME
    assert project["description"]


def test_the_app_declares_the_flower_that_it_needs_and_was_tried_with(app: Path) -> None:
    declared = settings(app)
    (flower,) = [
        requirement
        for requirement in map(Requirement, declared["project"]["dependencies"])
        if requirement.name == "flwr"
    ]
    (bound,) = flower.specifier
    assert (bound.operator, Version(bound.version)) == (">=", Version(OLDEST_FLOWER))
    convention = declared["tool"]["flwr"]["app"]
    assert convention["fab-format-version"] == 1
    assert convention["flwr-version-target"] == NEWEST_TRIED
    assert declared["project"]["license"] == {"file": "LICENSE"}


def test_the_readme_says_how_many_supernodes_the_app_wants(app: Path) -> None:
    text = (app / "README.md").read_text("utf-8")
    (count,) = set(re.findall(r"num-supernodes=(\d+)", text))
    assert int(count) == {"showcase": 30}.get(app.name, 10)


@pytest.mark.parametrize(
    "page", ["README.md", "docs/flower.md", "docs/howto/add-to-your-flower-app.md"]
)
def test_pages_name_the_flowers_that_work(page: str) -> None:
    oldest, newest = (".".join(one.split(".")[:2]) for one in (OLDEST_FLOWER, NEWEST_TRIED))
    text = " ".join((ROOT / page).read_text("utf-8").split())
    assert f"Flower {oldest} or newer" in text
    assert re.search(rf"tried (with .*|with Flower )?(up to|and) {re.escape(newest)}\b", text)
