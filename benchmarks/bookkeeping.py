"""What a running server's books cost: time, bytes and memory by clients known, without Flower.

    python benchmarks/bookkeeping.py
    python benchmarks/bookkeeping.py --known 1000000 --taking-part 1000 --json

One process makes a fleet and its file; every client has taken part before. Another resumes from the
file and plays rounds of clients drawn at random: it decides, books, closes and saves twice a round,
as a server does. What it does is timed, what clients do is not. Bytes are those given to the
operating system (``wchar`` of /proc); memory is the highest that the second process ever had, with
Python and NumPy in it. The exponent is that of time in known clients, from the smallest fleet to
the largest.
"""

import argparse
import contextlib
import json
import math
import multiprocessing
import resource
import statistics
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from tidegate import buffer
from tidegate.client.gate import Gate
from tidegate.client.store import Store
from tidegate.client.streams import IndexedStream
from tidegate.policies.presets import make_policy
from tidegate.prices import PricePath, UniformPrice
from tidegate.runs.writer import RunWriter
from tidegate.server.account import Account
from tidegate.server.controller import Controller
from tidegate.server.fleet import Terms
from tidegate.wire import MOST_AGES, Introduction, Order, Receipt, Record

CAPACITY = 10
ROUNDS = 20
UNCOUNTED = 3
"""Rounds before those that are measured."""
WIDTH = 130
"""Characters that the table needs."""
RUN, MODEL = "books", "model-000000.npz"
AGES = (3, 2, 1)
"""Of the samples that a client of the fleet holds, in orders since the purchase."""


@dataclass(frozen=True)
class Cost:
    """What a round costs the server, medians; and the process, once."""

    policy: str
    known: int
    taking_part: int
    seconds_a_round: float
    processor_seconds_a_round: float
    decide_seconds: float
    book_and_close_seconds: float
    save_seconds: float
    bytes_written_a_round: int
    peak_memory_bytes: int
    resume_seconds: float
    file_bytes: int
    message_bytes: tuple[int, int]
    """Address and order on the way out, the receipt on the way back, without the model."""


def _terms(policy: str, known: int, taking_part: int) -> Terms:
    return Terms(
        policy=lambda problem: make_policy(policy, problem),
        policy_name=policy,
        budget=5.5 * taking_part,
        prices=PricePath(UniformPrice(1, 10), 1),
        num_rounds=1000,
        fraction_train=min(taking_part / known, 1.0),
    )


def _name(number: int) -> str:
    return f"client-{number}"


def answer(account: Account, order: Order) -> Receipt:
    """What a client with an endless stream answers."""
    before, bought = account.newest, account.most_bought(order)
    holding = buffer.after(account.kept(order.horizon), bought, account.buffer_capacity)
    return Receipt(
        run=order.run,
        round_number=order.round_number,
        bought=before.bought + bought,
        admitted=before.admitted + bought,
        spent=before.spent + order.price * bought,
        holding=holding,
        expiring=sum(holding[int(min(order.horizon, MOST_AGES)) - 1 :]),
        occupancy=sum(holding),
        uses=sum(age * count for age, count in enumerate(holding, start=1)),
        read=before.read + bought,
    )


def make_fleet(folder: Path, policy: str, known: int, taking_part: int) -> None:
    """A run that knows so many clients, each with some samples, after a few rounds."""
    controller, writer = Controller(_terms(policy, known, taking_part), RUN), RunWriter(folder)
    everybody = [_name(number) for number in range(known)]
    with writer.held():
        for name in everybody:
            controller.join(
                Introduction(run=RUN, client=name, buffer_capacity=CAPACITY, buffer_id=_id(name))
            )
        writer.begin()
        writer.save_control(controller, MODEL)
        for _ in range(AGES[0] + 1):
            _play(controller, writer, everybody[:taking_part], everybody)
        for name in everybody[taking_part:]:
            controller.ledger.accounts[name] = Account(
                buffer_capacity=CAPACITY,
                buffer_id=_id(name),
                newest=Receipt(
                    run=RUN,
                    round_number=AGES[0],
                    bought=len(AGES),
                    admitted=len(AGES),
                    spent=5.5 * len(AGES),
                    holding=buffer.holding(Counter(AGES)),
                    occupancy=len(AGES),
                    uses=sum(AGES),
                    read=len(AGES),
                ),
            )
        writer.save_control(controller, MODEL)


def _id(name: str) -> str:
    return f"{zlib.crc32(name.encode()):032x}"


def _play(
    controller: Controller, writer: RunWriter, some: list[str], everybody: list[str]
) -> dict[str, float]:
    """One round; seconds of the server's steps."""
    took: dict[str, float] = {}

    @contextlib.contextmanager
    def timed(what: str) -> Iterator[None]:
        wall, processor = time.perf_counter(), time.process_time()
        yield
        took[what] = took.get(what, 0.0) + time.perf_counter() - wall
        took["processor"] = took.get("processor", 0.0) + time.process_time() - processor

    with timed("decide"):
        orders = controller.decide(some, everybody)
    with timed("save"):
        writer.save_control(controller, MODEL)
    receipts = {
        name: answer(controller.ledger.account(name), order) for name, order in orders.items()
    }
    with timed("book"):
        for name, receipt in receipts.items():
            controller.book(name, receipt)
        row = controller.close()
    with timed("save"):
        writer.append(row)
        writer.save_control(controller, MODEL)
    first = some[0]
    took["out"] = _size(controller.address(first), orders[first])
    took["back"] = _size(receipts[first])
    return took


