"""Privacy loss of a single sample over a run: it takes part in K rounds, not in all of them.

Flower's accountant counts every round, which is right for a client. A single sample is in the
buffer for a few rounds only, and what is computed from released models later reveals nothing more
about it. Its loss is therefore that of as many releases as it takes part in.
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
"""Replacing a sample changes a client's update by up to twice the clipping norm."""


def sample_privacy(*, noise_multiplier: float, participations: int, delta: float) -> PrivacySpent:
    """Return epsilon for one sample under Flower's fixed clipping, by Flower's accountant.

    It holds under the conditions of Flower's own guarantee: updates clipped to one norm, clients of
    equal weight, noise for as many of them as are averaged. Also, a client must carry nothing from
    round to round but its buffer. Neighbours differ in one sample of one client. It does not hold
    if clients choose among candidates (``tidegate.selection``): another sample changes which others
    are admitted.

    Args:
        noise_multiplier: as given to Flower's wrapper.
        participations: the most rounds that a sample takes part in: ``JointPolicy.most_uses``.
        delta: the δ at which epsilon is reported.
    """
    accountant = RdpAccountant(
        PrivacyConfig(
            target_delta=delta,
            population_size=1,  # without sampling it has no effect
            neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE,
            sampling_method=SamplingMethod.NO_AMPLIFICATION,
        )
    )
    event = GaussianPrivacyEvent(
        noise_multiplier=noise_multiplier / MOST_CHANGE, sample_size=1, population_size=1
    )
    accountant.compose(event, participations)
    return accountant.get_privacy_spent()
