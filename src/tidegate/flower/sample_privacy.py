"""What a sample gives away over a run: it takes part in K rounds, not in all of them.

Flower's accountant counts every round, which is right for a client. A single sample is in the
buffer for a few rounds only, and what is computed from released models later tells nothing more
of it. So its loss is that of as many releases as it takes part in.
"""

from flwr.serverapp import (
    GaussianPrivacyEvent,
    NeighboringRelation,
    PrivacyConfig,
    PrivacySpent,
    RdpAccountant,
    SamplingMethod,
)

MOST_CHANGE = 2.0
"""Another sample in its place moves a client's update by up to twice the norm it is clipped to."""


def sample_privacy(*, noise_multiplier: float, participations: int, delta: float) -> PrivacySpent:
    """The loss of one sample, under Flower's fixed clipping, by Flower's accountant.

    It holds where Flower's own guarantee holds: updates clipped to one norm, clients of equal
    weight, noise for as many of them as are averaged. And where a client carries nothing from
    round to round but its buffer. Neighbours differ in one sample of one client. Where clients
    choose among candidates (``tidegate.selection``) it does not hold: another sample changes which
    others are admitted.

    Args:
        noise_multiplier: as given to Flower's wrapper.
        participations: rounds that a sample takes part in at most: ``JointPolicy.most_uses``.
        delta: at which epsilon is reported.
    """
    accountant = RdpAccountant(
        PrivacyConfig(
            target_delta=delta,
            population_size=1,  # without sampling it plays no part
            neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE,
            sampling_method=SamplingMethod.NO_AMPLIFICATION,
        )
    )
    event = GaussianPrivacyEvent(
        noise_multiplier=noise_multiplier / MOST_CHANGE, sample_size=1, population_size=1
    )
    accountant.compose(event, participations)
    return accountant.get_privacy_spent()
