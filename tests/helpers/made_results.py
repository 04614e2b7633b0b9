"""Results of an experiment that was never run: numbers that a test can foretell."""

from collections.abc import Mapping
from pathlib import Path

from experiments.tool.results import CONFIG, About, RowWriter, write_config
from tidegate.problem import LearningConstants
from tidegate.server.fleet_round import FleetRound


def make_results(
    folder: Path,
    accuracies: Mapping[str, list[list[float]]],
    spent: float = 55.0,
    exhausted: int = 0,
    limit: float | None = 20.0,
) -> Path:
    """One run for each list of accuracies, seeds 0, 1, ...; ten effective samples a round."""
    configs = {
        f"{label}/seed-{seed}": {
            "label": label,
            "job": {
                "seed": seed,
                "budget": 55.0,
                "policy": label.partition("-")[0],
                "ranking": label.partition("-")[2],
            },
        }
        for label, runs in accuracies.items()
        for seed in range(len(runs))
    }
    About("made", tuple(accuracies), 55.0, limit, (0.5,), configs).write(folder)
    for label, runs in accuracies.items():
        for seed, path in enumerate(runs):
            place = folder / label / f"seed-{seed}"
            write_config(place, configs[f"{label}/seed-{seed}"])
            rows = RowWriter(place)
            for number, accuracy in enumerate(path, start=1):
                rows.write(
                    made_round(number, spent, exhausted),
                    accuracy,
                    1 - accuracy,
                    LearningConstants(),
                )
            rows.finish()
    assert (folder / label / "seed-0" / CONFIG).exists()
    return folder


def made_round(number: int, spent: float, exhausted: int) -> FleetRound:
    return FleetRound(
        round_number=number,
        price=5.5,
        ordered=10.0,
        fleet=10,
        orders=10,
        answered=10,
        exhausted=exhausted,
        admitted=10,
        spent=spent,
        overspend=number * (spent - 55.0),
        cost_debt=0.0,
        slots=100,
        exposure=0.0,
        training_size=50,
        distinct_samples=100 * number,
        effective_samples=10.0 * number,
    )
