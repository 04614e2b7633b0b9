"""The client."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from batch_norm.task import load_data, new_network, shuffled, train

app = ClientApp()


@app.train()
def train_client(message: Message, context: Context) -> Message:
    """Train on all local data."""
    partition_id = int(context.node_config["partition-id"])
    num_partitions = int(context.node_config["num-partitions"])
    samples = load_data(partition_id, num_partitions)
    network = new_network()
    network.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    config = context.run_config
    loader = shuffled(samples, seed=partition_id)
    loss = train(network, loader, int(config["local-epochs"]), float(config["learning-rate"]))
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(samples)})
    content = RecordDict({"arrays": ArrayRecord(network.state_dict()), "metrics": metrics})
    return Message(content, reply_to=message)
