"""Load a Flower app from its folder and run it in this process."""

import contextlib
import importlib
import reprlib
import sys
import tomllib
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from flwr.app import UserConfigValue

from tidegate._internal.saving import read_toml
from tidegate._internal.suggestion import suggestion
from tidegate.errors import ConfigurationError
from tidegate.flower.flower_internals import ends_an_app
from tidegate.flower.local_grid import Answers, run_in_process
from tidegate.flower.node_buffer import AS_THEY_COME
from tidegate.flower.users_trace import users_trace

PACKAGE = Path(__file__).parents[1]
KINDS = {bool: "true or false", int: "a whole number", float: "a number"}
"""How error messages name the types of a run-config, besides text."""


class AppError(Exception):
    """The app itself raised an exception, which only its author can fix."""


def run_app(
    folder: Path,
    *,
    num_clients: int,
    changes: Mapping[str, UserConfigValue] | None = None,
    answers: Answers | None = None,
    as_they_come: bool = False,
) -> Answers:
    """Run the app in a folder, unchanged except for values in its run-config.

    If the server saves the run to a folder, clients keep their samples in ``buffers`` there, unless
    the run-config sets ``tidegate-folder``. A resumed run then finds both.

    Args:
        folder: the folder of ``pyproject.toml``, as ``flwr run`` expects it.
        num_clients: number of nodes; each gets its partition-id and num-partitions.
        changes: values by key that replace the defaults in ``[tool.flwr.app.config]``. They must
            have the same type; a text is parsed as that type.
        answers: as for ``run_in_process``.
        as_they_come: whether clients take samples as they come, and let the oldest go, whatever
            the app says.

    Returns:
        What ``run_in_process`` returns.
    """
    app, name = _settings(folder)
    config = run_config_of(folder, changes or {})
    if as_they_come:
        config[AS_THEY_COME] = True
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
            app=name,
            answers=answers,
        )
    except Exception as wrong:
        if ends_an_app(wrong):
            raise ConfigurationError(f"the app's strategy ends the run: {wrong}") from wrong
        if _raised_by(wrong, folder):
            raised = f"{type(wrong).__name__}: {wrong}"
            raise AppError(f"the app in {folder} raised {raised}") from users_trace(wrong)
        raise
    finally:
        sys.path.remove(str(folder.absolute()))


def run_config_of(
    folder: Path, changes: Mapping[str, UserConfigValue]
) -> dict[str, UserConfigValue]:
    """Return the run-config of the app in a folder, with changes.

    Args:
        folder: the folder of ``pyproject.toml``.
        changes: values by key, as for ``run_app``.
    """
    app, _ = _settings(folder)
    config = dict(_flat(app.get("config", {})))
    for key, value in changes.items():
        if key not in config:
            hint = suggestion(key, config, otherwise=f"it has {', '.join(config)}")
            raise ConfigurationError(f"{folder}: the app's config has no key {key!r}; {hint}")
        config[key] = _as_default(key, value, config[key])
    return config


def _is_in(frame: FrameType, folder: Path) -> bool:
    return Path(frame.f_code.co_filename).is_relative_to(folder.absolute())


def _raised_by(wrong: Exception, folder: Path) -> bool:
    """Return whether the app or a library that it called raised this, not Tidegate for it."""
    if isinstance(wrong, SyntaxError):  # its file did not run, so it is in no frame
        return Path(wrong.filename or "").is_relative_to(folder.absolute())
    for frame, _ in reversed(list(traceback.walk_tb(wrong.__traceback__))):
        path = Path(frame.f_code.co_filename)
        if _is_in(frame, folder):
            return True
        if path.is_relative_to(PACKAGE) and path != Path(__file__):
            return False
    return False


def _flat(config: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Flatten nested tables to dotted keys, as ``flwr run`` does."""
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value


def _as_default(key: str, setting: UserConfigValue, default: UserConfigValue) -> UserConfigValue:
    """Convert a value to the type of the app's own default."""
    value = setting
    if isinstance(setting, str):
        with contextlib.suppress(
            ValueError, RecursionError
        ):  # text that is not TOML is taken as it is
            value = tomllib.loads(f"value = {setting}")["value"]
    if isinstance(default, str):
        return value if isinstance(value, str) else str(setting)
    if isinstance(default, float) and type(value) is int:
        value = float(value)
    if type(default) in KINDS and type(value) is not type(default):
        raise ConfigurationError(
            f"{key} = {reprlib.repr(setting)} must be {KINDS[type(default)]}, such as the app's "
            f"own {str(default).lower()}"
        )
    return value


def _settings(folder: Path) -> tuple[dict[str, Any], str]:
    """Read an app's settings, and the name that Flower knows it by, if it has one."""
    path = folder / "pyproject.toml"
    if not folder.is_dir():
        raise ConfigurationError(
            f"{folder} is a file; give the folder of a Flower app"
            if folder.exists()
            else f"there is no folder {folder}; `tidegate new {folder}` writes an app there"
        )
    if not path.exists():
        raise ConfigurationError(
            f"{folder.absolute()} holds no Flower app: it has no pyproject.toml; `tidegate new "
            "NAME` writes one"
        )
    settings = read_toml(path)
    try:
        app: dict[str, Any] = settings["tool"]["flwr"]["app"]
    except KeyError:
        raise ConfigurationError(f"{path} has no [tool.flwr.app]: it is not a Flower app") from None
    publisher, name = app.get("publisher"), settings.get("project", {}).get("name")
    return app, f"{publisher}/{name}" if publisher and name else ""


def _component(folder: Path, app: Mapping[str, Any], name: str) -> Any:
    """Import the object that a component names, such as ``quickstart.server_app:app``."""
    place = app.get("components", {}).get(name, "")
    module, _, attribute = place.partition(":")
    if not attribute:
        raise ConfigurationError(
            f"{folder}: [tool.flwr.app.components] must give {name} as module:object, got {place!r}"
        )
    try:
        imported = importlib.import_module(module)
    except ModuleNotFoundError as missing:
        if f"{module}.".startswith(f"{missing.name}."):
            raise ConfigurationError(
                f"{folder}: {name} = {place!r}, but the app has no module {missing.name!r}; check "
                "its spelling"
            ) from missing
        is_its_own = f"{missing.name}.".startswith(f"{module.partition('.')[0]}.")
        remedy = (
            "which the app does not have; check its spelling"
            if is_its_own
            else "which is not installed; install the app's dependencies"
        )
        raise ConfigurationError(
            f"{folder}: {place} imports {missing.name!r}, {remedy}"
        ) from missing
    try:
        return getattr(imported, attribute)
    except AttributeError:
        known = [name for name in vars(imported) if not name.startswith("_")]
        hint = suggestion(attribute, known, otherwise="check its spelling")
        raise ConfigurationError(f"{folder}: {module} has no {attribute!r}; {hint}") from None
