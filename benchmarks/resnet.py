"""What would make the local steps of ResNet-9 faster on a CPU: one row a way, with its ratio.

    python -m benchmarks.resnet
    python -m benchmarks.resnet --width 64 --clients 2 --steps 1 --repeats 3

Some clients with as many images each take E full-batch steps, one way after another in turns, so
that the machine's moods hit all of them. Ways on one thread are compared by processor time, which
other work on the machine hardly changes; two threads, by the clock. Compiling is not counted. The
first turn warms up and is left out.
"""

import argparse
import copy
import statistics
import time
from collections.abc import Callable
from typing import cast

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.func import functional_call, grad, stack_module_state, vmap

from experiments.tool.models import ResNet9, new_model
from experiments.tool.training import judge, train

RATE = 0.02
SHAPE, CLASSES = (3, 32, 32), 10
JUDGED = 200

Data = tuple[Tensor, Tensor]
Way = Callable[[nn.Module, list[Data]], object]


class ChannelsFirst(ResNet9):
    """The same model with channels first in memory."""

    def forward(self, inputs: Tensor) -> Tensor:
        """A score a class."""
        hidden = self.before(inputs * 4 - 2)
        hidden = hidden + self.first(hidden)
        hidden = self.between(hidden)
        scores: Tensor = self.classifier(hidden + self.second(hidden))
        return scores


class Ways:
    """Each trains a copy of the model for every client."""

    def __init__(self, width: int, steps: int) -> None:
        self.width, self.steps = width, steps
        self.compiled = cast(
            "nn.Module", torch.compile(new_model("resnet9", SHAPE, CLASSES, width))
        )

    def as_it_is(self, model: nn.Module, data: list[Data]) -> None:
        """Channels last, one client after another."""
        for inputs, labels in data:
            self._train(copy.deepcopy(model), inputs, labels)

    def channels_first(self, model: nn.Module, data: list[Data]) -> None:
        """Without channels last."""
        for inputs, labels in data:
            self._train(self._channels_first(model), inputs, labels)

    def bfloat16(self, model: nn.Module, data: list[Data]) -> None:
        """Convolutions in bfloat16."""
        with torch.autocast("cpu", dtype=torch.bfloat16):
            self.as_it_is(model, data)

    def compile(self, model: nn.Module, data: list[Data]) -> None:
        """torch.compile, once for all clients of equal size."""
        for inputs, labels in data:
            self.compiled.load_state_dict(
                {f"_orig_mod.{name}": value for name, value in model.state_dict().items()}
            )
            self._train(self.compiled, inputs, labels)

    def together(self, model: nn.Module, data: list[Data]) -> None:
        """All clients, of equal size, in one batch with weights of their own."""
        base = self._channels_first(model)
        weights, _ = stack_module_state([base for _ in data])
        inputs, labels = (torch.stack(parts) for parts in zip(*data, strict=True))

        def loss(mine: dict[str, Tensor], images: Tensor, wanted: Tensor) -> Tensor:
            scores: Tensor = functional_call(base, mine, (images,))
            return nn.functional.cross_entropy(scores, wanted)

        step = vmap(grad(loss))
        for _ in range(self.steps):
            pulls = step(weights, inputs, labels)
            weights = {name: value - RATE * pulls[name] for name, value in weights.items()}

    def two_threads(self, model: nn.Module, data: list[Data]) -> None:
        """As it is, on two threads."""
        torch.set_num_threads(2)
        self.as_it_is(model, data)
        torch.set_num_threads(1)

    def _channels_first(self, model: nn.Module) -> nn.Module:
        other = ChannelsFirst(SHAPE, CLASSES, self.width)
        other.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
        other.load_state_dict(model.state_dict())
        return other

    def _train(self, model: nn.Module, inputs: Tensor, labels: Tensor) -> None:
        train(model, inputs, labels, local_steps=self.steps, learning_rate=RATE)


def timed(way: Way, model: nn.Module, data: list[Data]) -> tuple[float, float]:
    """Seconds by the clock and of the processor."""
    began = time.perf_counter(), time.process_time()
    way(model, data)
    return time.perf_counter() - began[0], time.process_time() - began[1]


def main(width: int, clients: int, samples: int, steps: int, repeats: int) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = new_model("resnet9", SHAPE, CLASSES, width)
    data = [
        (torch.rand(samples, *SHAPE), torch.randint(CLASSES, (samples,))) for _ in range(clients)
    ]
    ways = Ways(width, steps)
    named: dict[str, Way] = {
        "channels last, as it is": ways.as_it_is,
        "channels first": ways.channels_first,
        "bfloat16 (autocast)": ways.bfloat16,
        "torch.compile": ways.compile,
        "clients in one batch (vmap)": ways.together,
        "two threads": ways.two_threads,
    }
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in named}
    for turn in range(repeats + 1):
        for name, way in named.items():
            seconds = timed(way, model, data)
            if turn:
                found[name].append(seconds)
    base = found["channels last, as it is"]
    table = Table("way", "processor, ms a step", "faster", title=f"ResNet-9, {width} channels")
    for name, mine in found.items():
        which = 0 if name == "two threads" else 1
        ratios = [whole[which] / one[which] for whole, one in zip(base, mine, strict=True)]
        step = statistics.median(one[1] for one in mine) / clients / steps
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        table.add_row(name, f"{1e3 * step:.1f}", f"{statistics.median(ratios):.2f} ({spread})")
    Console().print(table)
    images, labels = torch.rand(JUDGED, *SHAPE), torch.randint(CLASSES, (JUDGED,))
    judging = [
        timed(lambda model, data: judge(model, *data[0]), model, [(images, labels)])[1]
        for _ in range(repeats)
    ]
    Console().print(f"judging: {1e3 * statistics.median(judging) / JUDGED:.2f} ms an image")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=int, default=8, help="channels of the first layer")
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--samples", type=int, default=20, help="that a client holds")
    parser.add_argument("--steps", type=int, default=2, help="E")
    parser.add_argument("--repeats", type=int, default=7)
    main(**vars(parser.parse_args()))
