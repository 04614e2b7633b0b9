"""A server that dies anywhere goes on as if it had not: same decisions, same model."""

import json
import math
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from check_size import at_size
from flwr.app import Array, ArrayRecord, Message
from flwr.serverapp.strategy import (
    DifferentialPrivacyServerSideAdaptiveClipping,
    FedAdagrad,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedYogi,
    Strategy,
)
from gated_apps import MODEL, gated_app

from tidegate.errors import ConfigurationError, RunDiffersError, TidegateError
from tidegate.flower import AdmissionControl, LocalGrid
from tidegate.flower.checkpoint import Checkpoint
from tidegate.flower.log_lines import SPENT
from tidegate.flower.prompt_grid import PromptGrid
from tidegate.flower.records import asks_who
from tidegate.flower.wrapped_strategies import STRATEGY_STATE
from tidegate.policies import ControlOptions, JointPolicy
from tidegate.policies.acdpp import acdpp
from tidegate.prices import PricePath, UniformPrice
from tidegate.problem import Problem
from tidegate.runs.reader import read_run
from tidegate.runs.retirements import ask

ROUNDS = 6


class Killed(BaseException):
    """The server is gone: nothing after this point happened."""


def nodes(folder: Path) -> list[dict[str, Any]]:
    return [{"partition-id": number, "tidegate-folder": str(folder)} for number in range(3)]


def adam() -> Strategy:
    return FedAdam(fraction_evaluate=0.0)


def control(
    folder: Path | None, strategy: Strategy | None = None, **named: Any
) -> AdmissionControl:
    values: dict[str, Any] = {"budget": 16.5, "run": "r", **named}
    return AdmissionControl(
        FedAvg(fraction_evaluate=0.0) if strategy is None else strategy,
        "acdpp",
        prices=PricePath(UniformPrice(1, 10), seed=1),
        folder=folder,
        **values,
    )


def weights(result: Any) -> list[Any]:
    return [array.numpy() for array in result.arrays.values()]


class DyingGrid(LocalGrid):
    """Dies in one round, before or after the clients have done their part."""

    def __init__(self, folder: Path, dies_in: int, *, clients_act: bool) -> None:
        super().__init__(gated_app(), nodes(folder))
        self._left, self._clients_act = dies_in, clients_act

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        batch = list(messages)
        if batch and not asks_who(batch[0].content):
            self._left -= 1
            if not self._left:
                if self._clients_act:
                    super().send_and_receive(batch[:2])
                raise Killed
        return super().send_and_receive(batch, timeout=timeout)


def before_sending(folder: Path, strategy: AdmissionControl, now: int) -> None:
    strategy.start(DyingGrid(folder / "buffers", now, clients_act=False), MODEL, ROUNDS)


def before_the_replies(folder: Path, strategy: AdmissionControl, now: int) -> None:
    strategy.start(DyingGrid(folder / "buffers", now, clients_act=True), MODEL, ROUNDS)


def plain_grid(folder: Path) -> LocalGrid:
    return LocalGrid(gated_app(), nodes(folder))


def _dying(
    method: str, make_grid: Callable[[Path], LocalGrid] = plain_grid
) -> Callable[[Path, AdmissionControl, int], None]:
    def die(folder: Path, strategy: AdmissionControl, now: int) -> None:
        with pytest.MonkeyPatch.context() as patch:
            original, calls = getattr(Checkpoint, method), 0

            def dies(self: Checkpoint, *arguments: Any) -> None:
                nonlocal calls
                calls += 1
                if calls == now:
                    raise Killed
                original(self, *arguments)

            patch.setattr(Checkpoint, method, dies)
            strategy.start(make_grid(folder / "buffers"), MODEL, ROUNDS)

    return die


DEATHS = {
    "before the orders are sent": before_sending,
    "before the replies are in": before_the_replies,
    "before the round is saved": _dying("save_round"),
    "while the model is saved": _dying("_save_model"),
    "before control is saved": _dying("save_control"),
}


