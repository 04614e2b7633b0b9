"""Returns the model, a copy of its own; with an order, it also admits and gives a receipt."""

from contextlib import suppress

from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from tidegate.errors import ConfigurationError
from tidegate.flower import ClientGate


def make_app() -> ClientApp:
    gate = ClientGate(lambda context: range(10**6), buffer_capacity=10)
    app = ClientApp(mods=[gate])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        with suppress(ConfigurationError):  # a bare strategy orders nothing
            gate.samples(context)
        sent = message.content.array_records["arrays"]
        arrays = ArrayRecord({name: Array(array.numpy().copy()) for name, array in sent.items()})
        metrics = MetricRecord({"num-examples": 1})
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

    return app


app = make_app()
