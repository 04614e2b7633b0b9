"""Which samples a simulated fleet trains on, where clients store more than they train on."""

from dataclasses import dataclass

import numpy as np

from tidegate._internal.arrays import CountArray, IntArray, Members
from tidegate._internal.randomness import TRAINING, generator
from tidegate.problem import Problem
from tidegate.retention.buffers import Stored


@dataclass(frozen=True, eq=False)
class Training:
    """The uses of every stored sample: clients train on the least used; equal ones are drawn.

    8 bytes a sample. What leaves a buffer is its oldest, under every rule.
    """

    seed: int
    uses: tuple[IntArray, ...]
    """Of each client's samples, the oldest first; none if clients train on all that they store."""

    @classmethod
    def start(cls, problem: Problem, seed: int, stored: CountArray) -> "Training":
        """Return the state before round 1.

        Args:
            problem: the problem.
            seed: for what is drawn.
            stored: the earlier samples that each client still stores: those used least.
        """
        if problem.train_on is None:
            return cls(seed, ())
        held = [np.zeros(0, dtype=np.int64)] * problem.num_clients
        if problem.earlier.by_client.size:
            held = [np.repeat(np.arange(len(row)), row)[::-1] for row in problem.earlier.by_client]
        return cls(
            seed, tuple(uses[len(uses) - count :] for uses, count in zip(held, stored, strict=True))
        )

    def after_round(
        self, round_number: int, problem: Problem, who: Members, stored: Stored
    ) -> tuple["Training", CountArray, int]:
        """Return the state after a round, what each client trains on, and their earlier uses.

        Args:
            round_number: t.
            problem: the problem.
            who: the clients that take part.
            stored: their buffers while they train.
        """
        if not self.uses:
            return self, stored.occupancy, stored.prior_uses
        trained = np.minimum(stored.occupancy, np.asarray(problem.train_on)[who])
        draw, after, prior = generator(self.seed, TRAINING, round_number), list(self.uses), 0
        rows = zip(np.arange(len(after))[who], stored.occupancy, stored.fresh, trained, strict=True)
        for client, occupancy, fresh, count in rows:
            uses = np.append(after[client], np.zeros(fresh, dtype=np.int64))
            uses = uses[len(uses) - occupancy :]
            chosen = np.argsort(uses + draw.random(occupancy))[:count]
            prior += int(uses[chosen].sum())
            uses[chosen] += 1
            after[client] = uses
        return Training(self.seed, tuple(after)), trained.astype(np.int32), prior
