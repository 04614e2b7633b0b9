"""The client: an ordinary ClientApp with a gate in front of its training."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from quickstart.task import LeNet, Partition, train
from tidegate.client.streams import IndexedStream, Stream
from tidegate.flower import ClientGate


def open_stream(context: Context) -> Stream:
    """This node's share of MNIST, one image after another."""
    number, count = (int(context.node_config[key]) for key in ("partition-id", "num-partitions"))
    config = context.run_config
    return IndexedStream(Partition(str(config["data"]), number, count, int(config["seed"])))


def buffer_capacity(context: Context) -> int:
    """Samples that this node stores at most."""
    return int(context.run_config["buffer-capacity"])


gate = ClientGate(open_stream, buffer_capacity)
app = ClientApp(mods=[gate])


@app.train()
def train_client(message: Message, context: Context) -> Message:
    """Admit what the server ordered, train on all that is stored, and answer."""
    samples = list(gate.samples(context))
    model = LeNet()
    model.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    config = context.run_config
    loss = train(model, samples, int(config["local-steps"]), float(config["learning-rate"]))
    arrays = ArrayRecord(model.state_dict())
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(samples)})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)
