"""AdmissionControl: wraps any Flower strategy and decides who takes in how many fresh samples.

The wrapped strategy chooses nodes, writes their messages and averages their models, as it would
alone. AdmissionControl adds an order to each message, takes the receipt off each reply, keeps the
books, and hands on only replies that belong into this round's average.
"""

import logging
import math
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from flwr.app import (
    ArrayRecord,
    ConfigRecord,
    Message,
    MetricRecord,
)
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from tidegate.flower.arrivals import Arrivals
from tidegate.flower.checkpoint import Checkpoint
from tidegate.flower.folding import FoldedFedAvg
from tidegate.flower.local_grid import LocalGrid
from tidegate.flower.messages import Outbox, readdressed
from tidegate.flower.nodes import Nodes
from tidegate.flower.records import attach
from tidegate.flower.settling import FORM_DIFFERS, Settling
from tidegate.flower.updates import of_one_form, replaces, usable_metrics
from tidegate.flower.wrapped import reached, weight_key
from tidegate.policies import DEFAULT_OPTIONS, ControlOptions, PolicyMaker, identity
from tidegate.policies.presets import find_policy
from tidegate.prices import PriceFeed
from tidegate.problem import LearningConstants
from tidegate.runs.folder import NOTHING_USED, RESUMING
from tidegate.runs.journal import Journal
from tidegate.runs.sinks import Moment, Sink, Sinks
from tidegate.server.controller import Controller
from tidegate.server.fleet import Terms
from tidegate.server.fleet_round import FleetRound
from tidegate.server.shards import Purse, Report

EvaluateFunction = Callable[[int, ArrayRecord], MetricRecord | None]

logger = logging.getLogger("flwr.tidegate")
"""Below Flower's own, so that it is seen wherever Flower's log is."""


