"""Several servers that share one budget.

If one server cannot carry the fleet, several run a part each, a *shard*, with a policy and a ledger
of its own. A coordinator divides the budget of every round among them. They exchange two messages:
a shard *reports* what one more unit of money would be worth to it, and gets a *grant*, the budgets
of its coming rounds. When money is worth the same everywhere, no other division would be better.

Most of a round's budget is promised many rounds ahead, so that a shard without contact can
continue. The rest, and the promises of shards without contact, is added when the round begins,
where money is worth most by then. What was promised or added is never taken back. Whatever is lost,
late, duplicated or out of order, the budgets that shards hold for a round therefore never add up to
more than C. Each shard's cost debt is a certificate for its own budgets, and their sum for the
whole:

    total overspend up to t  <=  Σ_i Z_i(t+1).

A grant says all that a shard needs to know, so only the newest counts. A shard whose promises have
ended spends what it has saved, and no more.

Rounds have the same numbers everywhere. There is one coordinator, whose record is on disk before
its grants are sent; two of them, or one that has lost its record, would grant rounds twice. It
needs no process of its own: its record is where shards meet (``Meeting``), in a PostgreSQL database
(``postgres.PostgresMeeting``) or in memory (``memory.MemoryMeeting``), and the first shard that
reaches a new round divides it in one transaction. Shards are servers of one operator and are
trusted, within limits: while all report, none gets more than ``coordinator.MOST_SHARE`` times what
its slots would get it. Silence is counted in divided rounds: while the coordinator is away, no
shard counts as silent.
"""

from tidegate.server.shards.coordinator import Coordinator
from tidegate.server.shards.meeting import Meeting, MeetingView, ShardView
from tidegate.server.shards.membership import Membership, Shard
from tidegate.server.shards.messages import Grant, Report
from tidegate.server.shards.purse import Purse

__all__ = [
    "Coordinator",
    "Grant",
    "Meeting",
    "MeetingView",
    "Membership",
    "Purse",
    "Report",
    "Shard",
    "ShardView",
]
