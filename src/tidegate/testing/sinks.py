"""The laws of a sink: it takes a run as it comes, and ends with it."""

import math
from collections.abc import Callable, Mapping

from tidegate.runs.sinks import Counting, Moment, Sink, missing_methods
from tidegate.server.fleet_round import FleetRound
from tidegate.testing.law import Trial

ROUNDS = 3
MakeSink = Callable[[], Sink]
Law = Callable[[MakeSink, Trial], None]


def _moment(round_number: int) -> Moment:
    """Return a settled round of a small fleet, in which a client failed."""
    done = FleetRound(
        round_number=round_number,
        price=5.5,
        ordered=2.0,
        fleet=3,
        orders=3,
        answered=2,
        exhausted=1,
        admitted=2,
        spent=11.0,
        overspend=-11.0 * round_number,
        cost_debt=0.0,
        exposure=5.5,
        slots=30,
        training_size=2 * round_number,
        distinct_samples=2 * round_number,
        effective_samples=1.5 * round_number,
    )
    return Moment(done, budget=22.0, away=1, averaged=2, failed={"site-2": "out of memory"})


def _play(sink: Sink, first: int = 1) -> None:
    """Report some rounds, as a server does."""
    for now in range(first, first + ROUNDS):
        sink.decided(now, 5.5)
        sink.settled(_moment(now))
        sink.measured(now, "train", {"loss": 1.0 / now})
        sink.measured(now, "server", {"accuracy": now / 10, "loss": math.inf, "gap": math.nan})


def has_all_methods(make: MakeSink, trial: Trial) -> None:
    """A server calls each of them."""
    missing = missing_methods(make())
    trial.expect(not missing, f"it has no {', '.join(missing)}")


def takes_a_whole_run(make: MakeSink, trial: Trial) -> None:
    """Also metrics that are not finite, and others in one round than in the next."""
    sink = make()
    _play(sink)
    sink.close(failed=False)


def ends_with_a_run_that_fails(make: MakeSink, trial: Trial) -> None:
    """In the middle of a round, whose orders were sent."""
    sink = make()
    sink.decided(1, 5.5)
    sink.close(failed=True)


def ends_with_a_run_that_never_began(make: MakeSink, trial: Trial) -> None:
    """A server that is refused closes its sinks, too."""
    make().close(failed=True)


def goes_on_with_the_rounds_of_an_earlier_start(make: MakeSink, trial: Trial) -> None:
    """If it counts, it is first told of the rounds before; none if the run is new."""
    for before in (0, ROUNDS):
        sink = make()
        if isinstance(sink, Counting):
            sink.resumed([_moment(now).done for now in range(1, before + 1)])
        _play(sink, before + 1)
        sink.close(failed=False)


SINK_LAWS: Mapping[str, Law] = {
    law.__name__: law
    for law in (
        has_all_methods,
        takes_a_whole_run,
        ends_with_a_run_that_fails,
        ends_with_a_run_that_never_began,
        goes_on_with_the_rounds_of_an_earlier_start,
    )
}


def check_sink(make_sink: MakeSink) -> None:
    """Try every law of sinks; the first that is broken is a ``LawBrokenError``.

    Args:
        make_sink: opens the sink, as a server's app would; called several times, one after another.
    """
    for name, law in SINK_LAWS.items():
        trial = Trial(name, f"runs of {ROUNDS} rounds")
        with trial.raises_nothing():
            law(make_sink, trial)
