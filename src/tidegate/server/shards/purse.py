"""What a shard may spend, as far as it was told."""

from tidegate.errors import WireError
from tidegate.server.shards.messages import Grant


class Purse:
    """The newest grant of a shard. What was counted on before is in the shard's own books."""

    def __init__(self, run: str, shard: str) -> None:
        self._grant = Grant(run=run, shard=shard, first_round=1, before=0.0, budgets=())

    @property
    def run(self) -> str:
        """The run that all shards take part in."""
        return self._grant.run

    @property
    def shard(self) -> str:
        """Whose purse it is."""
        return self._grant.shard

    @property
    def grant(self) -> Grant:
        """The newest; without budgets before there was one."""
        return self._grant

    def take(self, grant: Grant) -> None:
        """Remember a grant; one that is older than the last adds nothing."""
        mine = self._grant
        if (grant.run, grant.shard) != (mine.run, mine.shard):
            raise WireError(
                f"a grant for {grant.shard!r} of run {grant.run!r} came to {mine.shard!r} of "
                f"run {mine.run!r}"
            )
        if grant.last_round > mine.last_round:
            self._grant = grant

    def budget(self, round_number: int, counted: float) -> float:
        """C_i(t): what a round may cost, with what earlier rounds were not told in time.

        Args:
            round_number: t.
            counted: the sum of the budgets of all rounds before, as the shard's books have it.
        """
        return max(self._grant.until(round_number) - counted, 0.0)

    def rate(self, round_number: int) -> float:
        """What the rounds from this one on get each, as far as is known."""
        return self._grant.rate(round_number)
