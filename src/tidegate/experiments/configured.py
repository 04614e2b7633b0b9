"""The apps of an experiment with their run-config inside, for engines that carry none."""

from collections.abc import Mapping
from typing import Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp


class _Configured(ClientApp):
    """A ClientApp that finds its configuration in every context."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        self._config = dict(config)

    def __call__(self, message: Message, context: Context) -> Message:
        from tidegate.experiments.client_app import app  # noqa: PLC0415 - in the worker only

        context.run_config = {**context.run_config, **self._config}
        return app(message, context)


def client_app(config: Mapping[str, Any]) -> ClientApp:
    """The client of an experiment."""
    return _Configured(config)


def server_app(config: Mapping[str, Any]) -> ServerApp:
    """The server of an experiment."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        from tidegate.experiments.server_app import app as inner  # noqa: PLC0415

        context.run_config = {**context.run_config, **config}
        inner(grid, context)

    return app
