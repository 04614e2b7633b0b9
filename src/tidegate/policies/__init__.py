"""Joint policies by name. A new policy is one file in this folder and one line in ``POLICIES``."""

from collections.abc import Callable, Mapping
from typing import Any

from tidegate.policies.acdpp import acdpp
from tidegate.policies.constant_admission import constant_admission
from tidegate.policies.costless_oracle import costless_oracle
from tidegate.policies.drift_plus_penalty import drift_plus_penalty
from tidegate.policies.hybrid import hybrid
from tidegate.policies.joint import JointPolicy
from tidegate.policies.options import DEFAULT_OPTIONS, ControlOptions, NotApplicable
from tidegate.policies.tide import tide

PolicyMaker = Callable[..., JointPolicy[Any]]
"""Called with a problem and ``ControlOptions``; may take keyword options of its own."""

POLICIES: Mapping[str, PolicyMaker] = {
    "costless_oracle": costless_oracle,
    "constant_admission": constant_admission,
    "hybrid": hybrid,
    "drift_plus_penalty": drift_plus_penalty,
    "acdpp": acdpp,
    "tide": tide,
}

__all__ = [
    "DEFAULT_OPTIONS",
    "POLICIES",
    "ControlOptions",
    "JointPolicy",
    "NotApplicable",
    "PolicyMaker",
]
