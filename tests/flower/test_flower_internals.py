"""The contract with Flower's private parts: fails with a clear message where they have changed."""

import importlib.metadata
import subprocess
import sys

import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.common.constant import SUPERLINK_NODE_ID

from tidegate.flower import flower_internals
from tidegate.flower.flower_internals import (
    SERVER_NODE_ID,
    SUPPORTED_FLOWER,
    NodeInfo,
    Run,
    act_as_server,
    check_flower,
    name_message,
)

HINT = "Flower's private interface has changed: mend tidegate/flower/flower_internals.py"


def test_this_flower_is_supported() -> None:
    assert importlib.metadata.version("flwr") in SUPPORTED_FLOWER


@pytest.mark.parametrize("version", ["1.39.9", "1.42.0", "2.0.0"])
def test_another_flower_is_refused_by_name(version: str) -> None:
    with pytest.raises(ImportError, match=rf"was tested with flwr<1\.42,>=1\.40, but {version} is"):
        check_flower(version)


def test_the_extras_and_the_check_state_the_same_range() -> None:
    wanted = [
        line
        for line in importlib.metadata.requires("tidegate") or []
        if "extra == 'flower'" in line or 'extra == "flower"' in line
    ]
    assert len(wanted) == 1
    assert str(SUPPORTED_FLOWER) in wanted[0].replace(" ", "")


def test_a_process_can_act_as_the_server_of_a_run() -> None:
    act_as_server(7)
    message = Message(RecordDict({"c": ConfigRecord({"a": 1})}), 2, "train")
    assert (message.metadata.run_id, message.metadata.src_node_id) == (7, SERVER_NODE_ID), HINT
    name_message(message, "m-1")
    assert message.metadata.message_id == "m-1", HINT
    assert Message(RecordDict(), reply_to=message).metadata.reply_to_message_id == "m-1", HINT
    assert SERVER_NODE_ID == SUPERLINK_NODE_ID, HINT


def test_runs_and_nodes_have_what_is_read_from_them() -> None:
    assert Run.create_empty(7).run_id == 7, HINT
    node = NodeInfo(node_id=3)
    assert (node.name, node.public_key) == ("", b""), HINT


@pytest.mark.process
def test_private_parts_are_imported_in_one_module_only() -> None:
    public = {"flwr.app", "flwr.clientapp", "flwr.serverapp", "flwr.serverapp.strategy"}
    code = (
        "import ast, pathlib, tidegate.flower as package\n"
        "for path in pathlib.Path(package.__file__).parent.glob('*.py'):\n"
        "    if path.name == 'flower_internals.py': continue\n"
        "    for node in ast.walk(ast.parse(path.read_text())):\n"
        "        if isinstance(node, ast.ImportFrom) and (node.module or '').startswith('flwr'):\n"
        "            print(node.module)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= public
    assert flower_internals.__name__ == "tidegate.flower.flower_internals"
