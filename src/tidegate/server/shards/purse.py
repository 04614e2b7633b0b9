"""What a shard may spend, by its newest grant."""

from tidegate.errors import WireError
from tidegate.server.shards.messages import Grant


class Purse:
    """The newest grant of a shard. What earlier rounds used is in the shard's own books."""

    def __init__(self, run: str, shard: str) -> None:
        self._grant = Grant(run=run, shard=shard, first_round=1, before=0.0, budgets=())

    @property
    def run(self) -> str:
        """The run that all shards take part in."""
        return self._grant.run

    @property
    def shard(self) -> str:
        """The shard that the purse belongs to."""
        return self._grant.shard

    @property
    def grant(self) -> Grant:
        """The newest grant; without budgets before the first."""
        return self._grant

    def take(self, grant: Grant) -> None:
        """Store a grant; one that is older than the last adds nothing."""
        mine = self._grant
        if (grant.run, grant.shard) != (mine.run, mine.shard):
            raise WireError(
                f"a grant for {grant.shard!r} of run {grant.run!r} was sent to {mine.shard!r} of "
                f"run {mine.run!r}"
            )
        if grant.last_round > mine.last_round:
            self._grant = grant

    def budget(self, round_number: int, counted: float) -> float:
        """Return C_i(t): what a round may cost, with what earlier rounds learned too late.

        Args:
            round_number: t.
            counted: the sum of the budgets of all rounds before, by the shard's books.
        """
        return max(self._grant.until(round_number) - counted, 0.0)

    def rate(self, round_number: int) -> float:
        """Return what each round from this one on gets, as far as is known."""
        return self._grant.rate(round_number)