@pytest.mark.no_cover
@pytest.mark.parametrize("death", DEATHS)
@pytest.mark.parametrize("now", at_size([1, 3], [1, 2, 3, 4], quick=[2]))
@pytest.mark.parametrize("make", [lambda: None, adam], ids=["FedAvg", "FedAdam"])
def test_a_killed_server_resumes_with_the_same_decisions_and_model(
    tmp_path: Path, death: str, now: int, make: Callable[[], Strategy | None]
) -> None:
    whole = control(None, make())
    expected = whole.start(LocalGrid(gated_app(), nodes(tmp_path / "other")), MODEL, ROUNDS)
    with pytest.raises(Killed):
        DEATHS[death](tmp_path, control(tmp_path / "run", make()), now)
    resumed = control(tmp_path / "run", make())
    result = resumed.start(LocalGrid(gated_app(), nodes(tmp_path / "buffers")), MODEL, ROUNDS)
    assert resumed.rounds == whole.rounds
    for mine, other in zip(weights(result), weights(expected), strict=True):
        np.testing.assert_array_equal(mine, other)
    rows = [
        json.loads(line)
        for line in (tmp_path / "run" / "rounds.jsonl").read_text().split("\n")[:-1]
    ]
    assert rows == [vars(row) for row in whole.rounds]
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        "books.sqlite",
        "lock",
        "metrics.jsonl",
        f"model-{ROUNDS:06}.npz",
        "rounds.jsonl",
        "server.log",
    ]


@pytest.mark.contract
@pytest.mark.parametrize(
    "make",
    [
        lambda: FedAvgM(fraction_evaluate=0.0, server_momentum=0.5),
        lambda: FedYogi(fraction_evaluate=0.0),
        lambda: FedAdagrad(fraction_evaluate=0.0),
    ],
    ids=["FedAvgM", "FedYogi", "FedAdagrad"],
)
def test_moments_and_momentum_come_back(tmp_path: Path, make: Callable[[], Strategy]) -> None:
    whole = control(None, make()).start(plain_grid(tmp_path / "other"), MODEL, ROUNDS)
    with pytest.raises(Killed):
        before_sending(tmp_path, control(tmp_path / "run", make()), 4)
    resumed = control(tmp_path / "run", make()).start(
        plain_grid(tmp_path / "buffers"), MODEL, ROUNDS
    )
    for mine, other in zip(weights(resumed), weights(whole), strict=True):
        np.testing.assert_array_equal(mine, other)


def test_an_adaptive_clipping_norm_comes_back(tmp_path: Path) -> None:
    def make() -> DifferentialPrivacyServerSideAdaptiveClipping:
        return DifferentialPrivacyServerSideAdaptiveClipping(
            FedAvg(fraction_evaluate=0.0), noise_multiplier=0.1, num_sampled_clients=3
        )

    first, second = make(), make()
    control(tmp_path / "run", first).start(plain_grid(tmp_path / "buffers"), MODEL, 2)
    assert first.clipping_norm != second.clipping_norm
    control(tmp_path / "run", second).start(plain_grid(tmp_path / "buffers"), MODEL, 2)
    assert first.clipping_norm == second.clipping_norm


@pytest.mark.contract
def test_rounds_keep_their_numbers_over_a_restart(tmp_path: Path) -> None:
    with pytest.raises(Killed):
        before_sending(tmp_path, control(tmp_path / "run"), 3)
    seen: list[int] = []
    resumed = control(tmp_path / "run")
    result = resumed.start(
        LocalGrid(gated_app(), nodes(tmp_path / "buffers")),
        MODEL,
        ROUNDS,
        evaluate_fn=lambda now, arrays: seen.append(now),
    )
    assert seen == [2, 3, 4, 5, 6]
    assert list(result.train_metrics_clientapp) == [3, 4, 5, 6]


def test_the_log_ends_with_the_money_of_all_rounds_also_over_a_restart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(Killed):
        before_sending(tmp_path, control(tmp_path / "run"), 3)
    resumed = control(tmp_path / "run")
    with caplog.at_level("INFO", logger="tidegate"):
        resumed.start(LocalGrid(gated_app(), nodes(tmp_path / "buffers")), MODEL, ROUNDS)
    (told,) = [record.args for record in caplog.records if record.msg == SPENT]
    paid = [row.spent for row in resumed.rounds]
    assert len(paid) == ROUNDS
    assert isinstance(told, tuple)
    bought, rounds, *money = told
    assert bought == f"{sum(row.admitted for row in resumed.rounds)} samples"
    assert rounds == f"{ROUNDS} rounds"
    assert money == pytest.approx([math.fsum(paid), 16.5 * ROUNDS])
    assert "that the budget allows" in (tmp_path / "run" / "server.log").read_text("utf-8")


