"""The guide to retention, followed as it is printed, in an empty folder."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from guide import HOWTO

PAGE = HOWTO / "prove-retention.md"
BLOCK = re.compile(r'^```(\w+)(?: title="(.+?)")?\n(.*?)^```', re.DOTALL | re.MULTILINE)


@pytest.mark.process
def test_the_guide_works_as_printed(tmp_path: Path) -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    compared, printed = 0, ""
    for language, title, text in BLOCK.findall(PAGE.read_text("utf-8")):
        if title:
            (tmp_path / title).write_text(text, "utf-8")
        elif language == "text":
            printed = ""
            for line in text.splitlines():
                done = subprocess.run(
                    ["bash", "-e", "-c", line],
                    cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True,
                    check=False, timeout=120,
                )  # fmt: skip
                assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
                printed += done.stdout
        elif language == "none":
            assert re.sub(r"-[0-9a-f]{32}\.", "-HASH.", printed) == text
            compared += 1
    assert compared == 5
    page = (tmp_path / "audit.html").read_text("utf-8")
    assert "Nothing is wrong" in page
