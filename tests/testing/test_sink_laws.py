"""The laws of sinks: ours obey them, and a sink that does not is caught."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from tidegate.integrations.mlflow import MLflow
from tidegate.integrations.prometheus import Prometheus
from tidegate.integrations.tensorboard import TensorBoard
from tidegate.runs.sinks import Moment, Source
from tidegate.testing import SINK_LAWS, LawBrokenError, check_sink


def test_ours_obey(tmp_path: Path) -> None:
    check_sink(lambda: Prometheus(port=0))
    check_sink(lambda: TensorBoard(tmp_path / "curves"))


@pytest.mark.long
def test_mlflow_obeys(tmp_path: Path) -> None:
    check_sink(lambda: MLflow("fleet", tracking_uri=f"sqlite:///{tmp_path}/mlflow.db"))


class Plain:
    """Does nothing, and breaks no law."""

    def decided(self, round_number: int, price: float) -> None:
        pass

    def settled(self, moment: Moment) -> None:
        pass

    def measured(self, round_number: int, source: Source, metrics: Mapping[str, float]) -> None:
        pass

    def close(self, *, failed: bool) -> None:
        pass


class LacksClose(Plain):
    close = None  # type: ignore[assignment]


class WantsWholeNumbers(Plain):
    def measured(self, round_number: int, source: Source, metrics: Mapping[str, float]) -> None:
        for value in metrics.values():
            int(100 * value)


class WantsSettledRounds(Plain):
    def __init__(self) -> None:
        self.open: set[int] = set()

    def decided(self, round_number: int, price: float) -> None:
        self.open.add(round_number)

    def settled(self, moment: Moment) -> None:
        self.open.remove(moment.done.round_number)

    def close(self, *, failed: bool) -> None:
        if self.open:
            raise ValueError("a round has no end")


class WantsRounds(Plain):
    def __init__(self) -> None:
        self.spent: list[float] = []

    def settled(self, moment: Moment) -> None:
        self.spent.append(moment.done.spent)

    def decided(self, round_number: int, price: float) -> None:
        self.spent.append(0.0)

    def close(self, *, failed: bool) -> None:
        max(self.spent)


class CountsFromTheFirstRound(Plain):
    def resumed(self, before: object) -> None:
        raise NotImplementedError


BROKEN = {
    "has_all_methods": LacksClose,
    "takes_a_whole_run": WantsWholeNumbers,
    "ends_with_a_run_that_fails": WantsSettledRounds,
    "ends_with_a_run_that_never_began": WantsRounds,
    "goes_on_with_the_rounds_of_an_earlier_start": CountsFromTheFirstRound,
}


def test_a_plain_sink_obeys() -> None:
    check_sink(Plain)


@pytest.mark.parametrize("law", SINK_LAWS)
def test_a_sink_that_breaks_a_law_is_caught(law: str) -> None:
    with pytest.raises(LawBrokenError) as broken:
        check_sink(BROKEN[law])
    assert broken.value.law == law
