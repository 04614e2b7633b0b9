"""Local training on a client's samples, and evaluation of a model."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tidegate._internal.arrays import FloatArray

BATCH = 200
"""Test inputs that are evaluated at once: a batch that fits a cache is fastest."""


def device() -> torch.device:
    """Return the device to train on: a GPU if PyTorch finds one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def batch(samples: Sequence[tuple[Any, int]]) -> tuple[Tensor, Tensor]:
    """Return inputs, channels first, and labels of samples; bytes become numbers from 0 to 1."""
    inputs = np.stack([sample for sample, _ in samples])
    return as_inputs(inputs), torch.tensor([label for _, label in samples])


def as_inputs(values: np.ndarray[Any, Any]) -> Tensor:
    """Return arrays of inputs in the form that a model takes."""
    inputs = torch.as_tensor(values)
    return inputs.float().div_(255) if inputs.dtype == torch.uint8 else inputs.float()


def train(
    model: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    *,
    local_steps: int,
    learning_rate: float,
    momentum: float = 0.0,
) -> float:
    """Take E steps of gradient descent on all samples at once.

    Args:
        model: the model, changed in place.
        inputs: the inputs of all samples.
        labels: the labels of all samples.
        local_steps: E.
        learning_rate: η.
        momentum: within one round; the next round starts without any.

    Returns:
        The loss before the last step.
    """
    inputs, labels = _beside(model, inputs, labels)
    optimiser = torch.optim.SGD(model.parameters(), lr=learning_rate, momentum=momentum)
    loss = torch.zeros(())
    for _ in range(local_steps):
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimiser.step()
    return loss.item()


def _beside(model: nn.Module, *values: Tensor) -> list[Tensor]:
    """Return values on the model's device."""
    there = next(model.parameters()).device
    return [value.to(there) for value in values]


@torch.no_grad()
def judge(model: nn.Module, inputs: Tensor, labels: Tensor) -> tuple[float, float]:
    """Return accuracy and mean loss on test inputs."""
    inputs, labels = _beside(model, inputs, labels)
    correct, loss = 0, 0.0
    for now, wanted in zip(inputs.split(BATCH), labels.split(BATCH), strict=True):
        scores = model(now)
        correct += int((scores.argmax(1) == wanted).sum())
        loss += float(nn.functional.cross_entropy(scores, wanted, reduction="sum"))
    return correct / len(labels), loss / len(labels)


@torch.no_grad()
def probabilities(model: nn.Module, inputs: Tensor) -> FloatArray:
    """Return the model's class probabilities: one row an input, one column a class."""
    (inputs,) = _beside(model, inputs)
    parts = [nn.functional.softmax(model(now).double(), dim=1) for now in inputs.split(BATCH)]
    likely: FloatArray = torch.cat(parts).cpu().numpy()
    return likely
