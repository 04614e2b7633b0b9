"""The client: an ordinary ClientApp with a gate in front of its training."""

from collections.abc import Sequence

from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from tidegate.client.streams import IndexedStream, Stream
from tidegate.flower import ClientGate
from tidegate.selection import Selection, find_ranking

from .task import Partition, Sample, loss, probabilities, train


def partition(part: str, context: Context) -> Partition:
    """This node's part of the ``train`` or the ``test`` data."""
    number, count = (int(context.node_config[key]) for key in ("partition-id", "num-partitions"))
    return Partition(part, number, count, int(context.run_config["seed"]))


def open_stream(context: Context) -> Stream:
    """Return where this node's samples come from, one after another."""
    return IndexedStream(partition("train", context))


def buffer_capacity(context: Context) -> int:
    """Return how many samples this node can store."""
    return int(context.run_config["buffer-capacity"])


def worth(candidates: Sequence[Sample], message: Message, context: Context) -> list[float]:
    """Return what each image is worth to the model, before its label is paid for."""
    sent = message.content.array_records["arrays"]
    likely = probabilities({name: array.numpy() for name, array in sent.items()}, candidates)
    return list(find_ranking(str(context.run_config["ranking"]))(likely))


def selection(context: Context) -> Selection | None:
    """Return how many images to choose from, here all; None to take them as they come."""
    if not context.run_config["ranking"]:
        return None
    return Selection(candidates=20, backlog=1000, seed=int(context.run_config["seed"]))


gate = ClientGate(open_stream, buffer_capacity, worth=worth, selection=selection)
app = ClientApp(mods=[gate])


@app.train()
def train_client(message: Message, context: Context) -> Message:
    """Train on all stored samples, with those that the server ordered, and reply."""
    samples = list(gate.samples(context))
    sent = message.content.array_records["arrays"]
    model = {name: array.numpy() for name, array in sent.items()}
    config = context.run_config
    steps, rate = int(config["local-steps"]), float(config["learning-rate"])
    model, last_loss = train(model, samples, steps, rate)
    arrays = ArrayRecord({name: Array(values) for name, values in model.items()})
    metrics = MetricRecord({"train_loss": last_loss, "num-examples": len(samples)})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


@app.evaluate()
def evaluate_client(message: Message, context: Context) -> Message:
    """Evaluate the model on images that no client trains on."""
    sent = message.content.array_records["arrays"]
    model = {name: array.numpy() for name, array in sent.items()}
    unseen = partition("test", context)
    samples = [unseen[index] for index in range(len(unseen))]
    metrics = MetricRecord({"eval_loss": loss(model, samples), "num-examples": len(samples)})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)
