"""Tide: Tidegate's own policy, beyond the paper."""

from tidegate.admission.tide import PRICE_GROUPS, Tide, TideState
from tidegate.policies.joint import JointPolicy
from tidegate.policies.options import DEFAULT_OPTIONS, ControlOptions
from tidegate.problem import Problem
from tidegate.retention.oldest_first import OldestFirst


def tide(
    problem: Problem,
    options: ControlOptions = DEFAULT_OPTIONS,
    *,
    price_groups: int = PRICE_GROUPS,
) -> JointPolicy[TideState]:
    """Return Tide, which keeps buffers full and replaces the oldest sample at a low enough price.

    The price threshold rises with the sample's age. Tide uses neither the mean price nor the
    learning constants of the problem. It has no K, γ or φ, and capacity is always a hard limit.

    Args:
        problem: capacities, budget and rounds.
        options: a limit on spending ahead, whether the run has an end, and a cap on uses.
        price_groups: groups of prices, for prices that depend on the price before; 1 treats them as
            independent.
    """
    return JointPolicy(
        admission=Tide(
            budget=problem.budget,
            num_rounds=None if options.endless else problem.num_rounds,
            total_capacity=problem.total_capacity,
            fraction_train=problem.mean_fraction_train,
            price_groups=price_groups,
            most_uses=options.most_uses,
            # A cap counts rounds in the buffer: thresholds are then as if all samples trained.
            chance=problem.chance if options.most_uses is None else 1.0,
            stored=int(problem.earlier.within(options.most_uses).sum()),
        ),
        retention=OldestFirst(options.most_uses or 0),
        shares=problem.capacity_shares,
        hard_capacity=True,
        spend_ahead=options.spend_ahead,
        least_share=options.least_share,
        endless=options.endless,
    )
