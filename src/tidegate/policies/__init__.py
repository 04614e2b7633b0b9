"""Joint policies by name. A new policy is one file in this folder and one line in ``POLICIES``."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from tidegate.policies.acdpp import acdpp
from tidegate.policies.constant_admission import constant_admission
from tidegate.policies.costless_oracle import costless_oracle
from tidegate.policies.drift_plus_penalty import drift_plus_penalty
from tidegate.policies.hybrid import hybrid
from tidegate.policies.joint import JointPolicy
from tidegate.policies.options import DEFAULT_OPTIONS, ControlOptions, ExceedsCap, NotApplicable
from tidegate.policies.tide import tide

PolicyMaker = Callable[..., JointPolicy[Any]]
"""A function of a problem and ``ControlOptions``; it may take its own keyword options."""

POLICIES: Mapping[str, PolicyMaker] = {
    "costless_oracle": costless_oracle,
    "constant_admission": constant_admission,
    "hybrid": hybrid,
    "drift_plus_penalty": drift_plus_penalty,
    "acdpp": acdpp,
    "tide": tide,
}
"""The joint policies by the names that ``make_policy`` and the command line take."""


def identity(maker: PolicyMaker) -> str:
    """Return the name under which a saved run stores its policy.

    >>> identity(acdpp)
    'acdpp'
    >>> identity(partial(acdpp, penalty_weight=3.0))
    'acdpp(penalty_weight=3.0)'
    """
    for name, known in POLICIES.items():
        if maker is known:
            return name
    if isinstance(maker, partial):
        arguments = [repr(argument) for argument in maker.args]
        arguments += [f"{name}={value!r}" for name, value in sorted(maker.keywords.items())]
        return f"{identity(maker.func)}({', '.join(arguments)})"
    named = maker if hasattr(maker, "__qualname__") else type(maker)
    return f"{named.__module__}.{named.__qualname__}"


__all__ = [
    "DEFAULT_OPTIONS",
    "POLICIES",
    "ControlOptions",
    "ExceedsCap",
    "JointPolicy",
    "NotApplicable",
    "PolicyMaker",
    "identity",
]
