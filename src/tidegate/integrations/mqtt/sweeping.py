"""What ``tidegate buffers --sweep`` and ``tidegate forget`` do to a spool."""

from pathlib import Path

from tidegate.client.limits import Clock
from tidegate.client.sweeping import OtherFiles, Swept, check_gone
from tidegate.integrations.mqtt.messages import KIND
from tidegate.integrations.mqtt.spool_file import SpoolFile


def sweep_spool(path: Path, clock: Clock) -> Swept:
    """Overwrite messages that were held for too long, or are of a forgotten subject."""
    spool = SpoolFile(path, clock)
    try:
        expired, erased = spool.let_go()
        check_gone(path, is_gone=spool.empty_log())
        unnamed, has_limit = spool.unnamed(), spool.has_limit
        return Swept(path, "spool", expired + erased, erased, spool.held(), unnamed, has_limit)
    finally:
        spool.close()


SPOOLS = OtherFiles(KIND.application_id, sweep_spool)
