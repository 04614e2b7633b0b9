"""What schedules of faults, histories of devices and simulations lead to, as digests in a file.

They say that a change of the core's structure changes no decision, no money and no sample. After a
change that is meant to, look at what differs, and record anew:

    PYTHONPATH=tests/helpers python tests/golden/recorded.py
"""

import hashlib
import json
import logging
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from histories import Device
from world import POLICIES, play_schedule

from tidegate.policies import ControlOptions
from tidegate.policies.presets import make_policy
from tidegate.prices import Prices, UniformPrice
from tidegate.problem import Problem
from tidegate.simulation.rounds import simulate

FILE = Path(__file__).with_name("recorded.json")
SCHEDULES = 80
"""Of each kind."""
HISTORIES = 60
KINDS = {
    "as they come": (False, False),
    "chosen": (True, False),
    "late": (False, True),
    "chosen, late": (True, True),
}
"""Whether clients choose among candidates, and whether what they buy comes later."""
PRICES: dict[str, tuple[Prices, float, bool]] = {
    "uniform 1 to 10": (UniformPrice(1, 10), 5.5, False),
    "nearly constant": (UniformPrice(5, 5.1), 5.05, False),
    "a number": (2.0, 2.0, False),
    "free at times": (UniformPrice(0, 3), 1.5, False),
    "each client's own": (UniformPrice(1, 10), 5.5, True),
}
COLUMNS = (
    "price",
    "ordered",
    "admitted",
    "spent",
    "cost_debt",
    "training_size",
    "effective_samples",
)


def digest(facts: object) -> str:
    """Return a short name of facts, which are equal to the last bit where their names are."""
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


def schedule_facts(number: int, *, choosing: bool, late: bool) -> dict[str, Any]:
    """Return orders, rounds, and what each client bought and stores after a schedule."""
    world = play_schedule(number, choosing=choosing, late=late)
    return {
        "orders": [
            (client, now, order.price, order.count, order.thresholds, order.retention_horizon)
            for (client, now), order in world.sent.items()
        ],
        "rounds": [
            [getattr(row, name) for name in ("exposure", "under_way", *COLUMNS)]
            for row in world.rounds
        ],
        "devices": [
            (
                device.paid,
                list(device.disk.samples()),
                [device.disk.books().orders - one.since for one in device.disk.held("stored")],
                device.disk.books().cursor,
            )
            for device in world.devices.values()
        ],
    }


def history_facts(number: int) -> dict[str, Any]:
    """Return what a device paid and trained on while samples expire and people are erased."""
    spent = []
    with tempfile.TemporaryDirectory() as folder:
        device = Device(Path(folder), number)
        for step in range(20):
            device.step()
            if step % 5 == 4:
                device.forget(device.draw.randrange(7))
            with device.gate() as (_, store):
                books = store.books()
                spent.append((books.admitted, books.spent, books.refunded))
        device.close()
    return {"spent": spent, "trained": device.trained, "kind": [device.mode, device.retention]}


def simulated_facts(policy: str, price: str, *, hard: bool) -> dict[str, Any]:
    """Return the columns of a simulated run."""
    law, mean, own = PRICES[price]
    problem = Problem(
        buffer_capacities=[5, 10, 20, 3, 12, 10, 10, 10, 10, 10],
        budget=55.0,
        mean_price=mean,
        num_rounds=120,
    )
    made = make_policy(policy, problem, ControlOptions(hard_capacity=hard))
    run = simulate(made, problem, law, seed=3, price_per_client=own)
    return {name: np.asarray(run.columns[name]).tolist() for name in COLUMNS}


def everything() -> dict[str, dict[str, Callable[[], dict[str, Any]]]]:
    """Return, by group and name, what leads to the facts of each thing that is recorded."""
    groups: dict[str, dict[str, Callable[[], dict[str, Any]]]] = {}
    for policy in POLICIES:
        groups[f"simulate {policy}"] = {
            f"{price}, {name} capacity": partial(simulated_facts, policy, price, hard=hard)
            for price in PRICES
            for name, hard in (("average", False), ("hard", True))
        }
    for kind, (choosing, late) in KINDS.items():
        groups[f"schedules, {kind}"] = {
            f"{number}": partial(schedule_facts, number, choosing=choosing, late=late)
            for number in range(SCHEDULES)
        }
    groups["histories"] = {
        f"{number}": partial(history_facts, number) for number in range(HISTORIES)
    }
    return groups


def main() -> None:
    """Record what there is now."""
    logging.getLogger("tidegate").setLevel(logging.CRITICAL)
    recorded = {
        group: {name: digest(facts()) for name, facts in members.items()}
        for group, members in everything().items()
    }
    FILE.write_text(json.dumps(recorded, indent=0) + "\n")


if __name__ == "__main__":
    main()
