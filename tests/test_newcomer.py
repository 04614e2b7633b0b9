"""README's first run as a newcomer has it: a wheel, a clean environment, an empty folder."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from check_size import SIZE

ROOT = Path(__file__).parent.parent


def first_run() -> tuple[str, list[str]]:
    """What README tells to install, and what to run then."""
    text = (ROOT / "README.md").read_text("utf-8")
    install, commands = re.findall(r"^```bash\n(.*?)^```", text, re.DOTALL | re.MULTILINE)[:2]
    return install.strip(), commands.splitlines()


def call(*command: str, folder: Path, environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.share(240)  # where there is no uv, pip takes a minute and more
@pytest.mark.process
@pytest.mark.no_cover
def test_the_first_run_works_as_printed_from_a_wheel(tmp_path: Path) -> None:
    install, commands = first_run()
    assert install == "pip install '.[start,report]'"
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir"]
    call(*build, str(tmp_path / "dist"), str(ROOT), folder=tmp_path)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    programs = tmp_path / "clean" / "bin"
    if SIZE == "full":
        call(sys.executable, "-m", "venv", str(tmp_path / "clean"), folder=tmp_path)
        call(str(programs / "pip"), "install", "--quiet", f"{wheel}[start,report]", folder=tmp_path)
    else:  # with uv, where there is one: the same packages in a tenth of the time
        make = str(ROOT / "scripts" / "make-environment")
        call(make, str(tmp_path / "clean"), f"{wheel}[start,report]", folder=tmp_path)
    call(str(programs / "pip"), "check", folder=tmp_path)

    folder = tmp_path / "empty"
    folder.mkdir()
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment = {**plain, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    shown = [
        call(*shlex.split(command), folder=folder, environment=environment) for command in commands
    ]
    assert "wrote my-fleet" in shown[0]
    assert "saved in run" in shown[1]
    assert shown[2] == "wrote run/report.html\n"
    watched = call("tidegate", "watch", "run", folder=folder, environment=environment)
    assert "500 of 500" in watched
    ((chosen, as_they_come),) = re.findall(r"(?m)^ accuracy +([\d.]+) +([\d.]+)", shown[1])
    assert float(chosen) > float(as_they_come) + 0.1
    page = (folder / "run" / "report.html").read_text("utf-8")
    assert "What the money bought" in page