def test_another_number_of_clients_in_this_process_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(Killed):
        before_sending(tmp_path, control(tmp_path / "run"), 3)
    mine = nodes(tmp_path / "buffers")
    fewer = f"this run had {len(mine)} clients, and this process has {len(mine) - 1}: "
    with caplog.at_level("WARNING", logger="tidegate"):
        control(tmp_path / "run").start(LocalGrid(gated_app(), mine[:-1]), MODEL, ROUNDS)
        assert caplog.text.count(fewer) == 1
        assert f"--clients {len(mine)} keeps their number" in caplog.text
        caplog.clear()
        control(tmp_path / "run").start(LocalGrid(gated_app(), mine), MODEL, ROUNDS)
    assert "this process has" not in caplog.text


def test_a_finished_run_started_again_does_nothing(tmp_path: Path) -> None:
    grid = LocalGrid(gated_app(), nodes(tmp_path / "buffers"))
    first = control(tmp_path / "run").start(grid, MODEL, ROUNDS)
    again = control(tmp_path / "run")
    result = again.start(grid, MODEL, ROUNDS)
    for mine, other in zip(weights(result), weights(first), strict=True):
        np.testing.assert_array_equal(mine, other)
    assert len(again.rounds) == ROUNDS


def test_a_client_that_the_restart_did_not_choose_still_gets_its_order(tmp_path: Path) -> None:
    def half() -> Strategy:
        return FedAvg(fraction_train=0.5, fraction_evaluate=0.0, min_train_nodes=1)

    for attempt in range(4):  # nodes are drawn at random
        folder = tmp_path / str(attempt)
        with pytest.raises(Killed):
            before_the_replies(folder, control(folder / "run", half()), 3)
        resumed = control(folder / "run", half())
        resumed.start(LocalGrid(gated_app(), nodes(folder / "buffers")), MODEL, ROUNDS)
        assert resumed.rounds[2].answered == resumed.rounds[2].orders == 1
        assert resumed.rounds[2].exposure == 0


def test_another_budget_or_length_is_refused(tmp_path: Path) -> None:
    grid = LocalGrid(gated_app(), nodes(tmp_path / "buffers"))
    control(tmp_path / "run").start(grid, MODEL, 2)
    with pytest.raises(ValueError, match=r"made with budget = 16\.5, this run has 20\.0"):
        control(tmp_path / "run", budget=20.0).start(grid, MODEL, 2)
    with pytest.raises(ValueError, match="made with num_rounds = 2, this run has 9"):
        control(tmp_path / "run").start(grid, MODEL, 9)


def test_another_policy_or_price_is_refused(tmp_path: Path) -> None:
    grid = LocalGrid(gated_app(), nodes(tmp_path / "buffers"))
    control(tmp_path / "run").start(grid, MODEL, 2)
    prices = PricePath(UniformPrice(1, 10), seed=1)
    fed = FedAvg(fraction_evaluate=0.0)
    with pytest.raises(ValueError, match="policy = acdpp, this run has costless_oracle"):
        AdmissionControl(
            fed, "costless_oracle", budget=16.5, prices=prices, folder=tmp_path / "run"
        ).start(grid, MODEL, 2)
    dear = PricePath(UniformPrice(1, 11), seed=1)
    with pytest.raises(ValueError, match=r"made with mean_price = 5\.5, this run has 6\.0"):
        AdmissionControl(
            fed, "acdpp", budget=16.5, prices=dear, folder=str(tmp_path / "run")
        ).start(grid, MODEL, 2)


