"""How long a device may keep a sample, by a time that never goes back.

A device's clock may be wrong: set back by a dead battery, or years ahead. Samples age by the file's
own time, which follows the clock and never falls. In doubt it assumes that more time has passed: a
sample that leaves too early costs money, but one that stays too long breaks a promise.
"""

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass

from tidegate.errors import ConfigurationError

Clock = Callable[[], float]
"""Says the time, in seconds since 1970; ``time.time`` outside of tests."""

HOUR = 3_600_000
"""In milliseconds, as all times that are kept."""
DAY = 24 * HOUR
UNITS = {"h": HOUR, "d": DAY, "w": 7 * DAY}
FORGIVEN = HOUR
"""A clock that is set back by no more than this is not reported."""
YEAR = 366 * DAY
"""A clock that goes ahead by more than this between two readings is reported."""
LONGEST = 100 * YEAR

logger = logging.getLogger(__name__)


def duration(text: str) -> int:
    """Return a limit in hours, days or weeks as milliseconds.

    >>> duration("30d") == 30 * 24 * 3600 * 1000, duration("12h") == 12 * 3600 * 1000
    (True, True)
    """
    found = re.fullmatch(r"(\d{1,9})([hdw])", text) if isinstance(text, str) else None
    length = int(found[1]) * UNITS[found[2]] if found else 0
    if not 0 < length <= LONGEST:
        raise ConfigurationError(
            f"keep_at_most must be a number of hours, days or weeks, such as '12h', '30d' or '4w', "
            f"of at most a hundred years, got {text!r}"
        )
    return length


def in_words(length: int) -> str:
    """Return a limit as it is written.

    >>> in_words(duration("30d")), in_words(duration("36h"))
    ('30d', '36h')
    """
    return f"{length // HOUR}h" if length % DAY else f"{length // DAY}d"


def milliseconds(clock: Clock) -> int:
    """Return the clock's time in milliseconds."""
    return int(clock() * 1000)


@dataclass(frozen=True)
class OwnTime:
    """The time of a file: it never falls, however its clock is set."""

    own: int
    """Milliseconds since 1970, if the clock was never wrong."""
    wall: int
    """The clock's last reading."""

    def at(self, wall: int) -> "OwnTime":
        """Return the time at a reading of the clock.

        A clock that is ahead of all earlier readings is trusted. One that is behind only says how
        much time has passed since its last reading.

        >>> now = OwnTime(own=5000, wall=5000)
        >>> now.at(4000), now.at(4000).at(4300), now.at(4000).at(9000)
        (OwnTime(own=5000, wall=4000), OwnTime(own=5300, wall=4300), OwnTime(own=9000, wall=9000))
        """
        behind = self.own + max(wall - self.wall, 0)
        return OwnTime(wall if wall >= self.own else behind, wall)

    def jump(self, wall: int) -> int:
        """Return how far the clock jumped, in milliseconds; 0 if it did not."""
        step = wall - self.wall
        return step if step < -FORGIVEN or step > YEAR else 0


def log_jump(name: str, jump: int) -> None:
    """Warn that the clock of a device was set, by so many milliseconds."""
    logger.warning(
        "the clock of %s was set %s by %.1f days: %s",
        name,
        "ahead" if jump > 0 else "back",
        abs(jump) / 86_400_000,
        "samples that are now past their limit will be deleted"
        if jump > 0
        else "samples continue to age from the latest time that it showed",
    )
