"""The laws of a policy, and the check that tries them."""

from collections.abc import Callable, Iterable, Mapping

from tidegate._internal.suggestion import suggestion
from tidegate.errors import ConfigurationError
from tidegate.policies import PolicyMaker
from tidegate.testing import rule_laws, run_laws
from tidegate.testing.counting import Leaving
from tidegate.testing.settings import Subject

Law = Callable[[Subject, str], None]

POLICY_LAWS: Mapping[str, Law] = {
    law.__name__: law
    for law in (
        run_laws.admits_whole_samples_within_one_of_the_target,
        run_laws.overspend_never_exceeds_the_debt,
        run_laws.same_seed_same_run,
        run_laws.goes_on_from_a_saved_state_as_if_never_interrupted,
        run_laws.hard_capacity_is_never_exceeded,
        run_laws.spend_ahead_of_0_never_exceeds_what_was_allowed_so_far,
        run_laws.sums_equal_samples_counted_one_by_one,
        rule_laws.deciding_changes_nothing,
        rule_laws.settling_follows_receipts_not_orders,
        rule_laws.what_came_back_decides_the_next_order,
        rule_laws.a_limit_is_kept,
        run_laws.the_total_needs_only_sums,
    )
}


def check_policy(
    make_policy: PolicyMaker,
    *,
    laws: Iterable[str] = tuple(POLICY_LAWS),
    leaving: Leaving | None = None,
    rounds: int = 60,
) -> None:
    """Try laws of policies; the first that is broken is a ``LawBrokenError``.

    Args:
        make_policy: makes the policy for a problem and ``ControlOptions``, as ``AdmissionControl``
            and ``tidegate.policies.POLICIES`` take it.
        laws: names of those to try; all of ``POLICY_LAWS`` by default, some seconds.
        leaving: when the policy's retention rule lets a sample go, where it has a rule of its own.
        rounds: of each run that a law is tried on.

    >>> from tidegate.policies.acdpp import acdpp
    >>> check_policy(acdpp, laws=["a_limit_is_kept"])
    """
    names = [laws] if isinstance(laws, str) else list(laws)
    for name in names:
        if name not in POLICY_LAWS:
            hint = suggestion(name, POLICY_LAWS, otherwise="choose from those of POLICY_LAWS.")
            known = ", ".join(POLICY_LAWS)
            raise ConfigurationError(
                f"there is no law {name!r} for policies; {hint} The laws: {known}"
            )
    subject = Subject(make_policy, leaving, rounds)
    for name in names:
        POLICY_LAWS[name](subject, name)
