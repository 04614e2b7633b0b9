"""The server."""

from tidegate.experiments import server_app

app = server_app.app
