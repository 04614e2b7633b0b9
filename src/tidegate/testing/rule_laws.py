"""The laws of a policy's admission rule: what it may change, and what it must follow."""

import dataclasses
import io
import math

from tidegate._internal import saving
from tidegate.admission.rule import Quote, RoundTotals, ServerState
from tidegate.testing.settings import Subject, tried

NOTHING = RoundTotals(admitted=0, spent=0.0, training_size=0, prior_uses=0, carried=0)


def _saved(state: object) -> bytes:
    file = io.BytesIO()
    saving.write(state, file)
    return file.getvalue()


def deciding_changes_nothing(subject: Subject, law: str) -> None:
    """``decide`` gives the same order again, and changes neither its state nor an earlier one."""
    setting, trial = next(tried(law, subject.settings()))
    with trial.raises_nothing():
        rule = setting.policy(subject.make).admission
        start = rule.start()
        state = rule.learn(start, Quote(4.0))
        kept = _saved(start), _saved(state)
        orders = {rule.decide(state, Quote(4.0), 30.0) for _ in range(3)}
        trial.expect(
            len(orders) == 1, f"asked three times, it returned {len(orders)} different orders"
        )
        trial.expect((_saved(start), _saved(state)) == kept, "deciding changed the state")


def settling_follows_receipts_not_orders(subject: Subject, law: str) -> None:
    """Debt follows the money that was spent, whatever was ordered; odd reports are survived."""
    setting, trial = next(tried(law, subject.settings()))
    with trial.raises_nothing():
        rule = setting.policy(subject.make).admission
        state = rule.learn(rule.start(), Quote(4.0))
        rule.decide(state, Quote(4.0), math.inf)
        debt = rule.settle(state, NOTHING).cost_debt
        trial.expect(debt == 0.0, f"nothing was spent, but its debt is {debt:g}")
        dear = dataclasses.replace(NOTHING, spent=setting.problem.budget + 7.0)
        debt = rule.settle(state, dear).cost_debt
        close = math.isclose(debt, 7.0, rel_tol=1e-6)
        trial.expect(close, f"7 more than the budget was spent, but its debt is {debt:g}")
        # A report that is late, or does not add up, is survived: the next order can be given.
        odd = dataclasses.replace(NOTHING, training_size=10, carried=9)
        state = rule.learn(rule.settle(state, odd), Quote(4.0))
        order = rule.decide(state, Quote(4.0), math.inf)
        whole = bool(order.thresholds) or 0 <= order.total_admission < math.inf
        trial.expect(whole, f"after a report that does not add up it orders {order}")


def what_came_back_decides_the_next_order(subject: Subject, law: str) -> None:
    """Where a state counts samples, it counts those that were reported."""
    setting, trial = next(tried(law, subject.settings()))
    with trial.raises_nothing():
        rule = setting.policy(subject.make).admission
        some = RoundTotals(admitted=90, spent=0.0, training_size=60, prior_uses=9, carried=40)
        state = rule.settle(rule.start(), some)
        if isinstance(state, ServerState):
            counted = state.distinct_samples, state.carried_samples
            found = f"of 90 admitted and 40 that stay it counts {counted}"
            trial.expect(counted == (90, 40), found)


def a_limit_is_kept(subject: Subject, law: str) -> None:
    """No order asks for more than there is room for."""
    setting, trial = next(tried(law, subject.settings()))
    with trial.raises_nothing():
        rule = setting.policy(subject.make).admission
        state = rule.learn(rule.start(), Quote(4.0))
        for limit in (0.0, 0.25, 3.0):
            order = rule.decide(state, Quote(4.0), limit)
            kept = bool(order.thresholds) or 0 <= order.total_admission <= limit
            trial.expect(kept, f"with room for {limit:g} samples it orders {order}")
