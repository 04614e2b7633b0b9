"""The client of an experiment: a gate in front of E full-batch steps on all that is stored."""

import functools

from flwr.app import ArrayRecord, Context, Message
from flwr.clientapp import ClientApp
from torch import nn

from tidegate._internal.randomness import STREAM, generator
from tidegate.client.streams import IndexedStream, Stream
from tidegate.experiments.job import Job
from tidegate.flower import ClientGate
from tidegate.learning.local import batch, device, train
from tidegate.learning.models import Shape, new_model


def _job(context: Context) -> Job:
    return Job.from_config(context.run_config)


def open_stream(context: Context) -> Stream:
    """This node's part of the training data, each sample once."""
    job = _job(context)
    number, count = (int(context.node_config[key]) for key in ("partition-id", "num-partitions"))
    mine = job.federated_data.partition(job.partition, number, count, job.seed)
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


gate = ClientGate(open_stream, buffer_capacity)
app = ClientApp(mods=[gate])


@app.train()
def train_client(message: Message, context: Context) -> Message:
    """Admit what the server ordered, train on all that is stored, and answer."""
    job = _job(context)
    with gate.round(message, context) as now:
        if not now.samples:
            return now.reply()
        inputs, labels = batch(now.samples)
        classes = job.federated_data.num_classes
        model = _model(job.model, tuple(inputs.shape[1:]), classes, job.width)
        model.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
        loss = train(
            model,
            inputs,
            labels,
            local_steps=job.local_steps,
            learning_rate=job.learning_rate,
            momentum=job.momentum,
        )
        return now.reply(ArrayRecord(model.state_dict()), {"train_loss": loss})
