"""What a chat knows of the agent that it has started or joined."""

from pathlib import Path

import attrs
import pytest

from pegasus.cli.chat import _Chat
from pegasus.host import Home
from pegasus.settings import Settings, TaskSettings
from pegasus.terminal import LeaveRules


@pytest.mark.parametrize(("recovery", "resumes"), [("resume", True), ("fail", False)])
def test_the_settings_decide_what_becomes_of_tasks_when_somebody_leaves(tmp_path: Path, recovery: str, resumes: bool):
    settings = attrs.evolve(Settings(), tasks=TaskSettings(recovery=recovery))
    chat = _Chat(Home(tmp_path), settings, "main")
    assert chat.leave_rules() == LeaveRules(stops_agent=False, others=0, resumes=resumes)
