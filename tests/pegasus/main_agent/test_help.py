"""/help: a command that is carried out is also shown, to people who type it and on the page about commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from pegasus.intake import COMMANDS
from pegasus.main_agent import describe_commands

PAGE = (Path(__file__).parents[3] / "docs" / "main-agent.md").read_text("utf-8")


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_is_in_help_and_on_the_page(command):
    assert command in describe_commands(COMMANDS), "add its line to _HELP in pegasus/main_agent/chat_commands.py"
    rows = [row for row in PAGE.splitlines() if row.startswith("| ")]
    assert any(f"`{command}" in row for row in rows), "add its row to docs/main-agent.md, section Commands"
