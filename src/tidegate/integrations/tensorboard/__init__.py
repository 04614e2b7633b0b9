"""A sink for TensorBoard."""

from collections.abc import Mapping
from pathlib import Path

from tidegate.runs.sinks import Moment, Source

try:
    from tensorboard.summary import Writer
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        "tensorboard is not installed; pip install 'tidegate[tensorboard]'", name="tensorboard"
    ) from missing


class TensorBoard:
    """Writes event files, with one curve for each number of a round.

    Args:
        folder: the folder for ``tensorboard --logdir``, or one in it.
    """

    def __init__(self, folder: Path | str) -> None:
        self._writer = Writer(str(folder))

    def decided(self, round_number: int, price: float) -> None:
        """Do nothing: the price is written when the round is settled."""

    def settled(self, moment: Moment) -> None:
        """Add a point to each curve."""
        for name, value in moment.numbers().items():
            self._writer.add_scalar(f"tidegate/{name}", value, moment.done.round_number)
        self._writer.flush()

    def measured(self, round_number: int, source: Source, metrics: Mapping[str, float]) -> None:
        """Add a point to each metric's curve."""
        for name, value in metrics.items():
            self._writer.add_scalar(f"{source}/{name}", value, round_number)
        self._writer.flush()

    def close(self, *, failed: bool) -> None:
        """Write what is left."""
        self._writer.close()
