"""``docs/paper.md`` leaves out no item of the paper, and what it names is there."""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from real_data import DATA

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "paper.md").read_text("utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in PAGE.splitlines()
    if line.startswith("| ") and not line.startswith("| paper |")
]
PAPER = Path(os.environ.get("TIDEGATE_PAPER", ROOT.parent / "shared" / "paper"))
VERDICTS = (
    "exact", "corrected", "refuted", "decided", "undecided", "model", "assumption", "step", "holds",
    "formula exact", "order holds", "on average", "[as far as", "as above",
)  # fmt: skip


@pytest.fixture(scope="module")
def source() -> str:
    files = [PAPER] if PAPER.is_file() else sorted(PAPER.glob("*.t[ex][xt]*"))
    for file in files:
        if "\\documentclass" in (text := file.read_text("utf-8")):
            return text
    pytest.skip(f"no source of the paper in {PAPER}; set TIDEGATE_PAPER")


def test_every_label_has_a_row(source: str) -> None:
    labels = set(re.findall(r"\\label\{([^}]*)\}", source))
    wanted = {label for label in labels if not re.match(r"(sub)?sec:|subsec:|app:", label)}
    named = {label for row in ROWS for label in re.findall(r"`([a-z]+:[^`]+)`", row[0])}
    assert wanted - named == set()
    assert named - wanted == set()
    assert len(wanted) > 120


def test_every_numbered_equation_has_a_row_with_its_number(source: str) -> None:
    equations = re.findall(r"\\begin\{equation\}(.*?)\\end\{equation\}", source, re.DOTALL)
    cells = " ".join(row[0] for row in ROWS)
    for number, equation in enumerate(equations, start=1):
        label = re.search(r"\\label\{([^}]*)\}", equation)
        assert (f"({number}) `{label[1]}`" if label else f"({number})") in cells


def test_every_definition_and_result_has_a_row(source: str) -> None:
    items = " ".join(row[0] for row in ROWS)
    for kind in ("Definition", "Assumption", "Lemma", "Theorem", "Corollary", "Remark"):
        count = len(re.findall(rf"\\begin\{{{kind.lower()}\}}", source))
        assert count
        for number in range(1, count + 1):
            assert re.search(rf"\b{kind} {number}\b", items), f"{kind} {number}"


WITHOUT_LABEL = {
    r"KwInput\{.*A_\{m,i\}\^0": "q⁰, A⁰, n(0) and N(0)",
    r"a learning-error bound that explicitly captures": "a learning-error bound",
    r"Active-Constraint Drift-Plus-Penalty \(ACDPP\) policy that": "ACDPP: K-step retention",
    r"sublinear regret and sampling-cost violation": "sublinear violation",
    r"explicit guarantees in terms of sublinear regret": "sublinear regret",
    r"offline selection of the retention horizon": "K chosen offline",
    r"remains close to the oracle": "close to the oracle",
    r"which\} sample to select": "which samples to select",
    r"Cauchy--Schwarz inequality": "a steady n(t) is best",
    r"minimizes the right-hand side": "what the rule chooses",
    r"costless oracle policy\}: at every round": "the costless oracle",
    r"capacities are set to": "ten clients, capacities, budgets",
    r"only two out of the ten classes": "two of ten classes",
    r"partitioned i\.i\.d\.": "ImageNette i.i.d.",
    r"We adopt LeNet": "LeNet, ResNet-9",
    r"against three baselines": "oracle, constant admission, hybrid",
    r"Code is available": "the released scripts",
    r"can converge faster than constant-admission": "hybrid learns faster",
    r"satisfies both the buffer and sampling-cost": "memory and cost constraints are kept",
    r"established explicit guarantees": "the claims of the abstract, once more",
    r"concept drift": "concept drift",
}
"""Words of the paper, and words of the row that is about them."""


def test_what_has_no_label_has_a_row(source: str) -> None:
    text, cells = " ".join(source.split()), [f"{row[0]} {row[1]}" for row in ROWS]
    for said, row in WITHOUT_LABEL.items():
        assert re.search(said, text), said
        assert any(row in cell for cell in cells), row
    introduction = text.split(r"\section{Related Work}")[0].split(r"\section{Introduction}")[1]
    for number in range(1, introduction.count(r"\item") + 1):
        assert any(f"contribution {number}" in cell for cell in cells)
    results = text.split(r"\subsection{Main Results}")[1].split(r"\section{Conclusion}")[0]
    measured = set(re.findall(r"\d+\.\d+", results))
    claims = " ".join(row[1] for row in ROWS if row[0] == "claim")
    assert len(measured) == 10
    assert measured - set(re.findall(r"\d+\.\d+", claims)) == set()


def test_every_row_has_its_cells_and_a_verdict() -> None:
    for row in ROWS:
        assert len(row) == 5, row
        assert row[4].startswith(VERDICTS), row


def test_every_name_is_there() -> None:
    links = re.findall(r"\[`([\w.]+)`\]\(\.\./([\w/]+)\.py\)", PAGE)
    assert len(links) > 150
    for name, place in links:
        if place.startswith("src/"):
            thing: object = importlib.import_module(place.removeprefix("src/").replace("/", "."))
            for part in name.split("."):
                thing = getattr(thing, part)
        else:
            *owner, last = name.split(".")
            text = (ROOT / f"{place}.py").read_text("utf-8")
            for part in owner:
                assert f"class {part}" in text, name
            assert f"def {last}(" in text or f"class {last}(" in text, name


COMMANDS = sorted(
    set(re.findall(r"^python .*$|(?<=`)(?:python|tidegate) [^`]*(?=`)", PAGE, re.MULTILINE))
)
SMALL = {
    "algorithm_1.py": "--rounds 3 --seeds 1",
    "rates.py": "--longest 316 --seeds 2",
    "experiments.grid.grid": "--rounds 20 --seeds 1 --minutes 0.01",
    "plan": "--rounds 20 --seeds 2",
}
"""The options that make a command small, by its script or its subcommand."""


def name_of(command: str) -> str:
    """The script of a command by its file, the module that Python runs, or the subcommand."""
    words = command.split()
    return words[2] if words[1] == "-m" else Path(words[1]).name


def script_of(command: str) -> Path:
    words = command.split()
    return ROOT / (words[1] if words[1] != "-m" else f"{words[2].replace('.', '/')}.py")


def test_every_command_is_tried() -> None:
    tried = {name_of(command) for command in COMMANDS}
    minute = "experiments.bound.bound"  # which takes one: tests/experiments/test_scripts.py
    assert tried == {*SMALL, minute}


def test_every_command_names_a_script_and_options_that_it_has() -> None:
    for command in COMMANDS:
        if command.startswith("python"):
            text = script_of(command).read_text("utf-8")
            for option in re.findall(r"--[\w-]+", command):
                assert f'"{option}"' in text, command


@pytest.mark.process
@pytest.mark.data("mnist")
@pytest.mark.parametrize("command", [one for one in COMMANDS if name_of(one) in SMALL])
def test_a_command_runs(command: str, tmp_path: Path) -> None:
    program, *arguments = command.split()
    start = ["-m", "tidegate"] if program == "tidegate" else []
    given = [str(script_of(command)) if "/" in word else word for word in arguments]
    ended = subprocess.run(
        [sys.executable, *start, *given, *SMALL[name_of(command)].split()],
        cwd=tmp_path,
        env={**os.environ, "TIDEGATE_DATA": str(DATA), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout
