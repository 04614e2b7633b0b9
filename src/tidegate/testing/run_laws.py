"""The laws of a policy over whole runs: whole samples, money, memory, and going on."""

import dataclasses
import functools
import io
import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from tidegate._internal import saving
from tidegate.admission import debt
from tidegate.prices import RecordedPrices
from tidegate.retention.oldest_first import OldestFirst
from tidegate.simulation.rounds import begin, simulate
from tidegate.testing.counting import Count, leaving_rule
from tidegate.testing.law import Trial
from tidegate.testing.settings import COHORTS, Setting, Subject, tried

SMALL = 1e-6
"""Money: sums of floats may differ by so much."""
ROUNDING = 1e-9
"""Relative, of a number that was computed in another order."""


def _told(setting: Setting, seed: int, *, per_client: bool) -> str:
    """A setting, and the prices that were drawn in it."""
    return f"{setting}; seed {seed}{', each client with a price of its own' * per_client}"


def _with_cohorts(subject: Subject) -> Iterator[Setting]:
    """Every setting with all of the cohorts."""
    return (
        one.reaching(cohorts) for one, cohorts in itertools.product(subject.settings(), COHORTS)
    )


def admits_whole_samples_within_one_of_the_target(subject: Subject, law: str) -> None:
    """What each client was ordered is a whole number within one of its share of the totals."""
    for setting, trial in tried(law, subject.settings()):
        with trial.raises_nothing():
            policy = setting.policy(subject.make)
            if isinstance(policy.retention, OldestFirst):
                continue  # orders are rules there, which every client applies to its own buffer
            total = 0.0
            for _, after, row in setting.steps(policy):
                total += row.ordered
                ordered = after.allocation.ordered
                whole = np.issubdtype(ordered.dtype, np.integer)
                trial.expect(whole, f"orders are {ordered.dtype}, not whole numbers")
                apart = float(np.abs(ordered - policy.shares * total).max())
                told = f"after round {row.round_number}"
                trial.expect(apart <= 1, f"{told} a client is {apart:g} samples off its share")
                apart = abs(int(ordered.sum()) - total)
                trial.expect(apart <= 1, f"{told} the fleet is {apart:g} samples off its total")


def overspend_never_exceeds_the_debt(subject: Subject, law: str) -> None:
    """Total overspend up to t is at most Z(t+1), at every t: the certificate of spending."""
    ways = list(enumerate(itertools.product((False, True), COHORTS)))
    for setting, (seed, (per_client, cohorts)) in itertools.product(subject.settings(), ways):
        if per_client and isinstance(setting.prices, RecordedPrices):
            continue
        here = setting.reaching(cohorts)
        trial = Trial(law, _told(here, seed, per_client=per_client))
        with trial.raises_nothing():
            policy = here.policy(subject.make)
            run = simulate(policy, here.problem, here.prices, seed, price_per_client=per_client)
        overspend = np.cumsum(run.columns["spent"] - here.problem.budget)
        above = float(np.max(overspend - run.columns["cost_debt"]))
        trial.expect(above <= SMALL, f"the overspend is {above:g} above the cost debt")
        trial.expect(run.certificate_holds, "the spend certificate does not hold")


def same_seed_same_run(subject: Subject, law: str) -> None:
    """Two runs on one seed are the same to the last bit."""
    for setting, trial in tried(law, subject.settings()):
        with trial.raises_nothing():
            first, second = (
                simulate(setting.policy(subject.make), setting.problem, setting.prices, 11)
                for _ in range(2)
            )
        for column, values in first.columns.items():
            same = values.tobytes() == second.columns[column].tobytes()
            trial.expect(same, f"two runs on one seed differ in {column}")


