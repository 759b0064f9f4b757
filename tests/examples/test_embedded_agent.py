"""examples/embedded_agent.py as people start it: a process of its own, without a key."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from tests.examples.conftest import EXAMPLES


def talk(home, *lines):
    environment = {
        name: value for name, value in os.environ.items() if not name.endswith("_API_KEY") and "PEGASUS" not in name
    }
    environment |= {"HOME": str(home), "PEGASUS__MODELS__DEFAULT": "offline/stand-in"}
    program = [sys.executable, str(EXAMPLES / "embedded_agent.py"), str(home / "agent")]
    result = subprocess.run(
        program, input="\n".join(lines), capture_output=True, text=True, timeout=60, check=False, env=environment
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stderr == ""
    return result.stdout


def test_each_person_has_a_chat_of_their_own(tmp_path):
    said = talk(tmp_path, "anna: hello", "ben: /help", "hello")
    for name, text in (("anna", "Hello!"), ("ben", "/stop — "), ("me", "Hello!")):
        assert re.search(rf"^\[{name}\] {text}", said, re.MULTILINE)
    sessions = {path.name for path in (tmp_path / "agent/data/sessions").glob("*.jsonl")}
    assert {"cli%3Aanna.jsonl", "cli%3Ame.jsonl"} <= sessions