class AdmissionControl(Strategy):
    """A Flower strategy under a spending budget.

    Args:
        strategy: what chooses nodes and averages models.
        policy: a name such as ``"acdpp"``, or a function of a problem and ``ControlOptions``.
        budget: C, what may be spent in a round, in the long run.
        purse: what a shard is granted, round by round, where several servers share one budget
            (``tidegate.server.shards``); ``budget`` is then about what that will be. Tide alone.
        prices: what a sample costs in each round; ``PricePath(price_law("uniform:1,10"), seed)``,
            or anything with ``mean`` and ``at``.
        options: the controller's choices; whether capacity is a hard limit follows from headroom.
        headroom: 1 plans with all the memory that clients have, as a hard limit. More leaves slots
            for peaks, as the paper's policies need whose limit is an average: with 4, a client
            with 40 slots holds 10 samples on average.
        taking_part: the part of the fleet that a round reaches, which K is planned for; the
            ``fraction_train`` of the strategy by default, and at least its ``min_train_nodes``.
        learning: constants of the learning-error bound.
        importance: α_m by client name; 1 for all others. A client's model weighs α_m·n_m.
        folder: where the run is saved after every round. A new start with the same folder resumes.
        run: the run's name on the clients, unique by default. Needed only to make two runs alike.
        largest_buffer: the capacity above which no client is believed. Orders and weights go by
            capacity, which each client states itself: set this where clients might lie.
        sums_only: let no client's order depend on what any single client has reported, only on
            sums over the fleet. A client without room then takes in less than it is asked.
        time_to_live: seconds until an unanswered message is dropped; the timeout by default.
        sinks: who else is told what every round did (``tidegate.runs.sinks``); each is closed at
            the end of ``start``.
    """

    def __init__(  # noqa: PLR0913 - all but two have defaults and are given by name
        self,
        strategy: Strategy,
        policy: str | PolicyMaker,
        *,
        budget: float,
        prices: PriceFeed,
        purse: Purse | None = None,
        options: ControlOptions = DEFAULT_OPTIONS,
        headroom: float = 1.0,
        taking_part: float | None = None,
        learning: LearningConstants | None = None,
        importance: Mapping[str, float] | None = None,
        folder: Path | str | None = None,
        run: str | None = None,
        largest_buffer: int | None = None,
        sums_only: bool = False,
        time_to_live: float | None = None,
        sinks: Sequence[Sink] = (),
    ) -> None:
        if not (hasattr(prices, "at") and hasattr(prices, "mean")):
            raise TypeError(
                f"prices must have `at` and `mean`, got {prices!r}; a law of prices becomes one "
                "with a seed: PricePath(price_law('uniform:1,10'), seed=1)"
            )
        if not 0 < budget < math.inf:
            raise ValueError(f"budget must be a number above 0, got {budget}")
        if not headroom >= 1:
            raise ValueError(f"headroom must be 1 or more, got {headroom}")
        if taking_part is not None and not 0 < taking_part <= 1:
            raise ValueError(f"taking_part must be above 0 and at most 1, got {taking_part}")
        if time_to_live is not None and not time_to_live > 0:
            raise ValueError(f"time_to_live must be positive, got {time_to_live}")
        if purse is not None and run not in (None, purse.run):
            raise ValueError(f"the purse is for run {purse.run!r}, and this is run {run!r}")
        self.strategy = strategy
        self.rounds: list[FleetRound] = []
        """What each round did, those before a restart too."""
        maker = find_policy(policy) if isinstance(policy, str) else policy
        if options.endless and isinstance(policy, str) and policy != "tide":
            raise ValueError(
                f"{policy} needs the number of rounds; of the policies, tide alone "
                "plans for no last one"
            )
        name = identity(maker)
        if folder is not None and "<lambda>" in name:
            raise ValueError(
                "a run that is saved knows its policy by name, and a lambda has none; give a "
                "function"
            )
        options = replace(options, hard_capacity=headroom == 1)
        share, least = reached(strategy)
        self._terms = partial(
            Terms,
            policy=lambda problem: maker(problem, options),
            policy_name=name,
            options=asdict(options),
            budget=budget,
            purse=purse,
            prices=prices,
            headroom=headroom,
            taking_part=share if taking_part is None else taking_part,
            least_taking_part=least if taking_part is None else 1,
            endless=options.endless,
            learning=LearningConstants() if learning is None else learning,
            largest_buffer=largest_buffer,
            sums_only=sums_only,
        )
        self._budget = budget
        self._importance = _checked_importance(importance)
        self._weight_key = weight_key(strategy)
        self._checkpoint = None if folder is None else Checkpoint(Path(folder))
        self._sinks = Sinks(sinks, None if folder is None else Journal(Path(folder)))
        self._run = run if purse is None else purse.run
        self._time_to_live = time_to_live
        self._seconds_to_live = self._timeout = 0.0
        self._controller: Controller | None = None
        self._nodes = Nodes()
        self._outbox = Outbox()
        self._arrays = ArrayRecord()
        self._rounds_before = 0

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: EvaluateFunction | None = None,
    ) -> Result:
        """Run the rounds that are left, all of them if the folder holds no earlier run.

        The arguments are Flower's. Rounds keep their numbers over a restart, also in the result
        and in ``evaluate_fn``, while Flower's log counts those of this start.
        """
        self._timeout = timeout
        self._seconds_to_live = timeout if self._time_to_live is None else self._time_to_live
        held = nullcontext() if self._checkpoint is None else self._checkpoint.held()
        with self._sinks.open(), held:
            self._begin(initial_arrays, num_rounds)
            if self._checkpoint is not None and isinstance(grid, LocalGrid):
                grid.keep_buffers(self._checkpoint.buffers)
            before = self._rounds_before
            grid = Arrivals(grid) if isinstance(self.strategy, FoldedFedAvg) else grid

            def evaluate(now: int, arrays: ArrayRecord) -> MetricRecord | None:
                measured = evaluate_fn and evaluate_fn(now + before, arrays)
                self._sinks.measured(now + before, "server", measured)
                return measured

            with self._sinks.kept():
                result = super().start(
                    grid,
                    self._arrays,
                    num_rounds - before,
                    timeout,
                    train_config,
                    evaluate_config,
                    evaluate_fn and evaluate,
                )
        result.arrays = self._arrays
        result.train_metrics_clientapp = _later(result.train_metrics_clientapp, before)
        result.evaluate_metrics_clientapp = _later(result.evaluate_metrics_clientapp, before)
        result.evaluate_metrics_serverapp = _later(result.evaluate_metrics_serverapp, before)
        return result

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Let the wrapped strategy write its messages, and add each client's order to its own."""
        controller = self._running()
        now = server_round + self._rounds_before
        written = list(self.strategy.configure_train(now, arrays, config, grid))
        self._arrays, self._grid = arrays, grid
        self._nodes.forget(filter(controller.is_silent, list(self._nodes.clients)))
        self._nodes.meet(grid, controller, self._timeout)
        nodes = self._nodes.clients
        unknown = [client for client in self._importance or {} if client not in nodes]
        if unknown and now == 1:
            logger.warning("importance is given for clients that are not here: %s", unknown)
        messages = {message.metadata.dst_node_id: message for message in written}
        present = [client for client, node_id in nodes.items() if node_id in messages]
        orders = controller.decide(present, nodes)
        if self._checkpoint is not None:
            self._checkpoint.save_control(controller)
        self._sinks.decided(now, controller.price)
        ready = []
        for client, order in orders.items() if written else ():
            # A round that was decided before a restart goes to whom it was meant for.
            message = messages.get(nodes[client]) or readdressed(written[0], nodes[client])
            content = message.content.copy()  # the wrapped strategy's, arrays and all, is shared
            attach(content, controller.address(client), order)
            message.content = content
            ready.append(self._with_time_to_live(message))
            self._outbox.add(message, client, order.round_number)
        return ready

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Settle all receipts, and average the models of those that are in time."""
        controller = self._running()
        now = server_round + self._rounds_before
        arrays, metrics = None, None
        settling = Settling(
            controller=controller,
            nodes=self._nodes,
            outbox=self._outbox,
            grid=self._grid,
            model=self._arrays,
            importance=self._importance,
            weight_key=self._weight_key,
        )
        if isinstance(self.strategy, FoldedFedAvg):
            usable = settling.usable(replies)
            arrays, metrics = self.strategy.aggregate_train(now, usable)
            for _ in usable:  # whatever it left is booked all the same
                pass
        elif alike := settling.alike(replies):  # of nothing, some cannot make an average
            arrays, metrics = self.strategy.aggregate_train(now, alike)
        if arrays is not None and not replaces(arrays, self._arrays):
            logger.warning("the average of round %d is no model, and is dropped", now)
            arrays = None
        if arrays is not None:
            self._arrays = arrays
        row = controller.close()
        self.rounds.append(row)
        if self._checkpoint is not None:
            self._checkpoint.save_round(controller, self._arrays, self.strategy, row)
        logger.info("%s", _told(row))
        averaged = 0 if arrays is None else settling.used
        if not averaged:
            logger.warning(NOTHING_USED, now)
        self._sinks.settled(Moment(row, self._budget, away=controller.away, averaged=averaged))
        self._sinks.measured(now, "train", metrics)
        return arrays, metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """The wrapped strategy's messages, with a time to live."""
        self._running()
        now = server_round + self._rounds_before
        messages = self.strategy.configure_evaluate(now, arrays, config, grid)
        return [self._with_time_to_live(message) for message in messages]

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """The wrapped strategy's average over the clients that had something to evaluate."""
        key = self._weight_key
        useful, failed = {}, []
        for reply in replies:
            if reply.has_error():
                failed.append(reply)
            elif usable_metrics(reply.content, key):  # one without examples has nothing to say
                useful[f"node {reply.metadata.src_node_id}"] = reply
        alike, odd = of_one_form(useful, self._arrays)
        for node in odd:
            logger.warning(FORM_DIFFERS, node)
        now = server_round + self._rounds_before
        metrics = self.strategy.aggregate_evaluate(now, [*alike.values(), *failed])
        self._sinks.measured(now, "clients", metrics)
        return metrics

    def report(self) -> Report | None:
        """What a shard tells its coordinator after a round; nothing before it has a rule."""
        return self._running().report()

    def summary(self) -> None:
        """Log what is wrapped, and the terms."""
        logger.info("\t├──> Admission control: budget %s a round", self._budget)
        self.strategy.summary()

    def _begin(self, initial_arrays: ArrayRecord, num_rounds: int) -> None:
        """Take up the run that the folder holds, or a new one."""
        terms = self._terms(num_rounds=num_rounds)
        self._nodes, self._outbox = Nodes(), Outbox()
        self.rounds, self._rounds_before = [], 0
        resumed = None if self._checkpoint is None else self._checkpoint.load(terms, self.strategy)
        if resumed is not None:
            self._controller, self._arrays = resumed.controller, resumed.arrays
            self.rounds = resumed.rounds
            self._rounds_before = self._controller.round_number - 1
            logger.info(RESUMING, self._controller.run, self._rounds_before)
            if self._rounds_before >= num_rounds:
                logger.warning(
                    "all %d rounds of run %s are played, nothing is left to do; take another "
                    "folder for another run",
                    *(num_rounds, self._controller.run),
                )
            if self._run not in (None, self._controller.run):
                raise ValueError(
                    f"the folder holds run {self._controller.run!r}, not {self._run!r}; "
                    "take another folder"
                )
            return
        self._controller = Controller(terms, self._run or uuid.uuid4().hex)
        self._arrays = initial_arrays
        if self._checkpoint is not None:
            self._checkpoint.begin(self._controller, initial_arrays, self.strategy)

    def _running(self) -> Controller:
        if self._controller is None:
            raise RuntimeError(
                "AdmissionControl must be the outermost strategy, and run by its own start(): "
                "wrap the others, AdmissionControl(DifferentialPrivacy...(FedAvg(...)), ...)"
            )
        return self._controller

    def _with_time_to_live(self, message: Message) -> Message:
        """Let a message live from now on: nodes were met since it was written."""
        message.metadata.created_at = time.time()
        message.metadata.ttl = self._seconds_to_live
        return message


def _checked_importance(importance: Mapping[str, float] | None) -> Mapping[str, float] | None:
    for client, weight in (importance or {}).items():
        if not 0 <= weight < math.inf:
            raise ValueError(f"the importance of {client!r} must be 0 or more, got {weight}")
    return importance


def _told(row: FleetRound) -> str:
    return (
        f"round {row.round_number}: {row.answered} of {row.orders} orders answered, "
        f"{row.fleet} in the fleet, price {row.price:.4g}, "
        f"{row.admitted} samples admitted for {row.spent:.4g}, {row.training_size} in training, "
        f"cost debt {row.cost_debt:.4g}, exposure {row.exposure:.4g}"
    )


def _later(metrics: Mapping[int, MetricRecord], rounds_before: int) -> dict[int, MetricRecord]:
    return {now + rounds_before: record for now, record in metrics.items()}
