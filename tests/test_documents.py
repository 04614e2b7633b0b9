"""What the documents print is what the commands print."""

import re
import shlex
from pathlib import Path

import pytest
from check_size import SIZE, at_size
from one_process import in_one_process
from real_data import DATA, needs_mnist

from experiments.tool.commands import main as run_experiments
from experiments.tool.config import ExperimentConfig
from tidegate.cli import main
from tidegate.simulation.summary import estimate

pytestmark = [pytest.mark.long, pytest.mark.no_cover]  # long loops, covered elsewhere

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md"))]
SMALL = f"--seeds 1 --rounds {at_size(20, 100)}"


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(
        rf"^ *```{language}\n(.*?)^ *```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE
    )


def cases() -> list[tuple[str, str]]:
    """(command, what the page shows below it) of every console block."""
    found = []
    for page in PAGES:
        for block in blocks(page, "console"):
            command, _, shown = block.partition("\n")
            found.append((command.removeprefix("$ "), shown))
    return found


def is_long(command: str) -> bool:
    """Such a table is computed again at full size only; at each change its outline is checked."""
    return "--rounds" not in command


SHORT_TABLES = [case for case in cases() if not is_long(case[0])]
LONG_TABLES = dict(case for case in cases() if is_long(case[0]))


def printed(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    program, *arguments = shlex.split(command)
    assert program == "tidegate"
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    out, error = capsys.readouterr()
    assert not stopped.value.code, error
    return out


def bare(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().splitlines()]


def outline(text: str) -> list[str]:
    """Headings, words that explain, and the first word of every row that starts with one."""
    found = []
    for line in bare(text):
        row = re.match(r"([a-z_]+) {2,}.*\d", line)
        if row or not re.search(r"[\d─]", line):
            found.append(row[1] if row else " ".join(line.split()))
    return found


@pytest.mark.parametrize(("command", "shown"), SHORT_TABLES, ids=lambda text: text[:60])
def test_a_console_block_shows_what_the_command_prints(
    command: str, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = bare(shown)
    if lines[-1] == "...":  # the page shows how it begins
        assert bare(printed(command, capsys))[: len(lines) - 1] == lines[:-1] != []
    else:
        assert bare(printed(command, capsys)) == lines


@pytest.mark.full
@pytest.mark.parametrize("command", LONG_TABLES)
def test_a_long_console_block_shows_what_the_command_prints(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bare(printed(command, capsys)) == bare(LONG_TABLES[command])


@pytest.mark.parametrize("command", LONG_TABLES)
def test_a_long_console_block_has_the_rows_and_columns_that_are_printed(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert outline(printed(f"{command} --seeds 2 --rounds 20", capsys)) == outline(
        LONG_TABLES[command]
    )


def test_a_command_that_is_shown_twice_is_shown_alike() -> None:
    for command, shown in cases():
        assert not is_long(command) or bare(LONG_TABLES[command]) == bare(shown)


def test_the_documents_have_console_blocks() -> None:
    assert len(cases()) >= 4


EXPERIMENTS = ROOT / "docs" / "experiments.md"
TUTORIAL = ROOT / "docs" / "tutorial.md"


def commands(page: Path) -> list[str]:
    lines = [line.strip() for block in blocks(page, "bash") for line in block.splitlines()]
    return [line for line in lines if line.startswith("tidegate ")]


FIRST_RUN = commands(README)
COMMANDS = [
    line
    for page in PAGES
    if page not in (EXPERIMENTS, TUTORIAL)
    for line in commands(page)
    if line not in FIRST_RUN
]


def both(shown: str, name: str) -> list[float]:
    """A figure of the app's run, and of the one beside it, in percent."""
    (found,) = re.findall(rf"^ {name} +([\d.]+) +([\d.]+) *$", shown, re.MULTILINE)
    return [100 * float(figure) for figure in found]


@pytest.mark.full
@pytest.mark.share(600)  # 20 runs of 50 rounds
def test_the_first_run_is_told_with_ten_seeds(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    printed("tidegate new my-fleet", capfd)
    tables = [printed(f"tidegate run my-fleet --set seed={seed}", capfd) for seed in range(1, 11)]
    page = " ".join(TUTORIAL.read_text("utf-8").split())
    for name in ("accuracy", "rare digits read"):
        columns = zip(*(both(table, name) for table in tables), strict=True)
        for figures in map(estimate, map(list, columns)):
            assert f"{figures.mean:.1f} ± {figures.half_width:.1f} %" in page


@pytest.mark.share(90)  # four runs of 50 rounds, and a report
def test_the_tutorial_works_as_printed(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the order of the page, in a folder that was empty; the app needs no data."""
    monkeypatch.chdir(tmp_path)
    for command in commands(TUTORIAL):
        small = SMALL if command.startswith("tidegate plan --cap") else ""
        shown = printed(f"{command} {small}", capfd)
        assert shown or "--html" in command
        if command == FIRST_RUN[1]:
            (table,) = blocks(TUTORIAL, "text")[:1]
            assert {line.strip() for line in bare(table)} <= {line.strip() for line in bare(shown)}
            for name, words in (("accuracy", "test digits read"), ("rare digits read",) * 2):
                row = " | ".join(f"{figure:.1f} %" for figure in both(shown, name))
                assert re.search(rf"\| {words}.* \| {re.escape(row)} \|", README.read_text("utf-8"))
    assert Path("run/report.html").exists()
    assert Path("plan.html").exists()
    assert set(FIRST_RUN) <= set(commands(TUTORIAL))  # the same beginning


@needs_mnist
@pytest.mark.parametrize("command", [one for one in COMMANDS if one.startswith("tidegate run")])
def test_an_app_in_the_documents_runs(
    command: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("TIDEGATE_DATA", str(DATA))
    printed(f"{command} --set num-server-rounds=1", capfd)


@pytest.mark.parametrize("command", [one for one in COMMANDS if "tidegate run" not in one])
def test_a_command_in_the_documents_works(
    command: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (toml,) = blocks(ROOT / "docs" / "policies.md", "toml")
    Path("fleet.toml").write_text(toml, encoding="utf-8")
    assert printed(f"{command} {SMALL}", capsys)


@pytest.mark.share(120)  # it makes MNIST
@pytest.mark.process
@needs_mnist
def test_the_experiments_page_works_as_printed_on_a_small_scale(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if SIZE != "full":
        in_one_process(monkeypatch)
    monkeypatch.chdir(tmp_path)
    Path("experiments").symlink_to(ROOT / "experiments")
    small = (
        f"--set rounds={at_size(1, 2)} --set seeds=1 --set test_inputs=200 "
        """--set 'policies=[{name="constant_admission"},{name="tide"}]'"""
    )
    (block,) = blocks(EXPERIMENTS, "bash")
    commands = [line.partition("  #")[0] for line in block.splitlines() if "pip" not in line]
    arguments = [command.partition("python -m experiments ")[2] for command in commands]
    assert [words.split()[0] for words in arguments] == ["data", "run", "compare"]
    for words in arguments:
        whole = words.replace("downloads", str(DATA))
        with pytest.raises(SystemExit) as stopped:
            run_experiments(shlex.split(f"{whole} {small}" if words.startswith("run") else whole))
        shown, error = capfd.readouterr()
        assert not stopped.value.code, error
    assert "tide" in shown
    assert Path("figures/accuracy.png").exists()
    (text,) = blocks(EXPERIMENTS, "toml")
    Path("mine.toml").write_text(text, encoding="utf-8")
    assert len(ExperimentConfig.read(Path("mine.toml")).policies) == 3


PYTHON = [
    pytest.param(block, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, block in enumerate(blocks(page, "python"))
]


@pytest.mark.share(60)  # one simulates 500 rounds
@pytest.mark.parametrize("example", PYTHON)
def test_the_python_examples_run(
    example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(example, "example", "exec"), {})  # noqa: S102
