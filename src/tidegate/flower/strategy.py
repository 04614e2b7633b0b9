"""AdmissionControl: wraps any Flower strategy and decides how many samples each client buys.

The wrapped strategy chooses nodes, writes their messages and averages their models, as it would
alone. AdmissionControl adds an order to each message, takes the receipt off each reply, keeps the
books, and passes on only replies that belong in this round's average.
"""

import logging
import math
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from tidegate._internal.arguments import check_function, check_kind, check_number
from tidegate._internal.words import counted
from tidegate.errors import ConfigurationError, NothingLearnedError
from tidegate.flower import log_lines
from tidegate.flower.checkpoint import Checkpoint
from tidegate.flower.control_settings import (
    DEFAULT_DEPLOYMENT,
    DEFAULT_PLANNING,
    DEFAULT_TRUST,
    PAPER_PLANNING,
    ClientTrust,
    Deployment,
    Planning,
    check_groups,
)
from tidegate.flower.flower_internals import check_flower, check_later_arguments, flower_version
from tidegate.flower.folded_fedavg import FoldedFedAvg
from tidegate.flower.local_grid import LocalGrid, PlayedRun
from tidegate.flower.nodes import TRAIN, Nodes
from tidegate.flower.prompt_grid import PromptGrid, is_in_process
from tidegate.flower.records import attach
from tidegate.flower.round_replies import Outbox, RoundReplies, usable_evaluations
from tidegate.flower.updates import GlobalModel, check_same_model
from tidegate.flower.wrapped_strategies import (
    check_enough_nodes,
    check_start,
    give_back,
    reached,
    state_of,
    weight_key,
)
from tidegate.policies import POLICIES, ControlOptions, JointPolicy, PolicyMaker, identity
from tidegate.policies.presets import find_policy
from tidegate.prices import Prices, price_feed
from tidegate.problem import Problem
from tidegate.runs.journal import Journal
from tidegate.runs.retirements import take_up
from tidegate.runs.sinks import Moment, Sink, Sinks
from tidegate.server.controller import Controller
from tidegate.server.fleet import Terms
from tidegate.server.fleet_round import FleetRound
from tidegate.server.shards import Membership, Purse, Shard
from tidegate.wire import Order

NAMES = ", ".join(POLICIES)
EvaluateFunction = Callable[[int, ArrayRecord], MetricRecord | None]
ShouldStop = Callable[[int, Result], bool]

logger = logging.getLogger(__name__)


