"""How long a device may keep a sample, and a time that never goes back.

A device's clock may be wrong: set back by a dead battery, or years ahead. Samples age by a time of
the file's own, which follows the clock and never falls. What it cannot know it takes for longer,
because a sample that leaves too early costs money, and one that stays too long breaks a promise.
"""

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


def duration(text: str) -> int:
    """A limit in hours, days or weeks, as milliseconds.

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
    """A limit as it is written.

    >>> in_words(duration("30d")), in_words(duration("36h"))
    ('30d', '36h')
    """
    return f"{length // HOUR}h" if length % DAY else f"{length // DAY}d"


def milliseconds(clock: Clock) -> int:
    """What a clock says."""
    return int(clock() * 1000)


@dataclass(frozen=True)
class OwnTime:
    """The time of a file: it never falls, however its clock is set."""

    own: int
    """Milliseconds since 1970, if the clock was never wrong."""
    wall: int
    """What the clock said last."""

    def at(self, wall: int) -> "OwnTime":
        """The time when the clock says this.

        A clock that is ahead of all that was seen is believed. One that is behind only says how
        much time has passed since it was read last.

        >>> now = OwnTime(own=5000, wall=5000)
        >>> now.at(4000), now.at(4000).at(4300), now.at(4000).at(9000)
        (OwnTime(own=5000, wall=4000), OwnTime(own=5300, wall=4300), OwnTime(own=9000, wall=9000))
        """
        behind = self.own + max(wall - self.wall, 0)
        return OwnTime(wall if wall >= self.own else behind, wall)

    def jump(self, wall: int) -> int:
        """How far the clock jumped, in milliseconds; 0 where nothing is strange about it."""
        step = wall - self.wall
        return step if step < -FORGIVEN or step > YEAR else 0
