"""The models of the paper's experiments, and one for sensor windows."""

from collections.abc import Callable, Mapping
from math import prod

import torch
from torch import Tensor, nn

from tidegate.errors import ConfigurationError

Shape = tuple[int, ...]
"""The shape of one input, channels first."""


class LogisticRegression(nn.Module):
    """One linear layer: 7,850 parameters on MNIST."""

    def __init__(self, shape: Shape, classes: int) -> None:
        super().__init__()
        self.linear = nn.Linear(prod(shape), classes)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return one score a class."""
        scores: Tensor = self.linear(inputs.flatten(1))
        return scores


class LeNet(nn.Module):
    """LeNet-5 with ReLU and max pooling: 61,706 parameters on MNIST."""

    def __init__(self, shape: Shape, classes: int) -> None:
        super().__init__()
        channels, height, width = shape
        padding = 2 if height == 28 else 0
        self.convolutions = nn.Sequential(
            nn.Conv2d(channels, 6, 5, padding=padding), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        )  # fmt: skip
        side = [((size + 2 * padding - 4) // 2 - 4) // 2 for size in (height, width)]
        self.classifier = nn.Sequential(
            nn.Linear(16 * prod(side), 120), nn.ReLU(),
            nn.Linear(120, 84), nn.ReLU(),
            nn.Linear(84, classes),
        )  # fmt: skip

    def forward(self, inputs: Tensor) -> Tensor:
        """Return one score a class."""
        scores: Tensor = self.classifier(self.convolutions(inputs).flatten(1))
        return scores


def _block(channels: int, wider: int, *, pool: bool = False) -> nn.Sequential:
    """Return convolution, normalisation and ReLU.

    Group normalisation in place of batch normalisation: a client with two classes has batch
    statistics of its own, and an average over ten clients fits none of them.
    """
    parts: list[nn.Module] = [
        nn.Conv2d(channels, wider, 3, padding=1, bias=False),
        nn.GroupNorm(min(8, wider), wider),
        nn.ReLU(),
    ]
    if pool:
        parts.append(nn.MaxPool2d(2))
    return nn.Sequential(*parts)


class ResNet9(nn.Module):
    """Eight convolutions, two pairs of them with a shortcut, and a linear layer.

    6.6 million parameters at a width of 64 channels, about 0.1 million at 8. Channels lie last in
    memory, which makes a step a tenth to a quarter faster on a CPU.
    """

    def __init__(self, shape: Shape, classes: int, width: int = 64) -> None:
        super().__init__()
        channels, *_ = shape
        self.before = nn.Sequential(_block(channels, width), _block(width, 2 * width, pool=True))
        self.first = nn.Sequential(_block(2 * width, 2 * width), _block(2 * width, 2 * width))
        self.between = nn.Sequential(
            _block(2 * width, 4 * width, pool=True), _block(4 * width, 8 * width, pool=True)
        )
        self.second = nn.Sequential(_block(8 * width, 8 * width), _block(8 * width, 8 * width))
        self.classifier = nn.Sequential(
            nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(8 * width, classes)
        )
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, inputs: Tensor) -> Tensor:
        """Return one score a class."""
        inputs = inputs.contiguous(memory_format=torch.channels_last)
        hidden = self.before(inputs * 4 - 2)  # from [0, 1] to a standard deviation of about 1
        hidden = hidden + self.first(hidden)
        hidden = self.between(hidden)
        scores: Tensor = self.classifier(hidden + self.second(hidden))
        return scores


class SensorCnn(nn.Module):
    """Three 1-D convolutions over a window of sensor readings."""

    def __init__(self, shape: Shape, classes: int, width: int = 32) -> None:
        super().__init__()
        channels, _ = shape
        self.layers = nn.Sequential(
            nn.Conv1d(channels, width, 9, padding=4), nn.ReLU(), nn.MaxPool1d(4),
            nn.Conv1d(width, width, 9, padding=4), nn.ReLU(), nn.MaxPool1d(4),
            nn.Conv1d(width, width, 5, padding=2), nn.ReLU(),
            nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(width, classes),
        )  # fmt: skip

    def forward(self, inputs: Tensor) -> Tensor:
        """Return one score a class."""
        scores: Tensor = self.layers(inputs)
        return scores


MODELS: Mapping[str, Callable[..., nn.Module]] = {
    "logistic": LogisticRegression,
    "lenet": LeNet,
    "resnet9": ResNet9,
    "sensor_cnn": SensorCnn,
}
WITH_WIDTH = ("resnet9", "sensor_cnn")
DIMENSIONS = {"lenet": 3, "resnet9": 3, "sensor_cnn": 2}
"""The dimensions of an input, channels included; models that are not listed take any."""


def new_model(name: str, shape: Shape, classes: int, width: int = 0, seed: int = 0) -> nn.Module:
    """Return a model whose initial weights are drawn from a seed.

    Args:
        name: a key of ``MODELS``.
        shape: the shape of one input, channels first.
        classes: the number of labels.
        width: channels of the first layer, for models of variable width; 0 for the default.
        seed: for the initial weights; the global generator keeps its state.
    """
    if name not in MODELS:
        raise ConfigurationError(f"unknown model {name!r}; choose from {', '.join(MODELS)}")
    if width and name not in WITH_WIDTH:
        raise ConfigurationError(
            f"{name} has only one width; {' and '.join(WITH_WIDTH)} have a choice"
        )
    if name in DIMENSIONS and len(shape) != DIMENSIONS[name]:
        kind = "windows, (channels, steps)" if name == "sensor_cnn" else "images"
        raise ConfigurationError(f"{name} needs {kind}, but the inputs have the shape {shape}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return MODELS[name](shape, classes, **({"width": width} if width else {}))


def num_parameters(model: nn.Module) -> int:
    """Return how many numbers training changes.

    >>> num_parameters(new_model("lenet", (1, 28, 28), 10))
    61706
    """
    return sum(parameter.numel() for parameter in model.parameters())
