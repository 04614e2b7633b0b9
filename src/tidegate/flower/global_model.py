"""The global model: as the strategy averages it, and as clients receive it."""

import logging

from flwr.app import ArrayRecord, RecordDict

from tidegate.errors import WireError
from tidegate.flower.updates import UpdateCheck, in_types_of

AVERAGE_REFUSED = (
    "round %d: the strategy returned an average that cannot be the next model (%s); the model "
    "stays as it was"
)

logger = logging.getLogger(__name__)


class GlobalModel:
    """The global model, in the strategy's types and in its own, if these differ.

    Args:
        initial: the model that the run started with, with the model's own types.
        average: the strategy's last average, if the run is resumed.
    """

    def __init__(self, initial: ArrayRecord, average: ArrayRecord | None = None) -> None:
        self._initial = initial
        self.average = initial if average is None else average
        """As the strategy returned it; the next average starts from here."""
        self.arrays = in_types_of(initial, self.average)
        """The same with integers where the model has integers, as clients receive it."""
        self._updates: tuple[ArrayRecord, UpdateCheck] | None = None

    @property
    def updates(self) -> UpdateCheck:
        """The check for updates of the model; made once for each model."""
        model, check = self._updates or (None, None)
        if check is None or model is not self.arrays:
            check = UpdateCheck(self.arrays, check)
            self._updates = self.arrays, check
        return check

    def replace(self, arrays: ArrayRecord) -> None:
        """Continue with these arrays, which something else than the strategy has set."""
        if arrays is not self.arrays:
            self.average = self.arrays = arrays

    def put_into(self, content: RecordDict) -> None:
        """Put the model into a message, in its own types."""
        for key, record in content.items():
            if record is self.average:
                content[key] = self.arrays

    def accept(self, average: ArrayRecord, now: int) -> ArrayRecord | None:
        """Make the average of a round the model if it is valid; otherwise log why not."""
        arrays = in_types_of(self._initial, average)
        try:
            self.updates.check_average(arrays)
        except WireError as refused:
            logger.warning(AVERAGE_REFUSED, now, refused)
            return None
        self.average, self.arrays = average, arrays
        return arrays
