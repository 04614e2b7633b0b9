"""Theorem 1 beside reality: logistic regression on MNIST, where the best model can be computed.

python -m experiments.bound.bound --data data/mnist --out experiments/bound

Along each run: sigma and G from the gradients of single samples, D from the distance to the best
model, B from the largest loss, all at their largest over the run, as the theorem needs them; the
bound with these constants, and the excess risk that was measured. The population is the 60,000
training and 10,000 test images together. The best model is the one with a small ridge: without it
weights grow for thousands of steps, and D with them.
"""

import argparse
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from flwr.app import ArrayRecord
from flwr.serverapp.strategy import FedAvg
from torch import Tensor, nn

from experiments.tool.client_app import app as client_app
from experiments.tool.comparison import write_csv
from experiments.tool.job import Job
from experiments.tool.models import new_model, num_parameters
from experiments.tool.training import as_inputs
from tidegate._internal.arrays import FloatArray
from tidegate.flower import AdmissionControl, Planning
from tidegate.flower.local_grid import LocalGrid
from tidegate.policies.presets import EXPERIMENTS
from tidegate.problem import LearningConstants
from tidegate.report.figures import look_of
from tidegate.theory.bounds import SampleSizes, bound_terms, constant_terms
from tidegate.theory.estimates import ModelEstimates, estimated_constants

POLICIES = ("costless_oracle", "constant_admission", "acdpp", "tide")
SHAPE, CLASSES = (1, 28, 28), 10
RIDGE = 1e-5


def population(data: str) -> tuple[Tensor, Tensor]:
    """All images, flattened with a 1 for the bias, and their labels."""
    whole = Job(data=data).federated_data
    test, wanted = whole.test_arrays()
    images, labels = whole.partition("iid", 0, 1, 0).arrays()
    flat = as_inputs(np.concatenate([test, images])).flatten(1)
    everything = torch.as_tensor(np.concatenate([wanted, labels]))
    return torch.hstack([flat, torch.ones(len(flat), 1)]), everything


def best_model(inputs: Tensor, labels: Tensor, steps: int) -> tuple[Tensor, float]:
    """The minimiser of the mean loss and a ridge, by L-BFGS; and the gradient that is left."""
    weights = torch.zeros(inputs.shape[1], CLASSES, requires_grad=True)
    optimiser = torch.optim.LBFGS(
        [weights],
        max_iter=steps,
        max_eval=2 * steps,
        history_size=20,
        tolerance_grad=1e-7,
        tolerance_change=1e-12,
        line_search_fn="strong_wolfe",
    )

    def objective() -> Tensor:
        loss = nn.functional.cross_entropy(inputs @ weights, labels)
        return loss + RIDGE / 2 * weights.square().sum()

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = objective()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimiser.step(closure)  # type: ignore[no-untyped-call]
    (left,) = torch.autograd.grad(objective(), weights)
    return weights.detach(), float(left.norm())


@dataclass
class Seen:
    """What was measured along one run, one entry a round."""

    excess: list[float] = field(default_factory=list)
    estimates: list[ModelEstimates] = field(default_factory=list)


@torch.no_grad()
def look(weights: Tensor, best: Tensor, inputs: Tensor, labels: Tensor, seen: Seen) -> None:
    """Measure a model; a sample's gradient is (p - y) times its input."""
    scores = inputs @ weights
    losses = nn.functional.cross_entropy(scores, labels, reduction="none")
    wrong = scores.softmax(1)
    wrong[torch.arange(len(labels)), labels] -= 1
    squares = wrong.square().sum(1) * inputs.square().sum(1)
    mean = inputs.T @ wrong / len(labels)
    at_best = nn.functional.cross_entropy(inputs @ best, labels)
    seen.excess.append(float(losses.mean() - at_best))
    distance = float((weights - best).norm())
    values = squares.double().numpy(), mean.double().numpy(), losses.double().numpy()
    seen.estimates.append(ModelEstimates.of(distance, *values))


def follow(job: Job, best: Tensor, inputs: Tensor, labels: Tensor) -> tuple[Seen, SampleSizes]:
    """One run, measured after every round."""
    capacities = EXPERIMENTS["mnist"].buffer_capacities
    nodes = [{"partition-id": one, "num-partitions": 10} for one in range(len(capacities))]
    model = new_model(job.model, SHAPE, CLASSES, seed=job.seed)
    strategy = AdmissionControl(
        FedAvg(fraction_evaluate=0.0),
        job.policy,
        budget=job.budget,
        prices=job.prices,
        spend_ahead=None,
        planning=Planning(headroom=job.headroom, learning=job.learning),
    )
    seen = Seen()

    def after(server_round: int, arrays: ArrayRecord) -> None:
        if server_round:
            state = arrays.to_torch_state_dict()
            weights = torch.vstack([state["linear.weight"].T, state["linear.bias"]])
            look(weights, best, inputs, labels, seen)

    strategy.start(
        LocalGrid(client_app, nodes, job.to_config()),
        ArrayRecord(model.state_dict()),
        num_rounds=job.rounds,
        evaluate_fn=after,
    )
    sizes = SampleSizes(
        *(
            np.array([float(getattr(one, name)) for one in strategy.rounds])
            for name in ("training_size", "distinct_samples", "effective_samples")
        )
    )
    return seen, sizes


