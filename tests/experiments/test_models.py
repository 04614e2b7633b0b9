"""Models and local training, against counting and plain gradient descent."""

import numpy as np
import pytest
import torch
from torch import nn

from experiments.tool.models import MODELS, new_model, num_parameters
from experiments.tool.training import BATCH, as_inputs, batch, judge, train

SHAPES = {
    "logistic": (1, 28, 28),
    "lenet": (1, 28, 28),
    "resnet9": (3, 32, 32),
    "sensor_cnn": (6, 128),
}


@pytest.mark.parametrize("name", MODELS)
def test_every_model_scores_every_class_and_belongs_to_its_seed(name: str) -> None:
    shape = SHAPES[name]
    first, same, other = (new_model(name, shape, 7, seed=seed) for seed in (1, 1, 2))
    inputs = torch.rand(3, *shape)
    assert first(inputs).shape == (3, 7)
    assert torch.equal(first(inputs), same(inputs))
    assert not torch.equal(first(inputs), other(inputs))


def test_sizes_are_those_of_the_paper() -> None:
    # 784 * 10 + 10
    assert num_parameters(new_model("logistic", (1, 28, 28), 10)) == 7_850
    # (25*1+1)*6 + (25*6+1)*16 + 401*120 + 121*84 + 85*10
    assert num_parameters(new_model("lenet", (1, 28, 28), 10)) == 61_706
    assert num_parameters(new_model("resnet9", (3, 32, 32), 10)) == pytest.approx(6.6e6, rel=0.01)
    narrow = num_parameters(new_model("resnet9", (3, 32, 32), 10, width=8))
    assert narrow == pytest.approx(6.6e6 / 64, rel=0.02)  # an eighth of the channels


def test_unknown_names_and_widths_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown model 'vgg'; choose from logistic, lenet"):
        new_model("vgg", (1, 28, 28), 10)
    with pytest.raises(ValueError, match="lenet has only one width"):
        new_model("lenet", (1, 28, 28), 10, width=3)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_local_training_is_full_batch_gradient_descent(momentum: float) -> None:
    inputs, labels = torch.rand(12, 5), torch.arange(12) % 3
    model = nn.Linear(5, 3)
    weight, bias = model.weight.detach().clone(), model.bias.detach().clone()
    speed = [torch.zeros_like(weight), torch.zeros_like(bias)]
    for _ in range(4):
        scores = torch.softmax(inputs @ weight.T + bias, dim=1)
        wrong = (scores - nn.functional.one_hot(labels, 3)) / len(labels)
        slopes = wrong.T @ inputs, wrong.sum(0)
        speed = [momentum * old + slope for old, slope in zip(speed, slopes, strict=True)]
        weight, bias = weight - 0.3 * speed[0], bias - 0.3 * speed[1]
    train(model, inputs, labels, local_steps=4, learning_rate=0.3, momentum=momentum)
    torch.testing.assert_close(model.weight.detach(), weight)
    torch.testing.assert_close(model.bias.detach(), bias)


def test_judging_in_parts_is_judging_at_once() -> None:
    count = 2 * BATCH + 17
    inputs, labels = torch.randn(count, 4), torch.randint(3, (count,))
    model = nn.Linear(4, 3)
    scores = model(inputs).detach()
    accuracy, loss = judge(model, inputs, labels)
    assert accuracy == pytest.approx(float((scores.argmax(1) == labels).float().mean()))
    assert loss == pytest.approx(float(nn.functional.cross_entropy(scores, labels)), rel=1e-5)


def test_bytes_become_numbers_up_to_one_and_others_stay() -> None:
    images = np.array([[0, 51, 255]], dtype=np.uint8)
    torch.testing.assert_close(as_inputs(images), torch.tensor([[0.0, 0.2, 1.0]]))
    readings = np.array([[-3.5, 255.0]], dtype=np.float32)
    torch.testing.assert_close(as_inputs(readings), torch.tensor([[-3.5, 255.0]]))
    inputs, labels = batch([(images[0], 4), (images[0], 1)])
    assert inputs.shape == (2, 3)
    assert labels.tolist() == [4, 1]
