"""The model of a run: as the strategy averages it, and as clients get it."""

import logging

from flwr.app import ArrayRecord, RecordDict

from tidegate.errors import WireError
from tidegate.flower.updates import UpdateCheck, in_types_of

AVERAGE_REFUSED = (
    "round %d: the strategy's average cannot be the next model, which stays as it was: %s"
)

logger = logging.getLogger("flwr.tidegate")


class GlobalModel:
    """The same numbers twice, where the strategy's average has other types than the model.

    Args:
        initial: the model that the run began with; its types are the model's own.
        average: the strategy's last average, where the run goes on.
    """

    def __init__(self, initial: ArrayRecord, average: ArrayRecord | None = None) -> None:
        self._initial = initial
        self.average = initial if average is None else average
        """As the strategy gave it, which goes on from there."""
        self.arrays = in_types_of(initial, self.average)
        """The same with whole numbers where the model has whole numbers, as clients get it."""
        self._updates: tuple[ArrayRecord, UpdateCheck] | None = None

    @property
    def updates(self) -> UpdateCheck:
        """What an update of the model must be like; made once for each model."""
        model, check = self._updates or (None, None)
        if check is None or model is not self.arrays:
            check = UpdateCheck(self.arrays, check)
            self._updates = self.arrays, check
        return check

    def replace(self, arrays: ArrayRecord) -> None:
        """Go on with these, where somebody else than the strategy has set them."""
        if arrays is not self.arrays:
            self.average = self.arrays = arrays

    def put_into(self, content: RecordDict) -> None:
        """Give clients the model in its own types."""
        for key, record in content.items():
            if record is self.average:
                content[key] = self.arrays

    def accept(self, average: ArrayRecord, now: int) -> ArrayRecord | None:
        """Take the average of a round as the model, if it can be; the log says why it cannot."""
        arrays = in_types_of(self._initial, average)
        try:
            self.updates.check_average(arrays)
        except WireError as refused:
            logger.warning(AVERAGE_REFUSED, now, refused)
            return None
        self.average, self.arrays = average, arrays
        return arrays