def test_books_that_are_lost_are_no_new_budget(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    control(folder).start(plain_grid(tmp_path / "buffers"), MODEL, 2)
    (folder / "books.sqlite").rename(tmp_path / "away")
    with pytest.raises(
        ValueError, match=r"books\.sqlite is missing, but .*rounds\.jsonl belongs to a"
    ):
        control(folder).start(plain_grid(tmp_path / "buffers"), MODEL, 2)
    (tmp_path / "away").rename(folder / "books.sqlite")
    first, _ = (folder / "rounds.jsonl").read_text().splitlines()
    (folder / "rounds.jsonl").write_text(first + "\n")
    with pytest.raises(ValueError, match=r"has 1 rounds, but 2 were settled; restore a copy"):
        control(folder).start(plain_grid(tmp_path / "buffers"), MODEL, 2)
    (folder / "rounds.jsonl").unlink()
    with pytest.raises(ValueError, match=r"rounds\.jsonl is missing; restore a copy"):
        control(folder).start(plain_grid(tmp_path / "buffers"), MODEL, 2)
    with pytest.raises(ValueError, match=r"has 0 rounds, but 2 were settled; restore a copy"):
        read_run(folder)


def test_clients_in_this_process_keep_their_samples_beside_the_run(tmp_path: Path) -> None:
    plain = [{"partition-id": number} for number in range(4)]
    whole = control(None)
    whole.start(LocalGrid(gated_app(), plain), MODEL, 6)
    first, second = (control(tmp_path / "run") for _ in range(2))

    def dies(server_round: int, arrays: Any) -> None:
        if server_round == 3:
            raise Killed

    with pytest.raises(Killed):
        first.start(LocalGrid(gated_app(), plain), MODEL, 6, evaluate_fn=dies)
    second.start(LocalGrid(gated_app(), plain), MODEL, 6)
    assert second.rounds == whole.rounds


def tide(problem: Problem, options: ControlOptions) -> JointPolicy[Any]:
    """A policy of the user's own, which has the name of one of ours."""
    return acdpp(problem, options)


def test_a_policy_is_known_by_where_it_is_from_and_what_it_is_given(tmp_path: Path) -> None:
    def start(policy: Any) -> None:
        AdmissionControl(
            FedAvg(fraction_evaluate=0.0),
            policy,
            budget=16.5,
            prices=PricePath(UniformPrice(1, 10), seed=1),
            folder=tmp_path / "run",
        ).start(plain_grid(tmp_path / "buffers"), MODEL, 2)

    start(partial(acdpp, penalty_weight=3.0))
    start(partial(acdpp, penalty_weight=3.0))  # the same, though another object
    with pytest.raises(ValueError, match=r"acdpp\(penalty_weight=3.0\), this run has acdpp\(penal"):
        start(partial(acdpp, penalty_weight=4.0))
    with pytest.raises(ValueError, match=r"this run has .*test_checkpoint\.tide"):
        start(tide)
    with pytest.raises(ValueError, match="a lambda has none"):
        start(lambda problem, _: acdpp(problem))


def test_another_run_name_is_refused(tmp_path: Path) -> None:
    control(tmp_path / "run").start(plain_grid(tmp_path / "buffers"), MODEL, 2)
    with pytest.raises(ValueError, match="the folder holds run 'r', not 's'"):
        control(tmp_path / "run", run="s").start(plain_grid(tmp_path / "buffers"), MODEL, 2)


def test_models_left_over_by_a_death_are_removed(tmp_path: Path) -> None:
    control(tmp_path / "run").start(plain_grid(tmp_path / "buffers"), MODEL, 2)
    (tmp_path / "run" / "model-000001.npz").write_bytes(b"")
    control(tmp_path / "run").start(plain_grid(tmp_path / "buffers"), MODEL, 2)
    assert [path.name for path in (tmp_path / "run").glob("model-*")] == ["model-000002.npz"]


def test_two_servers_cannot_use_one_folder(tmp_path: Path) -> None:
    grid = LocalGrid(gated_app(), nodes(tmp_path / "buffers"))

    def second(now: int, arrays: Any) -> None:
        with pytest.raises(ValueError, match=r"another run is using .*run; wait for it"):
            control(tmp_path / "run").start(grid, MODEL, 2)

    control(tmp_path / "run").start(grid, MODEL, 2, evaluate_fn=second)


def test_another_app_does_not_resume_a_run(tmp_path: Path) -> None:
    def start(app: str, folder: str = "run") -> None:
        grid = LocalGrid(gated_app(), nodes(tmp_path / f"buffers-{folder}"), app=app)
        control(tmp_path / folder).start(grid, MODEL, 2)

    start("", "older")
    start("me/second", "older")  # a folder that does not say is resumed
    start("me/first")
    with pytest.raises(RunDiffersError, match="holds a run of the app 'me/first', but this is 'm"):
        start("me/second")
    start("me/first")
    start("")
    with pytest.raises(RunDiffersError) as refused:
        start("me/second")
    assert (refused.value.saved, refused.value.given) == ("me/first", "me/second")


def test_a_relative_folder_is_refused_where_flower_chose_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)

    def grid(name: str) -> LocalGrid:
        return LocalGrid(gated_app(), nodes(tmp_path / name), app="me/first")

    elsewhere = PromptGrid(grid("buffers-1"))  # like Flower's own, it is not ours
    with pytest.raises(ConfigurationError, match=r"folder 'run' is relative .*absolute path"):
        control(Path("run")).start(elsewhere, MODEL, 2)
    assert not Path("run").exists()
    with caplog.at_level("INFO", logger="tidegate"):
        control(Path("run")).start(grid("buffers-2"), MODEL, 2)
        control(tmp_path / "other").start(elsewhere, MODEL, 2)
    told = [record.getMessage() for record in caplog.records if "saved in" in record.msg]
    assert told == [f"the run is saved in {tmp_path / name}" for name in ("run", "other")]


