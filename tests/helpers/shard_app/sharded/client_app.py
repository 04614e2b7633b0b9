"""A linear model on points of the client's own."""

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from tidegate.client.streams import IndexedStream
from tidegate.flower import ClientGate

CAPACITY = 100


def open_stream(context: Context) -> IndexedStream:
    points = np.random.default_rng(int(context.node_config["partition-id"])).normal(size=(5000, 3))
    return IndexedStream([(point, float(point @ [1.0, -2.0, 0.5])) for point in points])


gate = ClientGate(open_stream, buffer_capacity=CAPACITY)
app = ClientApp(mods=[gate])


@app.train()
def train(message: Message, context: Context) -> Message:
    samples = list(gate.samples(context))
    w = message.content.array_records["arrays"]["w"].numpy()
    points = np.array([point for point, _ in samples])
    targets = np.array([target for _, target in samples])
    for _ in range(5):
        w = w - 0.1 * points.T @ (points @ w - targets) / len(targets)
    return Message(RecordDict({"arrays": ArrayRecord({"w": Array(w)})}), reply_to=message)
