"""The client of an experiment: a gate, and E full-batch steps on all stored samples."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import nn

from experiments.tool.job import Job
from experiments.tool.late_samples import late_samples
from experiments.tool.models import Shape, new_model
from experiments.tool.ranking import rank
from experiments.tool.training import batch, device, probabilities, train
from tidegate.client.streams import IndexedStream, Stream
from tidegate.flower import ClientGate
from tidegate.selection import Selection


def _job(context: Context) -> Job:
    return Job.from_config(context.run_config)


def open_stream(context: Context) -> Stream:
    """Return this node's part of the training data, in the job's order."""
    job = _job(context)
    number, count = (int(context.node_config[key]) for key in ("partition-id", "num-partitions"))
    mine = job.federated_data.partition(
        job.partition,
        number,
        count,
        job.seed,
        wrong_labels=job.wrong_labels,
        long_tail=job.long_tail,
    )
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


def train_on(context: Context) -> int:
    """Return on how many samples this node trains in a round."""
    return _job(context).train_on or buffer_capacity(context)


def gate_by(group: Callable[[Any], object] | None) -> ClientGate:
    """Return a gate of this experiment."""
    return ClientGate(
        open_stream,
        buffer_capacity,
        worth=worth,
        selection=selection,
        supplier=late_samples,
        train_on=train_on,
        group=group,
    )


GATES = {True: gate_by(lambda sample: sample[1]), False: gate_by(None)}


def gate(
    message: Message, context: Context, call_next: Callable[[Message, Context], Message]
) -> Message:
    """Apply an order with or without groups, as the job says."""
    return GATES[_job(context).group](message, context, call_next)


app = ClientApp(mods=[gate])


@app.train()
def train_client(message: Message, context: Context) -> Message:
    """Admit the ordered samples, train on all stored ones, and reply."""
    job = _job(context)
    samples = list(GATES[job.group].samples(context))
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