class AdmissionControl(Strategy):
    """A Flower strategy that wraps another one and keeps clients' purchases within a budget.

    Args:
        strategy: chooses nodes and averages models. Its ``fraction_train`` and ``min_train_nodes``
            say what part of the nodes trains in a round.
        policy: a name such as ``"tide"``, or a function of a problem and ``ControlOptions``;
            ``functools.partial(acdpp, penalty_exponent=0.3)`` sets a policy's own options.
        budget: C, the money for a round: t rounds spend at most C·t, unless ``spend_ahead`` is set.
        prices: what a sample costs: a number, a text such as ``"uniform:1,10"``, a price law, or a
            feed, which is any object with ``mean`` and ``at``. Laws draw with seed 0;
            ``price_feed("uniform:1,10", seed=1)`` draws with another.
        spend_ahead: s, the rounds whose budget may be spent early: after no round t has the run
            spent more than C·(t + s), counting orders without a reply as spent. None sets no limit:
            the policy keeps to the budget in the long run.
        folder: where the run is saved after every round. Starting the same app with the same folder
            again resumes it. It must be absolute if ``flwr run`` starts the app.
        run: the run's name on the clients, unique by default. With a name of yours, clients refuse
            a server that has lost its folder.
        sinks: receive what every round did (``tidegate.runs.sinks``), or names of such.
        planning: how long samples stay, memory for peaks, a run without end.
        trust: how far the server trusts clients, and how much the model of each counts.
        deployment: how long messages live, and when a run that learns nothing gives up.
        shard: this server's part of the fleet, if several servers share ``budget`` and ``run``.
    """

    def __init__(  # noqa: PLR0913 - all but two are given by name, and few are needed
        self,
        strategy: Strategy,
        policy: str | PolicyMaker,
        *,
        budget: float,
        prices: Prices,
        spend_ahead: float | None = 0.0,
        folder: Path | str | None = None,
        run: str | None = None,
        sinks: Sequence[Sink | str] = (),
        planning: Planning = DEFAULT_PLANNING,
        trust: ClientTrust = DEFAULT_TRUST,
        deployment: Deployment = DEFAULT_DEPLOYMENT,
        shard: Shard | None = None,
    ) -> None:
        check_groups(planning, trust, deployment)
        self._run = run
        self.strategy = strategy
        self.rounds: list[FleetRound] = []
        """What each round did, including those before a restart."""
        self._checkpoint = None if folder is None else Checkpoint(folder)
        saved_to = None if self._checkpoint is None else self._checkpoint.folder
        self._membership, part = _membership_of(shard, run, budget, saved_to)
        self._terms = _terms_of(
            strategy,
            policy,
            budget=part,
            prices=prices,
            spend_ahead=spend_ahead,
            planning=planning,
            trust=trust,
            purse=None if self._membership is None else self._membership.purse,
            is_saved=folder is not None,
        )
        self._budget = float(part)
        self._importance, self._weight_key = trust.importance, weight_key(strategy)
        self._sinks = Sinks(sinks, None if saved_to is None else Journal(saved_to))
        self._time_to_live = deployment.time_to_live
        self._give_up_after = deployment.give_up_after
        self._seconds_to_live = self._timeout = 0.0
        self._controller: Controller | None = None
        self._nodes = Nodes()
        self._outbox = Outbox()
        self._model = GlobalModel(ArrayRecord())
        self._rounds_before = 0

    @classmethod
    def as_in_paper(
        cls,
        strategy: Strategy,
        policy: str | PolicyMaker,
        *,
        budget: float,
        prices: Prices,
        planning: Planning = PAPER_PLANNING,
        **others: Any,
    ) -> Self:
        """Return a control that plays the paper's game: its two limits hold on average only.

        *Money:* the policy may spend ahead without limit and makes up for it later. By the end of
        round t the run has spent at most C·t and its cost debt Z(t+1). *Memory:* B_m is a client's
        capacity divided by the headroom, by default a quarter. The client holds about B_m samples
        on average, and as many as it has slots in peaks: in the paper's settings ACDPP needs three
        times B_m in the first rounds. A client never stores more than it has slots; what finds no
        room is not ordered.

        Args:
            strategy: chooses nodes and averages models.
            policy: one of the paper's, such as ``"acdpp"``.
            budget: C, the money for a round, on average.
            prices: what a sample costs.
            planning: with a headroom above 1.
            **others: further arguments of ``AdmissionControl``, such as ``folder``.
        """
        if planning.headroom == 1:
            raise ConfigurationError(
                "planning.headroom is 1, which makes memory a hard limit; as_in_paper needs more, "
                "such as Planning(headroom=4), or call AdmissionControl itself"
            )
        return cls(
            strategy,
            policy,
            budget=budget,
            prices=prices,
            spend_ahead=None,
            planning=planning,
            **others,
        )

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: EvaluateFunction | None = None,
        **later: Any,
    ) -> Result:
        """Run the rounds that are left; all of them if the folder holds no earlier run.

        The arguments are Flower's; those of newer versions, such as ``should_stop`` (1.43), are
        given by name. Rounds keep their numbers over a restart, also in the result, in
        ``evaluate_fn`` and in ``should_stop``, while Flower's log counts those of this start.
        """
        check_flower(flower_version())
        check_later_arguments(later)
        self._timeout = timeout
        self._seconds_to_live = timeout if self._time_to_live is None else self._time_to_live
        held = nullcontext() if self._checkpoint is None else self._checkpoint.held(grid)
        with self._sinks.open(), held:
            self._begin(grid, initial_arrays, num_rounds)
            if self._checkpoint is not None:
                logger.info(log_lines.SAVING, self._checkpoint.folder)
                if isinstance(grid, LocalGrid):
                    grid.keep_buffers(self._checkpoint.buffers)
            before = self._rounds_before
            self._played = PlayedRun(
                name=self._running().run,
                folder=None if self._checkpoint is None else self._checkpoint.folder,
                rounds_before=before,
                rounds=self.rounds,
            )
            if isinstance(grid, LocalGrid):
                grid.answers.runs.append(self._played)
            grid = PromptGrid(grid) if isinstance(self.strategy, FoldedFedAvg) else grid
            if later.get("should_stop") is not None:
                later["should_stop"] = self._stopping(later["should_stop"], before)
            with self._sinks.kept(self.rounds):
                result = super().start(
                    grid,
                    self._model.arrays,
                    num_rounds - before,
                    timeout,
                    train_config,
                    evaluate_config,
                    self._sinks.measuring(evaluate_fn, before),
                    **later,
                )
            if self._membership is not None:
                self._membership.leave(self._running().report(), self.rounds)
            log_lines.tell_of_end(self.rounds, num_rounds)
            self._played.has_ended = True
            measured = result.evaluate_metrics_serverapp
            self._played.metrics = dict(measured[max(measured)]) if measured else {}
            # Elsewhere a run's status is all that Flower says of it; `tidegate run` has a code.
            if not is_in_process(grid) and 0 < self._played.in_vain == len(self.rounds):
                raise self._nothing_learned()
        result.arrays = self._model.arrays
        return _numbered_on(result, before)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Let the wrapped strategy write its messages, and add each client's order to its own."""
        controller, round_number = self._running(), server_round + self._rounds_before
        self._model.replace(arrays)
        average, self._grid = self._model.average, grid
        if isinstance(grid, LocalGrid) and not grid.get_node_ids() and not controller.fleet:
            return self._nobody(round_number)  # no other nodes will join
        if self._checkpoint is not None:
            take_up(self._checkpoint.folder, controller)
        written = list(self.strategy.configure_train(round_number, average, config, grid))
        self._nodes.forget(filter(controller.is_silent, list(self._nodes.clients)))
        kind = written[0].metadata.message_type if written else TRAIN
        self._nodes.meet(grid, controller, self._timeout, kind)
        if self._nodes.must_wait(controller):
            if not self._nodes.wait_for_anybody(grid, controller, self._timeout, kind):
                return self._nobody(round_number)
            written = list(self.strategy.configure_train(round_number, average, config, grid))
        nodes = self._nodes.clients
        unknown = [client for client in self._importance or {} if client not in nodes]
        if unknown and round_number == 1:
            logger.warning(log_lines.NOT_HERE, unknown)
        messages = {message.metadata.dst_node_id: message for message in written}
        present = [client for client, node_id in nodes.items() if node_id in messages]
        if self._membership is not None and not controller.is_under_way:
            self._membership.meet(round_number, controller.report(), self.rounds)
        orders = controller.decide(present, nodes)
        if self._checkpoint is not None:
            self._checkpoint.save_orders(controller, orders)
        self._sinks.decided(round_number, controller.price)
        ready = []
        for client, order in orders.items() if written else ():
            # A round decided before a restart goes to the clients that it was decided for.
            node_id = nodes[client]
            message = messages.get(node_id) or Message(written[0].content, node_id, kind)
            ready.append(self._with_order(message, client, order))
        return ready

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Settle all receipts, and average the models of those that are in time."""
        controller, round_number = self._running(), server_round + self._rounds_before
        if not controller.is_under_way:  # no client could take part
            return None, None
        before = state_of(self.strategy)
        round_replies = RoundReplies(
            controller=controller,
            nodes=self._nodes,
            outbox=self._outbox,
            grid=self._grid,
            model=self._model.arrays,
            updates=self._model.updates,
            importance=self._importance,
            weight_key=self._weight_key,
            loss_key=getattr(self.strategy, "train_loss_key", None),
        )
        average, metrics = round_replies.averaged_by(self.strategy, round_number, replies)
        arrays = None if average is None else self._model.accept(average, round_number)
        if arrays is None:
            give_back(self.strategy, before)  # the state behind a refused average
        averaged = 0 if arrays is None else round_replies.used
        row = controller.close(used=averaged > 0)
        self.rounds.append(row)
        if self._checkpoint is not None:
            self._checkpoint.save_round(controller, self._model.average, self.strategy, row)
        if averaged:
            self._played.in_vain = 0
        elif row.training_size or not row.under_way:  # else all first purchases are under way
            self._played.in_vain += 1
        log_lines.tell_of(self.rounds, averaged)
        troubles = round_replies.failed, self._nodes.left_out()
        self._sinks.settled(Moment(row, self._budget, controller.away, averaged, *troubles))
        self._sinks.measured(round_number, "train", metrics)
        if self._played.in_vain == self._give_up_after:
            raise self._nothing_learned()
        return arrays, metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Return the wrapped strategy's messages, with a time to live."""
        controller, round_number = self._running(), server_round + self._rounds_before
        return [
            _let_live(message, self._seconds_to_live)
            for message in self.strategy.configure_evaluate(round_number, arrays, config, grid)
            if not self._nodes.is_retired(message.metadata.dst_node_id, controller)
        ]

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Return the wrapped strategy's average over the clients that had examples to evaluate."""
        round_number = server_round + self._rounds_before
        usable = usable_evaluations(replies, self._weight_key, self._model.arrays)
        metrics = self.strategy.aggregate_evaluate(round_number, usable)
        self._sinks.measured(round_number, "clients", metrics)
        return metrics

    def summary(self) -> None:
        """Log the wrapped strategy and the terms."""
        logger.info("\t├──> Admission control: budget %g a round", self._budget)
        self.strategy.summary()

    def _with_order(self, message: Message, client: str, order: Order) -> Message:
        """Return a client's message with its order, and the model in its own types."""
        content = message.content.copy()  # the wrapped strategy's, arrays and all, is shared
        for key, record in content.items():
            if record is self._model.average:
                content[key] = self._model.arrays
        attach(content, self._running().address(client), order)
        message.content = content
        self._outbox.add(message, client, order.round_number)
        return _let_live(message, self._seconds_to_live)

    def _stopping(self, should_stop: ShouldStop, before: int) -> ShouldStop:
        """Wrap ``should_stop``: rounds continue over a restart, and the model is the run's own."""

        def stops(server_round: int, result: Result) -> bool:
            so_far = _numbered_on(replace(result, arrays=self._model.arrays), before)
            if stop := should_stop(server_round + before, so_far):
                log_lines.tell_of_stop(self.rounds)
            return stop

        return stops

    def _nobody(self, round_number: int) -> list[Message]:
        """Skip a round in which no client can take part; its number is used again."""
        logger.warning(log_lines.NOT_PLAYED, round_number)
        self._rounds_before -= 1
        return []

    def _nothing_learned(self) -> NothingLearnedError:
        """Return the error for a run that has learned nothing for too long."""
        rounds = counted(self._played.in_vain, "round")
        return NothingLearnedError(
            f"no client's model was used in the last {rounds}, up to round "
            f"{self.rounds[-1].round_number}: the warnings above say why. The same app with the "
            "same folder, if there is one, continues the run"
        )

    def _begin(self, grid: Grid, initial_arrays: ArrayRecord, num_rounds: int) -> None:
        """Resume the run that the folder holds, or begin a new one."""
        check_start(self.strategy, initial_arrays, num_rounds)
        check_enough_nodes(self.strategy, grid)
        terms = self._terms(num_rounds=num_rounds)
        self._nodes, self._outbox = Nodes(), Outbox()
        self.rounds, self._rounds_before = [], 0
        resumed = None
        if self._checkpoint is not None:
            resumed = self._checkpoint.load(terms, self.strategy, self._run)
        if self._membership is not None:
            self._membership.join(None if resumed is None else resumed.rounds)
        if resumed is not None:
            check_same_model(resumed.arrays, initial_arrays)
            self._controller = resumed.controller
            self._model = GlobalModel(initial_arrays, resumed.arrays)
            self.rounds = resumed.rounds
            self._rounds_before = self._controller.round_number - 1
            logger.info(log_lines.RESUMING, self._controller.run, self._rounds_before)
            log_lines.tell_of_other_clients(self._controller.ledger, grid)
            if self._rounds_before >= num_rounds:
                logger.warning(log_lines.ALL_PLAYED, num_rounds, self._controller.run)
            return
        log_lines.tell_of_too_little(terms)
        self._controller = Controller(terms, self._run or uuid.uuid4().hex)
        self._model = GlobalModel(initial_arrays)
        if self._checkpoint is not None:
            self._checkpoint.begin(self._controller, initial_arrays, self.strategy)

    def _running(self) -> Controller:
        if self._controller is None:
            raise RuntimeError(
                "AdmissionControl must be the outermost strategy and run by its own start(): "
                "wrap the other wrappers in it, "
                "AdmissionControl(DifferentialPrivacy...(FedAvg(...)), ...)"
            )
        return self._controller


