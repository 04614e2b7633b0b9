"""The server of an experiment: FedAvg under a budget, evaluated after every round."""

import contextlib
from pathlib import Path
from typing import Any

import torch
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from experiments.tool.job import Job
from experiments.tool.models import new_model
from experiments.tool.results import RowWriter
from experiments.tool.training import as_inputs, device, judge
from tidegate.flower import AdmissionControl, ClientTrust, Planning
from tidegate.policies import ControlOptions, JointPolicy, PolicyMaker
from tidegate.policies.presets import make_policy
from tidegate.problem import Problem

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train for a number of rounds, and write one row after each."""
    job = Job.from_config(context.run_config)
    data = job.federated_data
    inputs, wanted = data.test_arrays(job.test_inputs)
    test = as_inputs(inputs), torch.as_tensor(wanted)
    model = new_model(job.model, data.input_shape, data.num_classes, job.width, job.seed)
    model.to(device())
    importance = {f"partition-{number}": weight for number, weight in enumerate(job.weights)}
    strategy = AdmissionControl(
        FedAvg(fraction_evaluate=0.0, min_available_nodes=job.clients, min_train_nodes=job.clients),
        _maker(job),
        budget=job.budget,
        prices=job.prices,
        spend_ahead=job.limit_ahead,
        planning=Planning(
            retention_horizon=job.retention_horizon or None,
            headroom=job.headroom,
            most_uses=job.most_uses or None,
            learning=job.learning,
        ),
        trust=ClientTrust(importance=importance or None),
    )
    rows = RowWriter(Path(job.results)) if job.results else None

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        judged = server_round == job.rounds or server_round % job.judge_every == 0
        if judged:
            model.load_state_dict(arrays.to_torch_state_dict())
        accuracy, loss = judge(model, *test) if judged else (float("nan"), float("nan"))
        done = strategy.rounds[-1] if server_round else None
        if done is not None and done.answered < done.orders:
            raise RuntimeError(
                f"round {server_round}: only {done.answered} of {done.orders} clients replied, so "
                "the run cannot be compared with others; see the log for what failed"
            )
        if rows is not None and done is not None:
            rows.write(done, accuracy, loss, job.learning)
        return MetricRecord({"accuracy": accuracy, "loss": loss})

    with contextlib.closing(rows) if rows is not None else contextlib.nullcontext():
        strategy.start(
            grid,
            initial_arrays=ArrayRecord(model.state_dict()),
            num_rounds=job.rounds,
            evaluate_fn=evaluate,
        )
        if rows is not None:
            rows.finish()


def _maker(job: Job) -> PolicyMaker:
    """Return the job's policy, under a name that checkpoints compare."""

    def maker(problem: Problem, options: ControlOptions) -> JointPolicy[Any]:
        return make_policy(job.policy, problem, options, preset=job.preset)

    maker.__qualname__ = f"{job.policy} {job.preset}"
    return maker
