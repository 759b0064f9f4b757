"""How tasks are shown to people."""

from __future__ import annotations

import pytest

from pegasus.cli.tasks import list_text, replay_text, show_text


@pytest.mark.parametrize("odd", [10**40, -(10**40)])
def test_a_time_that_no_calendar_has_ends_nobody(odd):
    """A log that somebody has edited."""
    task = {"taskId": "t1", "taskType": "general", "state": "idle", "createdAt": odd, "updatedAt": odd}
    assert list_text({"tasks": [task]}).startswith("t1  waiting    general")
    assert "\nState        waiting\n" in show_text(task)
    assert replay_text({"messages": [{"role": "user", "ts": odd, "content": "hi"}]}).endswith("\nhi")
