"""Run an experiment's app on Flower's Simulation, with the run-config added to its contexts."""

import tempfile
from collections.abc import Mapping
from typing import Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation


class _Configured(ClientApp):
    """A ClientApp that finds its configuration in every context."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        self._config = dict(config)

    def __call__(self, message: Message, context: Context) -> Message:
        from tidegate.experiments.client_app import app  # noqa: PLC0415 - in the worker only

        return app(message, _with_config(context, self._config))


def run_on_ray(config: Mapping[str, Any], *, num_clients: int) -> None:
    """Play one run; buffers are files, because a client may change its process between rounds."""
    with tempfile.TemporaryDirectory() as buffers:
        whole = {"tidegate-folder": buffers, **config}
        run_simulation(_server_app(whole), _Configured(whole), num_supernodes=num_clients)


def _with_config(context: Context, config: Mapping[str, Any]) -> Context:
    """Return a copy of the context with a run-config; Flower's own cannot be changed."""
    return Context(
        run_id=context.run_id,
        node_id=context.node_id,
        node_config=context.node_config,
        state=context.state,
        run_config={**context.run_config, **config},
    )


def _server_app(config: Mapping[str, Any]) -> ServerApp:
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        from tidegate.experiments.server_app import app as inner  # noqa: PLC0415

        inner(grid, _with_config(context, config))

    return app
