"""How tasks are shown to people."""

from __future__ import annotations

import pytest

from pegasus.cli.control import print_text, report_failure
from pegasus.cli.work import list_text, replay_text, show_text
from pegasus.terminal import neutralise


@pytest.mark.parametrize("odd", [10**40, -(10**40)])
def test_a_time_that_no_calendar_has_ends_nobody(odd):
    """A log that somebody has edited."""
    task = {"taskId": "t1", "taskType": "general", "state": "idle", "createdAt": odd, "updatedAt": odd}
    assert list_text({"tasks": [task]}).startswith("t1  waiting    general")
    assert "\nState        waiting\n" in show_text(task)
    assert replay_text({"messages": [{"role": "user", "ts": odd, "content": "hi"}]}).endswith("\nhi")


EVIL = "\x1b]0;pwned\x07\u202e"
TASK = {"taskId": "t", "taskType": "general", "state": "completed", "createdAt": 0, "updatedAt": 0, "inputText": EVIL}


@pytest.mark.parametrize("always", [True, False])
def test_text_of_strangers_is_neutralised_before_it_is_printed(capsys, monkeypatch, always):
    """Always for people; what programs read is left alone unless it goes to a terminal."""
    print_text(show_text(TASK), always=always)
    out = capsys.readouterr().out
    assert ("\x1b" in out) is not always
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    print_text(show_text(TASK), always=always)
    assert "\x1b" not in capsys.readouterr().out
    assert "␛]0;pwned␇\n" in neutralise(show_text(TASK)) + "\n"


def test_complaints_are_neutralised(capsys):
    report_failure(f"there is no task {EVIL}")
    assert capsys.readouterr().err == "pegasus: there is no task ␛]0;pwned␇\n"
