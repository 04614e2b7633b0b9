"""A Flower app from its folder, run in this process."""

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flwr.app import UserConfigValue

from tidegate.flower.local_grid import Answers, run_in_process
from tidegate.saving import read_toml
from tidegate.suggestion import suggestion


def run_app(
    folder: Path, *, num_clients: int, changes: Mapping[str, UserConfigValue] | None = None
) -> Answers:
    """Run the app of a folder, unchanged, with changes to its run-config.

    Where the server saves the run to a ``folder``, clients keep their samples in ``buffers`` there,
    unless the run-config gives a ``tidegate-folder``: a run that is resumed has both.

    Args:
        folder: where ``pyproject.toml`` is, as ``flwr run`` expects it.
        num_clients: nodes; each gets its partition-id and num-partitions.
        changes: by key, in place of the defaults in ``[tool.flwr.app.config]``.

    Returns:
        How many messages clients answered, and how many failed.
    """
    app = _settings(folder)
    config = dict(app.get("config", {}))
    for key in changes or {}:
        if key not in config:
            hint = suggestion(key, config, otherwise=f"it has {', '.join(config)}")
            raise ValueError(f"{folder}: the app's config has no key {key!r}; {hint}")
    config |= changes or {}
    if config.get("folder") and config.get("tidegate-folder") == "":
        config["tidegate-folder"] = str(Path(str(config["folder"])) / "buffers")
    sys.path.insert(0, str(folder.absolute()))
    try:
        server_app, client_app = (
            _component(folder, app, name) for name in ("serverapp", "clientapp")
        )
        return run_in_process(
            server_app,
            client_app,
            num_clients=num_clients,
            run_config=config,
        )
    finally:
        sys.path.remove(str(folder.absolute()))


def _settings(folder: Path) -> dict[str, Any]:
    path = folder / "pyproject.toml"
    if not path.exists():
        raise ValueError(
            f"{folder.absolute()} holds no Flower app: it has no pyproject.toml; `tidegate new "
            "NAME` writes one"
        )
    settings = read_toml(path)
    try:
        app: dict[str, Any] = settings["tool"]["flwr"]["app"]
    except KeyError:
        raise ValueError(f"{path} has no [tool.flwr.app]: it is not a Flower app") from None
    return app


def _component(folder: Path, app: Mapping[str, Any], name: str) -> Any:
    """The object that a component names, such as ``quickstart.server_app:app``."""
    place = app.get("components", {}).get(name, "")
    module, _, attribute = place.partition(":")
    if not attribute:
        raise ValueError(
            f"{folder}: [tool.flwr.app.components] must give {name} as module:object, got {place!r}"
        )
    try:
        return getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as missing:
        raise ValueError(
            f"{folder}: {place} needs {missing.name!r}, which is not installed"
        ) from missing