def test_a_lock_that_cannot_be_had_is_not_called_another_run(tmp_path: Path) -> None:
    (tmp_path / "run" / "lock").mkdir(parents=True)
    grid = LocalGrid(gated_app(), nodes(tmp_path / "buffers"))
    with pytest.raises(ConfigurationError, match=r"run' cannot be written to \(unable to open"):
        control(tmp_path / "run").start(grid, MODEL, 2)
    (tmp_path / "run" / "lock").rmdir()
    (tmp_path / "run" / "lock").write_text("this is no database" * 100)
    with pytest.raises(ConfigurationError, match=r"run' cannot be written to \(file is not a da"):
        control(tmp_path / "run").start(grid, MODEL, 2)


def test_a_privacy_accountant_is_not_resumed(tmp_path: Path) -> None:
    grid = LocalGrid(gated_app(), nodes(tmp_path / "buffers"))
    control(tmp_path / "run").start(grid, MODEL, 1)
    accounted = FedAvg(fraction_evaluate=0.0)
    accounted.accountant = object()  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="a run with a privacy accountant cannot be resumed"):
        control(tmp_path / "run", accounted).start(grid, MODEL, 1)


UNCHANGING = {"current_arrays", "strategy", "initial_parameters"}
"""Set anew from the model in every round."""


@pytest.mark.contract
@pytest.mark.parametrize("kind", [FedAdagrad, FedAdam, FedYogi, FedAvgM, FedAvg], ids=str)
def test_nothing_else_of_a_strategy_changes_from_round_to_round(
    kind: type[FedAvg], tmp_path: Path
) -> None:
    momentum: dict[str, Any] = {"server_momentum": 0.9} if kind is FedAvgM else {}
    inner = kind(fraction_evaluate=0.0, **momentum)
    before = dict(vars(inner))
    grid = LocalGrid(gated_app(), nodes(tmp_path / "buffers"))
    control(tmp_path / "run", inner).start(grid, MODEL, 2)
    changed = {name for name, value in vars(inner).items() if value is not before.get(name)}
    assert changed - UNCHANGING == set(STRATEGY_STATE.get(kind, ()))


def test_a_run_that_is_over_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    grid = LocalGrid(gated_app(), nodes(tmp_path / "buffers"))
    control(tmp_path / "run").start(grid, MODEL, 2)
    with caplog.at_level("WARNING", logger="tidegate"):
        control(tmp_path / "run").start(grid, MODEL, 2)
    assert "all 2 rounds of run r are done; use another folder" in caplog.text


