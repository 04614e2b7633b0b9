"""The client: an ordinary ClientApp with a gate in front of its training."""

from collections.abc import Sequence

from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from tidegate.flower import ClientGate
from tidegate.selection import margin

from .task import Partition, Sample, Weights, loss, probabilities, train, unseen


def load_data(context: Context) -> Partition:
    """Return what this node comes across: a data set, or a stream of files or readings."""
    return Partition(int(context.node_config["partition-id"]), int(context.run_config["seed"]))


def buffer_capacity(context: Context) -> int:
    """Return how many samples this node can store."""
    return int(context.run_config["buffer-capacity"])


def worth(candidates: Sequence[Sample], message: Message, context: Context) -> list[float]:
    """Return what each image is worth before its label is paid for: more if the model is unsure."""
    return list(margin(probabilities(weights(message), candidates)))


def digit(sample: Sample) -> int:
    """Return the group of a sample that was bought: samples of rare groups stay longer."""
    return sample[1]


gate = ClientGate(load_data, buffer_capacity, worth=worth, group=digit)
app = ClientApp(mods=[gate])


@app.train()
def train_client(message: Message, context: Context) -> Message:
    """Train on all stored samples, with those that the server ordered, and reply."""
    samples = list(gate.samples(context))
    steps, rate = (context.run_config[key] for key in ("local-steps", "learning-rate"))
    model, last_loss = train(weights(message), samples, int(steps), float(rate))
    arrays = ArrayRecord({name: Array(values) for name, values in model.items()})
    metrics = MetricRecord({"train_loss": last_loss, "num-examples": len(samples)})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


@app.evaluate()
def evaluate_client(message: Message, context: Context) -> Message:
    """Evaluate the model on images that no client trains on."""
    number, count = (int(context.node_config[key]) for key in ("partition-id", "num-partitions"))
    images = unseen(number, count)
    metrics = MetricRecord({"eval_loss": loss(weights(message), images)})
    metrics["num-examples"] = len(images)
    return Message(RecordDict({"metrics": metrics}), reply_to=message)


def weights(message: Message) -> Weights:
    """Return the model that the server sent."""
    sent = message.content.array_records["arrays"]
    return {name: array.numpy() for name, array in sent.items()}
