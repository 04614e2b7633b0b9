"""Returns the model, a copy of its own; with an order, it also admits and gives a receipt."""

from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from tidegate.client.streams import IndexedStream
from tidegate.flower import ClientGate
from tidegate.flower.records import key_of
from tidegate.wire import Order


def make_app() -> ClientApp:
    app = ClientApp()
    gate = ClientGate(app, lambda context: IndexedStream(range(10**6)), buffer_capacity=10)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        sent = message.content.array_records["arrays"]
        arrays = ArrayRecord({name: Array(array.numpy().copy()) for name, array in sent.items()})
        if key_of(Order) in message.content:
            with gate.round(message, context) as now:
                return now.reply(arrays)
        metrics = MetricRecord({"num-examples": 1})
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

    return app


app = make_app()
