"""The documented lines, added to an app in Flower's layout: with everything the same model."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MOST_ON_THE_CLIENT, MOST_ON_THE_SERVER = 6, 3

LOAD = 'load_data(context.node_config["partition-id"],\n    context.node_config["num-partitions"]'
"""As the apps call it themselves."""
APP = "app = ClientApp()\n"


def gate(samples: str) -> str:
    """What becomes of the line that makes the app; the buffer holds everything."""
    return (
        f"gate = ClientGate(lambda context: {samples}, buffer_capacity=1000)\n"
        "app = ClientApp(mods=[gate])\n"
    )


@dataclass(frozen=True)
class Quickstart:
    """An app, what its client and its server change, and the model that it saves."""

    package: str
    client: Mapping[str, str]
    model: str
    needs: tuple[str, ...] = ()
    changes: Mapping[str, Any] = field(default_factory=dict)
    wrapped: str = "FedAvg("


def edited(text: str, edits: Mapping[str, str]) -> str:
    for old, new in edits.items():
        assert old in text, f"the app has no {old!r}"
        text = text.replace(old, new, 1)
    return text


def changed_lines(before: str, after: str) -> int:
    """Lines that are new or changed."""
    lines = difflib.ndiff(before.splitlines(), after.splitlines())
    return sum(line.startswith("+ ") and line != "+ " for line in lines)


def add_tidegate(folder: Path, app: Quickstart) -> None:
    """The documented lines, counted."""
    client, server = folder / app.package / "client_app.py", folder / app.package / "server_app.py"
    plain = client.read_text("utf-8")
    with_gate = edited(
        plain,
        {
            "from flwr.clientapp import ClientApp\n": "from flwr.clientapp import ClientApp\n"
            "from tidegate.flower import ClientGate\n",
            **app.client,
        },
    )
    assert changed_lines(plain, with_gate) <= MOST_ON_THE_CLIENT
    client.write_text(with_gate, "utf-8")
    plain = server.read_text("utf-8")
    begins = plain.index(f"strategy = {app.wrapped}")
    ends = plain.index("# Start strategy", begins)
    made = plain[begins:ends].rstrip()
    wrapped = made.replace("strategy = ", "strategy = AdmissionControl(", 1)
    ending = ', "tide", budget=1e6, prices=1.0)'
    with_control = plain.replace(made, wrapped + ending).replace(
        "import Grid, ServerApp\n",
        "import Grid, ServerApp\nfrom tidegate.flower import AdmissionControl\n",
    )
    server.write_text(with_control, "utf-8")
    assert changed_lines(plain, with_control) <= MOST_ON_THE_SERVER
