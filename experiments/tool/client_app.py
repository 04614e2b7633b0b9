"""The client of an experiment: a gate, and E full-batch steps on all stored samples."""

import functools
from collections.abc import Sequence
from typing import Any

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import nn

from experiments.tool.data import AlteredPartition
from experiments.tool.job import Job
from experiments.tool.late_samples import late_samples
from experiments.tool.models import Shape, new_model
from experiments.tool.ranking import rank
from experiments.tool.training import batch, device, probabilities, train
from tidegate._internal.randomness import ALTERED, generator
from tidegate.client.streams import Indexed, IndexedStream, Stream
from tidegate.flower import ClientGate
from tidegate.selection import Selection


def _job(context: Context) -> Job:
    return Job.from_config(context.run_config)


def open_stream(context: Context) -> Stream:
    """Return this node's part of the training data, in the job's order."""
    job = _job(context)
    number, count = (int(context.node_config[key]) for key in ("partition-id", "num-partitions"))
    part = job.federated_data.partition(job.partition, number, count, job.seed)
    mine: Indexed = part
    if job.wrong_labels or job.long_tail > 1:
        draw = generator(job.seed, ALTERED, number)
        mine = AlteredPartition(part, job.wrong_labels, job.long_tail, draw)
    return IndexedStream(mine, job.reading_order(number, len(mine)).tolist())


def buffer_capacity(context: Context) -> int:
    """Return the number of slots of this node."""
    return _job(context).memory(int(context.node_config["partition-id"]))


@functools.lru_cache(maxsize=4)
def _model(name: str, shape: Shape, classes: int, width: int) -> nn.Module:
    """Return a model to train; its weights come with every message."""
    return new_model(name, shape, classes, width).to(device())


def _loaded(message: Message, job: Job, shape: Shape) -> nn.Module:
    """Return the model of a message."""
    model = _model(job.model, shape, job.federated_data.num_classes, job.width)
    model.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    return model


def worth(candidates: Sequence[Any], message: Message, context: Context) -> Sequence[float]:
    """Return the worth of candidates by the job's ranking."""
    job = _job(context)
    inputs, labels = batch(candidates)
    likely = probabilities(_loaded(message, job, tuple(inputs.shape[1:])), inputs)
    return rank(job.ranking, likely, labels.numpy(), context)


def selection(context: Context) -> Selection | None:
    """Return how this node chooses among candidates; None if it does not."""
    return _job(context).selection


gate = ClientGate(
    open_stream, buffer_capacity, worth=worth, selection=selection, supplier=late_samples
)
app = ClientApp(mods=[gate])


@app.train()
def train_client(message: Message, context: Context) -> Message:
    """Admit the ordered samples, train on all stored ones, and reply."""
    job = _job(context)
    samples = list(gate.samples(context))
    inputs, labels = batch(samples)
    model = _loaded(message, job, tuple(inputs.shape[1:]))
    loss = train(
        model,
        inputs,
        labels,
        local_steps=job.local_steps,
        learning_rate=job.learning_rate,
        momentum=job.momentum,
    )
    arrays = ArrayRecord(model.state_dict())
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(samples)})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)
