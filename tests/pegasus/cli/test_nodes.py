"""`pegasus nodes` and `pegasus drain`, without an agent: what people read, and what they are told where there are no nodes."""

from pegasus.cli import main
from pegasus.cli.nodes import nodes_text

A = {"name": "a", "address": "", "version": "0.1.0", "settings": "5f1c", "state": "up", "leaseLeft": 4.2}
B = A | {"name": "b", "state": "gone", "leaseLeft": -3.0, "chats": 0, "tasks": 0, "owns": []}
A |= {"chats": 12, "tasks": 1, "owns": ["schedule", "channel/telegram"]}


def test_a_node_is_a_line_with_all_that_it_owns():
    assert nodes_text({"here": "a", "nodes": [A, B]}).split("\n") == [
        "a (this one)  up, 12 chats, 1 task, schedule, channel/telegram (0.1.0, lease 4.2 s)",
        "b  gone, 0 chats, 0 tasks (0.1.0, lease ended)",
    ]
    assert nodes_text({"here": "", "nodes": []}) == "No node runs over a database."


def test_with_files_there_are_no_nodes(tmp_path, capsys):
    for command in (["nodes"], ["drain", "a"]):
        assert main(["--home", str(tmp_path), *command]) == 1
        assert "storage.url is not set" in capsys.readouterr().err
