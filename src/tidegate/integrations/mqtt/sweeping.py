"""What ``tidegate buffers --sweep`` and ``tidegate forget`` do to a spool."""

from contextlib import closing
from pathlib import Path

from tidegate.client.limits import Clock
from tidegate.client.other_files import OtherFiles
from tidegate.client.sweeping import Swept
from tidegate.integrations.mqtt.spool import KIND, NAMED, Spool


def sweep_spool(path: Path, clock: Clock) -> Swept:
    """Overwrite messages that were held for too long, or are of a forgotten subject."""
    with closing(Spool(path, clock=clock)) as spool:
        return spool.sweep()


SPOOLS = OtherFiles(KIND.application_id, sweep_spool, NAMED)
