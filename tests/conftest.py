"""What a check runs, in which order, and how long each of its tests may take.

Markers say what a test needs: ``process`` starts another program, ``deployment`` uses the Flower
deployment that the whole run shares, ``data`` reads real data, ``timing`` measures time and runs
alone, ``long`` takes seconds, ``full`` runs at full size only. ``quick`` leaves all of them out.
``contract`` is what another version of Flower may change; ``scripts/check-flower`` runs it.
"""

import multiprocessing.context
import os
import platform
import signal
import subprocess
import time
from collections.abc import Generator, Iterator
from typing import IO, TYPE_CHECKING, Any

import pytest
from check_size import SIZE
from hypothesis import HealthCheck, settings
from real_data import missing

if TYPE_CHECKING:
    from fleet import Fleet, SharedFleet
    from label_studio import LabelStudio

SHARE = {"quick": 10.0, "check": 60.0, "full": 3600.0}
"""Seconds that a test may take, unless it states its share: ``@pytest.mark.share(60)``.

Of processor time, so that other work on the machine fails no test, on a machine on which a probe
takes ``REFERENCE``. On a slower one, or while a host shares its processor out, shares grow in
proportion.
"""
REFERENCE = 0.1
"""Seconds."""
NEEDS = ("process", "deployment", "data", "timing")
LEFT_OUT = {"quick": {*NEEDS, "long", "full"}, "check": {"full"}, "full": set[str]()}

for name in ("quick", "check"):  # the same examples at each change
    settings.register_profile(name, derandomize=True, deadline=None, max_examples=50)
settings.register_profile("full", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(SIZE)
platform.processor()  # some library asks, which starts `uname`; from now on the answer is known


def pytest_configure(config: pytest.Config) -> None:
    """End what was started also when somebody ends the tests; trace once in a worker.

    Without a handler SIGTERM would end this process at once, and leave deployments behind. A worker
    of xdist 3.8 parses the options of the process that started it, so pytest-cov 7.1 first takes it
    for that one, and starts a tracer that goes on where the worker's own one pauses.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    coverage = config.pluginmanager.get_plugin("_cov")
    if hasattr(config, "workerinput") and coverage is not None and coverage.cov_controller:
        coverage.cov_controller.cov.stop()


def _markers(item: pytest.Item) -> set[str]:
    return {mark.name for mark in item.iter_markers()}


@pytest.hookimpl(tryfirst=True)  # groups are read by xdist's own hook
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the size does not run; let what waits go first, beside what computes."""
    left_out = {item for item in items if _markers(item) & LEFT_OUT[SIZE]}
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]
    deployed = {item for item in items if "deployment" in _markers(item)}
    if config.pluginmanager.hasplugin("xdist"):
        for item in deployed:
            item.add_marker(pytest.mark.xdist_group("deployment"))
        for item in items:
            if "label_studio" in getattr(item, "fixturenames", ()):  # one server for all of them
                item.add_marker(pytest.mark.xdist_group("label studio"))
    items.sort(key=lambda item: (item not in deployed, not _uses_fleet(item), -_share(item)))


