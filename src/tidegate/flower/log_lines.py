"""What AdmissionControl tells in Flower's log, beside a line for every round."""

ALL_PLAYED = "all %d rounds of run %s are played; take another folder for another run"
BUYING_PAUSES = (
    "what clients bought could not be used: they buy nothing for %d more rounds, unless one of "
    "their models can be used before"
)
NOBODY_TOOK_PART = (
    "no client took part in this run, and no round was played: see that nodes are online and start "
    "it again"
)
NOT_PLAYED = "round %d is not played: no client can be reached, and none was before"
"""Its number comes again."""
NOT_HERE = "importance is given for clients that are not here: %s"