class Fragile:
    """A policy and a price feed of the user's own, which fail once they are told to."""

    broken: type[Exception] | None = None

    def __call__(self, problem: Problem, options: ControlOptions) -> JointPolicy[Any]:
        if self.broken is not None:
            raise self.broken("a mistake in the user's own code")
        return acdpp(problem, options)


class FragilePrices(PricePath):
    broken: type[Exception] | None = None

    def mean(self, num_rounds: int) -> float:
        if self.broken is not None:
            raise self.broken("a mistake in the user's own code")
        return super().mean(num_rounds)


@pytest.mark.parametrize("mistake", [AttributeError, TypeError, KeyError, ValueError])
@pytest.mark.parametrize("whose", ["policy", "prices"])
def test_a_mistake_in_the_users_code_is_not_called_damage(
    tmp_path: Path, mistake: type[Exception], whose: str
) -> None:
    policy, prices = Fragile(), FragilePrices(UniformPrice(1, 10), seed=1)

    def server() -> AdmissionControl:
        return AdmissionControl(
            FedAvg(fraction_evaluate=0.0),
            policy,
            budget=16.5,
            prices=prices,
            folder=tmp_path / "run",
            run="r",
        )

    with pytest.raises(Killed):
        before_sending(tmp_path, server(), 2)
    (policy if whose == "policy" else prices).broken = mistake
    with pytest.raises(mistake, match="a mistake in the user's own code") as raised:
        server().start(plain_grid(tmp_path / "buffers"), MODEL, ROUNDS)
    assert not isinstance(raised.value, TidegateError)
    (policy if whose == "policy" else prices).broken = None
    server().start(plain_grid(tmp_path / "buffers"), MODEL, ROUNDS)


def model(**arrays: Any) -> ArrayRecord:
    start = {"w": np.zeros(3), "b": np.zeros(1)}
    named = {name: one for name, one in {**start, **arrays}.items() if one is not None}
    return ArrayRecord({name: Array(np.asarray(one)) for name, one in named.items()})


OTHER_MODELS = {
    "another shape": (
        model(w=np.zeros(4)),
        "'w' differs: the folder's model has float64 of (3,), initial_arrays has float64 of (4,)",
    ),
    "another kind": (
        model(w=np.zeros(3, int)),
        "'w' differs: the folder's model has float32 of (3,), initial_arrays has int64 of (3,)",
    ),
    "an array more": (
        model(c=np.zeros(2)),
        "'c' differs: the folder's model has none, initial_arrays has float64 of (2,)",
    ),
    "an array less": (
        model(b=None),
        "'b' differs: the folder's model has float64 of (1,), initial_arrays has none",
    ),
}


@pytest.mark.parametrize("other", OTHER_MODELS)
def test_another_model_is_refused_when_a_run_is_resumed(tmp_path: Path, other: str) -> None:
    given, told = OTHER_MODELS[other]
    begun = model(w=np.zeros(3, np.float32)) if other == "another kind" else MODEL
    with pytest.raises(Killed):
        control(tmp_path / "run").start(
            DyingGrid(tmp_path / "buffers", 1, clients_act=False), begun, ROUNDS
        )
    with pytest.raises(RunDiffersError) as refused:
        control(tmp_path / "run").start(plain_grid(tmp_path / "buffers"), given, ROUNDS)
    assert told in str(refused.value)
    assert "resume with the model that the run started with" in str(refused.value)
    resumed = control(tmp_path / "run")
    resumed.start(plain_grid(tmp_path / "buffers"), begun, ROUNDS)
    assert len(resumed.rounds) == ROUNDS


def test_a_retired_client_that_is_started_again_is_no_other_number(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(Killed):
        before_sending(tmp_path, control(tmp_path / "run"), 3)
    ask(tmp_path / "run", ["partition-2"], retired=True)
    mine = nodes(tmp_path / "buffers")
    with caplog.at_level("WARNING", logger="tidegate"):
        control(tmp_path / "run").start(LocalGrid(gated_app(), mine), MODEL, ROUNDS)
    assert "this process has" not in caplog.text
