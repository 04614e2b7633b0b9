"""The faulty app in this process, where nothing happens to it."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from books import client_files, rows
from fleet import CLIENTS

from tidegate.flower import run_in_process

FAULTY = Path(__file__).parent / "faulty_app"


@dataclass(frozen=True)
class Books:
    """What a run left behind."""

    rows: list[dict[str, Any]]
    files: dict[str, dict[str, Any]]


def undisturbed(folder: Path, rounds: int, policy: str) -> Books:
    """Play it and give its books; the folder's name is the run's."""
    folder.mkdir()
    settings = tomllib.loads((FAULTY / "pyproject.toml").read_text())
    config = {
        **settings["tool"]["flwr"]["app"]["config"],
        "run": folder.name,
        "folder": str(folder / "run"),
        "signals": str(folder),
        "tidegate-folder": str(folder / "buffers"),
        "num-server-rounds": rounds,
        "policy": policy,
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FAULTY))
        from faulty.client_app import app as client_app
        from faulty.server_app import app as server_app

        run_in_process(server_app, client_app, num_clients=CLIENTS, run_config=config)
    return Books(rows(folder / "run"), client_files(folder.name, folder / "buffers"))
