"""Convert the terms of a run that an earlier version saved to today's names."""

from collections.abc import Mapping
from typing import Any

from tidegate.policies import POLICIES

RENAMED = {"taking_part": "fraction_train", "least_taking_part": "min_train_nodes"}
EXPONENTS = {
    "contraction_exponent": ("acdpp",),
    "penalty_exponent": ("acdpp", "drift_plus_penalty"),
}
"""Options of every policy in version 0.1.0, and the policies whose own arguments they are now; in
the order of their names, as ``policies.identity`` has them."""
USUAL_EXPONENT = 0.5


def current_terms(saved: Mapping[str, Any]) -> dict[str, Any]:
    """Return terms as ``Terms.fixed`` returns them today.

    >>> options = {"penalty_exponent": 0.3, "contraction_exponent": 0.5, "strict_spending": True}
    >>> terms = current_terms({"policy": "acdpp", "options": options, "taking_part": 1.0})
    >>> terms["policy"], terms["spend_ahead"], terms["fraction_train"]
    ('acdpp(penalty_exponent=0.3)', 0.0, 1.0)
    """
    options, policy = dict(saved["options"]), saved["policy"]
    is_strict = options.pop("strict_spending", False)
    exponents = {name: options.pop(name, USUAL_EXPONENT) for name in EXPONENTS}
    told = [
        f"{name}={value!r}"
        for name, value in exponents.items()
        if value != USUAL_EXPONENT and (policy in EXPONENTS[name] or policy not in POLICIES)
    ]
    if told:
        policy = f"{policy}({', '.join(told)})"
    ahead = 0.0 if is_strict else saved.get("spend_ahead")
    terms = {**saved, "policy": policy, "options": options, "spend_ahead": ahead}
    for old in RENAMED.keys() & terms.keys():
        terms[RENAMED[old]] = terms.pop(old)
    return terms