def bounded(seen: Sequence[Seen], sizes: SampleSizes, job: Job) -> tuple[FloatArray, float, str]:
    """The bound a round, the constant terms a round, and the constants that went in."""
    model = new_model(job.model, SHAPE, CLASSES)
    known = LearningConstants(
        pseudo_dimension=float(num_parameters(model)),
        learning_rate=job.learning_rate,
        local_steps=job.local_steps,
    )
    estimates = [at_model for one in seen for at_model in one.estimates]
    constants = estimated_constants(estimates, known, from_best=True)
    told = (
        f"D={constants.domain_diameter:.3g} sigma={constants.gradient_noise:.3g} "
        f"B={constants.loss_bound:.3g} G={constants.gradient_bound:.3g} "
        f"Pdim={constants.pseudo_dimension:g}"
    )
    fixed = constant_terms(constants, job.rounds) / job.rounds
    return bound_terms(sizes, constants).total, fixed, told


def main(data: str, out: Path, rounds: int, seeds: int, steps: int) -> None:
    logging.getLogger("flwr").setLevel(logging.ERROR)
    inputs, labels = population(data)
    best, left = best_model(inputs, labels, steps)
    print(f"best model: norm {best.norm():.3g}, gradient left {left:.2g}", flush=True)
    found: dict[str, list[tuple[Seen, SampleSizes, Job]]] = {}
    for seed in range(seeds):
        for policy in POLICIES:
            job = Job(
                data=data,
                model="logistic",
                learning_rate=0.5,
                rounds=rounds,
                seed=seed,
                policy=policy,
                headroom=4.0 if policy == "acdpp" else 1.0,
                capacities=",".join(map(str, EXPERIMENTS["mnist"].buffer_capacities)),
            )
            seen, sizes = follow(job, best, inputs, labels)
            found.setdefault(policy, []).append((seen, sizes, job))
            print(f"seed {seed}, {policy}: excess risk {seen.excess[-1]:.3f}", flush=True)
    everything = [seen for runs in found.values() for seen, _, _ in runs]
    table = []
    for policy, runs in found.items():
        bounds = [bounded(everything, sizes, job) for _, sizes, job in runs]
        excess = np.array([seen.excess for seen, _, _ in runs])
        table.append(
            {
                "policy": policy,
                "mean_excess_risk": f"{excess.mean():.4g}",
                "last_excess_risk": f"{excess[:, -1].mean():.4g}",
                "bound_per_round": f"{np.mean([one.mean() for one, _, _ in bounds]):.4g}",
                "constant_terms_per_round": f"{bounds[0][1]:.4g}",
                "looseness": f"{np.mean([one.mean() for one, _, _ in bounds]) / excess.mean():.3g}",
                "constants": bounds[0][2],
            }
        )
    out.mkdir(parents=True, exist_ok=True)
    write_csv(out / "expected.csv", table)
    draw(found, everything, out / "bound.png")
    for row in table:
        print(row)


def draw(
    found: dict[str, list[tuple[Seen, SampleSizes, Job]]], everything: list[Seen], path: Path
) -> None:
    from matplotlib.figure import Figure  # noqa: PLC0415 - an extra

    figure = Figure(figsize=(11, 4.4), layout="constrained")
    reality, both = figure.subplots(1, 2)
    for policy, runs in found.items():
        colour, style = look_of(policy)
        excess = np.mean([seen.excess for seen, _, _ in runs], axis=0)
        bound = np.mean([bounded(everything, sizes, job)[0] for _, sizes, job in runs], axis=0)
        rounds = np.arange(1, len(excess) + 1)
        reality.plot(rounds, excess, color=colour, linestyle=style, label=policy)
        both.plot(rounds, excess, color=colour, linestyle=style)
        both.plot(rounds, bound, color=colour, linestyle=style, linewidth=2.5)
    reality.set_title("Excess risk, measured", loc="left", fontsize="medium")
    both.set_title(
        "The same (thin) and the bound of Theorem 1 (thick)", loc="left", fontsize="medium"
    )
    reality.set_yscale("log")
    both.set_yscale("log")
    for one in (reality, both):
        one.set_xlabel("round")
    reality.set_ylabel("loss above the best model's")
    lines, labels = reality.get_legend_handles_labels()
    figure.legend(lines, labels, loc="outside lower center", ncols=4, frameon=False)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="data/mnist", help="as in docs/experiments.md")
    parser.add_argument("--out", type=Path, default=Path("bound"))
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=600, help="of L-BFGS, at most")
    given = parser.parse_args()
    main(given.data, given.out, given.rounds, given.seeds, given.steps)
