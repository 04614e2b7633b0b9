"""Servers on Flower that share one budget: each takes it from a purse, and reports."""

from typing import Any

import pytest
from flwr.app import ArrayRecord, MetricRecord
from flwr.serverapp.strategy import FedAvg
from gated_apps import MODEL, gated_app

from tidegate.flower import AdmissionControl, Deployment, LocalGrid
from tidegate.prices import PricePath, UniformPrice
from tidegate.server.shards import Coordinator, Purse, Report

ROUNDS = 30
BUDGET = 44.0


def shard(purse: Purse, seed: int, **options: Any) -> AdmissionControl:
    prices = PricePath(UniformPrice(1, 10), seed)
    return AdmissionControl(
        FedAvg(fraction_evaluate=0.0), "tide", budget=BUDGET / 2, prices=prices,
        deployment=Deployment(purse=purse), **options,
    )  # fmt: skip


def test_two_servers_keep_one_budget() -> None:
    """They are played one after the other; each reports after every round of its own."""
    names = ("east", "west")
    coordinator = Coordinator("shared", BUDGET, dict.fromkeys(names, 38))
    purses = {name: Purse("shared", name) for name in names}
    spent, heard = 0.0, list[Report]()
    for seed, name in enumerate(names, start=1):
        one = shard(purses[name], seed)

        def grant(server_round: int, arrays: ArrayRecord) -> MetricRecord:
            report = one.report()  # noqa: B023 - called while this server runs
            if report is not None:
                heard.append(report)
            if name == "east":  # noqa: B023
                for made in coordinator.divide(server_round + 1, heard[-1:]):
                    purses[made.shard].take(made)
            return MetricRecord()

        grid = LocalGrid(gated_app(), [{"partition-id": number} for number in range(4)])
        one.start(grid, MODEL, ROUNDS, evaluate_fn=grant)
        spent += sum(row.spent for row in one.rounds)
        assert all(row.overspend <= row.cost_debt + 1e-9 for row in one.rounds)
    assert {(report.run, report.shard) for report in heard} == {
        ("shared", "east"),
        ("shared", "west"),
    }
    assert [r.round_number for r in heard if r.shard == "west"][-1] == ROUNDS
    assert 0.5 * BUDGET * ROUNDS < spent <= 1.1 * BUDGET * ROUNDS


def test_a_purse_of_another_run_is_refused() -> None:
    with pytest.raises(
        ValueError, match="the purse is for run 'shared', and this is run 'mine'; leave"
    ):
        shard(Purse("shared", "east"), 1, run="mine")
