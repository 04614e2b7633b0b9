"""The client of an experiment: a gate in front of E full-batch steps on all that is stored."""

import functools
from collections.abc import Sequence
from typing import Any

from flwr.app import ArrayRecord, Context, Message
from flwr.clientapp import ClientApp
from torch import nn

from tidegate._internal.randomness import ALTERED, STREAM, generator
from tidegate.client.streams import Indexed, IndexedStream, Stream
from tidegate.experiments.data import AlteredPartition
from tidegate.experiments.job import Job
from tidegate.experiments.late_samples import late_samples
from tidegate.experiments.ranking import rank
from tidegate.flower import ClientGate
from tidegate.learning.local import batch, device, probabilities, train
from tidegate.learning.models import Shape, new_model
from tidegate.selection import Selection


def _job(context: Context) -> Job:
    return Job.from_config(context.run_config)


def open_stream(context: Context) -> Stream:
    """This node's part of the training data, each sample once."""
    job = _job(context)
    number, count = (int(context.node_config[key]) for key in ("partition-id", "num-partitions"))
    part = job.federated_data.partition(job.partition, number, count, job.seed)
    mine: Indexed = part
    if job.wrong_labels or job.long_tail > 1:
        draw = generator(job.seed, ALTERED, number)
        mine = AlteredPartition(part, job.wrong_labels, job.long_tail, draw)
    if job.stream == "in order":
        return IndexedStream(mine)
    order = generator(job.seed, STREAM, number).permutation(len(mine))
    return IndexedStream(mine, order.tolist())


def buffer_capacity(context: Context) -> int:
    """Slots that this node has."""
    return _job(context).memory(int(context.node_config["partition-id"]))


@functools.lru_cache(maxsize=4)
def _model(name: str, shape: Shape, classes: int, width: int) -> nn.Module:
    """To train in; its weights come with every message."""
    return new_model(name, shape, classes, width).to(device())


def _loaded(message: Message, job: Job, shape: Shape) -> nn.Module:
    """The model that a message brings."""
    model = _model(job.model, shape, job.federated_data.num_classes, job.width)
    model.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    return model


def worth(candidates: list[Any], message: Message, context: Context) -> Sequence[float]:
    """What candidates are worth to the model, by the job's ranking."""
    job = _job(context)
    inputs, labels = batch(candidates)
    likely = probabilities(_loaded(message, job, tuple(inputs.shape[1:])), inputs)
    return rank(job.ranking, likely, labels.numpy(), context)


def selection(context: Context) -> Selection | None:
    """How this node chooses among candidates."""
    return _job(context).selection


gate = ClientGate(
    open_stream, buffer_capacity, worth=worth, selection=selection, supplier=late_samples
)
app = ClientApp(mods=[gate])


@app.train()
def train_client(message: Message, context: Context) -> Message:
    """Admit what the server ordered, train on all that is stored, and answer."""
    job = _job(context)
    with gate.round(message, context) as now:
        if not now.samples:
            return now.reply()
        inputs, labels = batch(now.samples)
        model = _loaded(message, job, tuple(inputs.shape[1:]))
        loss = train(
            model,
            inputs,
            labels,
            local_steps=job.local_steps,
            learning_rate=job.learning_rate,
            momentum=job.momentum,
        )
        return now.reply(ArrayRecord(model.state_dict()), {"train_loss": loss})
