import subprocess
import sys
from importlib import import_module

import pytest

import tidegate


def fresh(code: str) -> str:
    """Run code in a new interpreter; what it prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def loaded_by(code: str) -> set[str]:
    """Modules that code loads in a new interpreter."""
    return set(fresh(f"{code}\nimport sys; print(); print(*sys.modules)").splitlines()[-1].split())


@pytest.mark.process
def test_using_the_library_loads_neither_torch_nor_flwr_nor_the_command_line() -> None:
    loaded = loaded_by("import tidegate; tidegate.simulate")
    assert not {"torch", "flwr", "typer", "rich", "pydantic", "matplotlib"} & loaded
    assert not {"numpy", "tidegate.policies"} & loaded_by("import tidegate")


@pytest.mark.process
def test_help_lists_the_commands_without_loading_one() -> None:
    loaded = loaded_by(
        "from tidegate.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass"
    )
    assert "typer" in loaded
    assert not {"numpy", "pydantic", "flwr", "pandas", "torch", "matplotlib", "jinja2"} & loaded
    assert sum(name.startswith("tidegate") for name in loaded) <= 6


@pytest.mark.process
def test_a_client_loads_nothing_of_the_server() -> None:
    pytest.importorskip("flwr")
    code = "from tidegate.flower import ClientGate; gate = ClientGate(list, 10)"
    loaded = {name for name in loaded_by(code) if name.startswith("tidegate")}
    assert not [name for name in loaded if name.startswith(("tidegate.server", "tidegate.theory"))]
    assert len(loaded) <= 60


@pytest.mark.parametrize("package", ["tidegate", "tidegate.flower"])
def test_an_unknown_name_is_an_error(package: str) -> None:
    if package == "tidegate.flower":
        pytest.importorskip("flwr")
    with pytest.raises(AttributeError, match=f"'{package}' has no attribute 'nothing'"):
        import_module(package).nothing  # noqa: B018 - looking it up is the test


def test_everything_public_exists_and_is_documented() -> None:
    for name in tidegate.__all__:
        assert getattr(tidegate, name).__doc__, name
    names = tidegate.__all__
    assert names == sorted(names, key=lambda name: (not name.isupper(), name[0].islower(), name))


@pytest.mark.process
def test_it_runs_as_a_module() -> None:
    command = [sys.executable, "-m", "tidegate", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"tidegate {tidegate.__version__}"