def _size(*records: Record) -> int:
    return sum(len(json.dumps(record.to_record())) for record in records)


def _bytes_written() -> int:
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["wchar"])


def play(folder: Path, policy: str, known: int, taking_part: int) -> Cost:
    """Resume a fleet from its file, and play rounds of clients drawn at random."""
    writer, draw = RunWriter(folder), np.random.default_rng(1)
    with writer.held():
        started = time.perf_counter()
        found = writer.load(_terms(policy, known, taking_part))
        resumed = time.perf_counter() - started
        if found is None:
            raise SystemExit(f"{folder} holds no run")
        controller, everybody = found[0], [_name(number) for number in range(known)]
        rounds, written = list[dict[str, float]](), list[int]()
        for _ in range(UNCOUNTED + ROUNDS):
            drawn = draw.choice(known, min(taking_part, known), replace=False)
            before = _bytes_written()
            rounds.append(_play(controller, writer, [_name(one) for one in drawn], everybody))
            written.append(_bytes_written() - before)
    counted = rounds[UNCOUNTED:]
    steps = {name: statistics.median(one[name] for one in counted) for name in counted[0]}
    whole = [one["decide"] + one["book"] + one["save"] for one in counted]
    return Cost(
        policy=policy,
        known=known,
        taking_part=taking_part,
        seconds_a_round=statistics.median(whole),
        processor_seconds_a_round=steps["processor"],
        decide_seconds=steps["decide"],
        book_and_close_seconds=steps["book"],
        save_seconds=steps["save"],
        bytes_written_a_round=round(statistics.mean(written[UNCOUNTED:])),
        peak_memory_bytes=1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        resume_seconds=resumed,
        file_bytes=sum(one.stat().st_size for one in folder.iterdir()),
        message_bytes=(int(steps["out"]), int(steps["back"])),
    )


def measure(policy: str, known: int, taking_part: int) -> Cost:
    """Make a fleet in one new process, and play it in another."""
    fresh = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        case = Path(folder) / "run", policy, known, taking_part
        with fresh.Pool(1) as pool:
            pool.apply(make_fleet, case)
        with fresh.Pool(1) as pool:
            return pool.apply(play, case)


def device_bytes() -> int:
    """What a full buffer takes on disk, beside the samples themselves."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "buffer"
        with contextlib.closing(Store(file, RUN, _name(0), CAPACITY)) as store:
            gate = Gate(store, IndexedStream([b""] * CAPACITY))
            gate.apply(
                Order(run=RUN, round_number=1, count=CAPACITY, price=1.0, retention_horizon=9)
            )
            return sum(one.stat().st_size for one in Path(folder).iterdir())


def exponent(costs: list[Cost]) -> float:
    """Of a policy's processor time in known clients."""
    least, most = (pick(costs, key=lambda one: one.known) for pick in (min, max))
    ratio = most.processor_seconds_a_round / least.processor_seconds_a_round
    return math.log(ratio) / math.log(most.known / least.known)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--known", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--taking-part", type=int, default=1000)
    parser.add_argument("--policies", nargs="+", default=["acdpp", "tide"])
    parser.add_argument("--json", action="store_true", help="print a list of objects")
    given = parser.parse_args()
    cases = [(policy, known) for policy in given.policies for known in given.known]
    console = Console(stderr=True)
    costs = [
        measure(policy, known, given.taking_part)
        for policy, known in track(cases, "measuring", transient=True, console=console)
    ]
    if given.json:
        print(json.dumps([asdict(one) for one in costs]))
        return
    table = Table(
        *("policy", "known", "a round, ms", "processor", "decide", "book", "save"),
        *("MB written", "memory, MB", "resume, s", "file, MB", "message, bytes"),
        title=f"Rounds of {given.taking_part:,} clients; medians of {ROUNDS}, milliseconds",
    )
    for one in costs:
        seconds = one.seconds_a_round, one.processor_seconds_a_round
        steps = one.decide_seconds, one.book_and_close_seconds, one.save_seconds
        table.add_row(
            *(one.policy, f"{one.known:,}", *(f"{1e3 * part:.0f}" for part in (*seconds, *steps))),
            *(f"{one.bytes_written_a_round / 1e6:.2f}", f"{one.peak_memory_bytes / 1e6:.0f}"),
            *(f"{one.resume_seconds:.1f}", f"{one.file_bytes / 1e6:.0f}"),
            " + ".join(f"{part:,}" for part in one.message_bytes),
        )
    Console(width=max(Console().width, WIDTH)).print(table)
    if len(given.known) > 1:
        for policy in given.policies:
            found = exponent([one for one in costs if one.policy == policy])
            print(f"{policy}: processor time grows with known clients to the power {found:.2f}")
    print(f"A buffer's files on a device: {device_bytes() / 1e3:,.0f} kB")


if __name__ == "__main__":
    main()
