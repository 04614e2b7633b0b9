"""Several servers under one budget: what they tell each other, and nothing else.

Above what one server carries, each of several runs a part of the fleet, a *shard*, with a policy
and a ledger of its own. A coordinator divides the budget of every round among them. They need two
messages: a shard *reports* what one more unit of money would be worth to it, and gets a *grant*,
the budgets of its coming rounds. Where money is worth the same everywhere, no other division of it
would be better.

Most of a round's budget is promised many rounds ahead, so that a shard which hears nothing can go
on; the rest, and what would be promised to shards that are not heard of, is added when the round
begins, where money is worth most by then. What was promised or added is never taken back. So
whatever is lost, late, doubled or out of order, the budgets that shards hold for a round never add
up to more than C; each shard's cost debt is a certificate for its own budgets, and their sum for
the whole:

    total overspend up to t  <=  Σ_i Z_i(t+1).

A grant says all that a shard needs to know, so that the newest alone counts. A shard whose promises
have come to their end spends what it has saved, and no more.

Rounds have the same numbers everywhere. There is one coordinator, whose record is on disk before
its grants are sent; two of them, or one that has lost its record, would grant rounds twice. No
program of its own runs it: its record lies where shards meet (``Meeting``), in a PostgreSQL
database (``postgres.PostgresMeeting``) or in memory (``memory.MemoryMeeting``), and whichever shard
comes first to a new round divides that round in one transaction. Shards
are servers of one operator and are believed, within limits: while all are heard of, none gets more
than ``coordinator.MOST_SHARE`` times what its slots would get it. Silence is counted in rounds that
were divided: while the coordinator is away, nobody can be heard.
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
