"""The client."""

from tidegate.experiments import client_app

app = client_app.app