def _terms_of(  # noqa: PLR0913 - as many as a run has terms
    strategy: Strategy,
    policy: str | PolicyMaker,
    *,
    budget: float,
    prices: Prices,
    spend_ahead: float | None,
    planning: Planning,
    trust: ClientTrust,
    purse: Purse | None,
    is_saved: bool,
) -> partial[Terms]:
    """Return the terms of a run, all but its number of rounds."""
    check_kind("strategy", strategy, Strategy, "such as FedAvg() of flwr.serverapp.strategy")
    _check_budget(budget)
    if not isinstance(policy, str):
        check_function("policy", policy, ("a problem", "options"), f"or a name: {NAMES}")
    maker = find_policy(policy) if isinstance(policy, str) else policy
    if planning.endless and isinstance(policy, str) and policy != "tide":
        raise ConfigurationError(
            f"{policy} needs the number of rounds; only tide plans without a last one"
        )
    name = identity(maker)
    if is_saved and "<lambda>" in name:
        raise ConfigurationError(
            "a saved run stores its policy by name, and a lambda has none; use a named function"
        )
    options = planning.options
    replace(options, spend_ahead=spend_ahead)  # refuses invalid ones
    settings = asdict(options)
    del settings["spend_ahead"]  # the run's, beside its options
    share, least = planning.fraction_train, 1
    if share is None:
        share, least = reached(strategy)
    return partial(
        Terms,
        policy=partial(_made, maker, options, name),
        policy_name=name,
        options=settings,
        spend_ahead=None if spend_ahead is None else float(spend_ahead),
        budget=float(budget),  # whatever number type it was
        purse=purse,
        prices=price_feed(prices),
        headroom=planning.headroom,
        fraction_train=share,
        min_train_nodes=least,
        endless=planning.endless,
        learning=planning.learning,
        largest_buffer=trust.largest_buffer,
        sums_only=trust.sums_only,
    )


