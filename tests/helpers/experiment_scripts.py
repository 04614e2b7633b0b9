"""The scripts under experiments/, as modules."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parents[2] / "experiments"


def load(file: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A script, under its own name, so that other processes find its functions."""
    name = file.stem
    monkeypatch.syspath_prepend(str(file.parent))
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module