def _uses_fleet(item: pytest.Item) -> bool:
    """Whether the test uses the deployment that all share, and not one of its own."""
    return "_shared_fleet" in getattr(item, "fixturenames", ())


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Do not name tests after long texts, or after archives that hold the time of day."""
    return argname if isinstance(val, str | bytes) and len(val) > 80 else None


def _share(item: pytest.Item) -> float:
    mark = item.get_closest_marker("share")
    return SHARE[SIZE] if mark is None else float(mark.args[0])


TOOK = pytest.StashKey[float]()
FLEET = pytest.StashKey["SharedFleet"]()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    """What starts programs says so, also where a fixture does it, or ``quick`` would run it."""
    for mark in item.iter_markers("data"):
        for name in mark.args:
            if reason := missing(name):
                pytest.skip(reason)
    with pytest.MonkeyPatch.context() as patch:
        _no_process_without_its_marker(item, patch)
        yield


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """The test itself, timed."""
    began = _seconds(item)
    try:
        with pytest.MonkeyPatch.context() as patch:
            _no_process_without_its_marker(item, patch)
            yield
    finally:
        item.stash[TOOK] = _seconds(item) - began


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None]:
    """End the shared deployment after its last test: its processes take time while they wait."""
    yield
    if FLEET in item.config.stash and (nextitem is None or not _uses_fleet(nextitem)):
        item.config.stash[FLEET].stop()


def _no_process_without_its_marker(item: pytest.Item, patch: pytest.MonkeyPatch) -> None:
    if _markers(item) & {"process", "deployment"}:
        return

    def refuse(*_: Any, **__: Any) -> None:
        pytest.fail(f"{item.nodeid} starts a process: mark it @pytest.mark.process")

    patch.setattr(subprocess.Popen, "__init__", refuse)
    patch.setattr(multiprocessing.context.SpawnProcess, "_Popen", refuse)
    patch.setattr(os, "fork", refuse)


def _seconds(item: pytest.Item) -> float:
    """The time by which a test is judged.

    Of the processor, for this process and those that it has waited for; deployments, whose
    processes live longer than a test and mostly wait, go by the clock.
    """
    if "deployment" in _markers(item):
        return time.monotonic()
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _slowness(item: pytest.Item) -> float:
    """How many times slower than the machine that shares were stated for this one is just now."""
    probes = []
    for _ in range(5):
        began = _seconds(item)
        sum(number * number for number in range(1_000_000))
        probes.append(_seconds(item) - began)
    return max(sorted(probes)[len(probes) // 2] / REFERENCE, 1.0)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """A test that passes but is slower than its share fails."""
    report: pytest.TestReport = yield
    share, took = _share(item), item.stash.get(TOOK, 0.0)
    if call.when == "call" and report.passed and took > share:
        share *= _slowness(item)
    if call.when == "call" and report.passed and took > share:
        report.outcome = "failed"
        report.longrepr = (
            f"{item.nodeid} took {took:.1f} s; its share is {share:.0f} s. Make it "
            "smaller, give it a smaller size outside `scripts/check full` (at_size), or state a "
            "share of its own (@pytest.mark.share) with the reason."
        )
    return report


@pytest.fixture(autouse=True)
def _no_home(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Nodes that nobody gave a folder keep their samples with the tests' other files."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.getbasetemp() / "state"))


@pytest.fixture(autouse=True)
def _no_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are as wide as in a pipe, however the tests are run."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages have their words and no drawings, which take a second a page; tests/report draws."""
    from matplotlib.figure import Figure

    def leave_out(_: Figure, text: IO[str], **__: Any) -> None:
        text.write("<svg></svg>")

    monkeypatch.setattr(Figure, "savefig", leave_out)


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A data set that is learned in seconds."""
    from small_data import write_small  # the libraries behind it take seconds to load

    folder = tmp_path_factory.mktemp("data") / "small"
    write_small(folder)
    return str(folder)


@pytest.fixture(scope="session")
def _shared_fleet(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> "Iterator[SharedFleet]":
    from fleet import SharedFleet  # only who deploys something needs Flower

    shared = SharedFleet(lambda: tmp_path_factory.mktemp("fleet"))
    request.config.stash[FLEET] = shared
    yield shared
    shared.stop()


@pytest.fixture
def fleet(_shared_fleet: "SharedFleet") -> "Fleet":
    """A real deployment that all tests share: TLS, authenticated SuperNodes, all online."""
    return _shared_fleet.whole()


@pytest.fixture(scope="session")
def label_studio(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[LabelStudio]":
    """A real Label Studio that all tests share; those who break it start one of their own."""
    from label_studio import LabelStudio, installed

    made = installed(lambda: tmp_path_factory.mktemp("environment"))
    with LabelStudio(made, tmp_path_factory.mktemp("labels") / "data") as server:
        yield server