def goes_on_from_a_saved_state_as_if_never_interrupted(subject: Subject, law: str) -> None:
    """A run that is saved, read back and played on is the run that was never interrupted."""
    options: tuple[dict[str, Any], ...] = (
        {},
        {"hard_capacity": True},
        {"spend_ahead": 0.0},
        {"endless": True},
    )
    ways = itertools.cycle(itertools.product(options, COHORTS))
    cases = (
        one.choosing(**choice).reaching(cohorts)
        for one, (choice, cohorts) in zip(subject.settings(), ways, strict=False)
    )
    for setting, trial in tried(law, cases):
        with trial.raises_nothing():
            policy = setting.policy(subject.make)
            play = functools.partial(simulate, policy, setting.problem, setting.prices, 5)
            whole, half = play(), play(until=subject.rounds // 3)
            file = io.BytesIO()
            saving.write(half.final, file)
            file.seek(0)
            rest = play(resume=saving.read(begin(policy, setting.problem), file))
        for column, values in whole.columns.items():
            joined = np.concatenate([half.columns[column], rest.columns[column]])
            same = values.tobytes() == joined.tobytes()
            trial.expect(
                same,
                (f"saved after {subject.rounds // 3} rounds, it continued with other {column}"),
            )
        same = whole.excess.tolist() == rest.excess.tolist()
        trial.expect(same, "saved and read back, it has other sums of what clients stored")


def hard_capacity_is_never_exceeded(subject: Subject, law: str) -> None:
    """With ``hard_capacity`` no client ever stores more than it can."""
    for setting, trial in tried(
        law, (one.choosing(hard_capacity=True) for one in _with_cohorts(subject))
    ):
        capacities = setting.problem.capacities
        with trial.raises_nothing():
            for who, after, row in setting.steps(setting.policy(subject.make)):
                over = int((after.planned.occupancy - capacities).max())
                told = f"in round {row.round_number}"
                trial.expect(over <= 0, f"{told} a client stored {over} samples too many")
                trial.expect(row.overflow == 0, f"{told} the overflow is {row.overflow}")
                slots = int(capacities[who].sum())
                found = f"{told} {row.training_size} samples trained in {slots} slots"
                trial.expect(row.training_size <= slots, found)


def spend_ahead_of_0_never_exceeds_what_was_allowed_so_far(subject: Subject, law: str) -> None:
    """With ``spend_ahead=0`` no more than C·t is spent by the end of any round t, up to rounding.

    A budget of 0.7 allows 62.99999999999999 by round 90 in floating point, which pays for 63
    samples at 1.
    """
    cases = (one.choosing(spend_ahead=0.0) for one in subject.settings())
    for setting, per_client in itertools.product(cases, (False, True)):
        if per_client and isinstance(setting.prices, RecordedPrices):
            continue
        here = setting.reaching(COHORTS[per_client])
        trial = Trial(law, _told(here, 4, per_client=per_client))
        with trial.raises_nothing():
            policy = here.policy(subject.make)
            run = simulate(policy, here.problem, here.prices, 4, price_per_client=per_client)
        for now in range(1, subject.rounds + 1):
            spent, allowed = math.fsum(run.columns["spent"][:now]), here.problem.budget * now
            found = f"by round {now} it has spent {spent:.15g} of {allowed:.15g}"
            trial.expect(spent <= allowed * (1 + debt.ROUNDING), found)
        trial.expect(run.columns["spent"].any(), "it never spends anything")


def sums_equal_samples_counted_one_by_one(subject: Subject, law: str) -> None:
    """n, N and N_eff are what counting every sample's rounds of training gives."""
    cases = (
        one.reaching(cohorts) for one, cohorts in zip(subject.settings(), COHORTS, strict=False)
    )
    for setting, trial in tried(law, cases):
        with trial.raises_nothing():
            problem, policy = setting.problem, setting.policy(subject.make)
            retention = policy.retention
        leaving = subject.leaving or leaving_rule(retention, problem.num_clients)
        count = Count(problem, retention, leaving)
        before = np.zeros(problem.num_clients, dtype=np.int64)
        with trial.raises_nothing():
            for who, after, row in setting.steps(policy):
                fresh = after.admitted - before
                for client in who.tolist():
                    count.play(client, int(fresh[client]))
                others = set(np.flatnonzero(fresh).tolist()) - set(who.tolist())
                found = f"in round {row.round_number} clients {others} admitted from outside"
                trial.expect(not others, found)
                before = after.admitted
                count.compare(row, who, trial)


def the_total_needs_only_sums(subject: Subject, law: str) -> None:
    """The same total capacity, otherwise split, gives the same totals."""
    one, rows = next(subject.settings()), []
    for capacities in ([8, 12, 8, 12], [10, 10, 11, 9]):
        problem = dataclasses.replace(one.problem, buffer_capacities=capacities)
        setting = dataclasses.replace(one, problem=problem)
        trial = Trial(law, str(setting))
        with trial.raises_nothing():
            run = simulate(setting.policy(subject.make), problem, setting.prices, 2)
        rows.append(run.columns["ordered"])
    same = np.allclose(rows[0], rows[1], rtol=ROUNDING)  # sums of money round differently
    trial.expect(same, "it orders another total than for slots of 8, 12, 8 and 12")
