"""The client."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from plain.task import load_data, train

app = ClientApp()


@app.train()
def train_client(message: Message, context: Context) -> Message:
    """Train on all local data."""
    node = context.node_config
    data = load_data(int(node["partition-id"]), int(node["num-partitions"]))
    weights = message.content.array_records["arrays"].to_numpy_ndarrays()
    steps, rate = context.run_config["local-steps"], context.run_config["learning-rate"]
    weights, loss = train(weights, data, int(steps), float(rate))
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(data)})
    content = RecordDict({"arrays": ArrayRecord(weights), "metrics": metrics})
    return Message(content, reply_to=message)