def _check_budget(budget: float) -> None:
    """Refuse a value that cannot be a budget."""
    check_number("budget", budget, "a number above 0", lambda amount: 0 < amount < math.inf)


def _membership_of(
    shard: Shard | None, run: str | None, budget: float, folder: Path | None
) -> tuple[Membership | None, float]:
    """Return this server's membership in a sharded run, and about what it will be granted a round.

    A server on its own has no membership, and the whole budget.
    """
    if shard is None:
        return None, budget
    _check_budget(budget)
    check_kind("shard", shard, Shard, "such as Shard('east', slots=..., meeting=...)")
    if run is None:
        raise ConfigurationError(
            f"shard {shard.name!r} has no run: shards find each other by the run's name; give all "
            "of them the same, such as run='fleet'"
        )
    return Membership(shard, run, float(budget), folder), shard.part(float(budget))


def _made(
    maker: PolicyMaker, options: ControlOptions, name: str, problem: Problem
) -> JointPolicy[Any]:
    """Make the policy for a fleet, and check that it keeps to a cap on uses."""
    policy = maker(problem, options)
    check_kind("the result of policy", policy, JointPolicy, f"or give a name: {NAMES}")
    options.check_uses(name, policy, problem.num_rounds)
    return policy


def _numbered_on(result: Result, rounds_before: int) -> Result:
    """Renumber the result of a resumed run: its rounds continue from those before."""
    for name in (
        "train_metrics_clientapp",
        "evaluate_metrics_clientapp",
        "evaluate_metrics_serverapp",
    ):
        metrics = getattr(result, name)
        setattr(
            result, name, {number + rounds_before: record for number, record in metrics.items()}
        )
    return result


def _let_live(message: Message, seconds: float) -> Message:
    """Restart a message's time to live: the server has met nodes since it was written."""
    message.metadata.created_at = time.time()
    message.metadata.ttl = seconds
    return message
