"""What the keys mean."""

from __future__ import annotations

import pytest

from pegasus.terminal.keys import Verdict, completions, on_enter, on_interrupt


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("hello", Verdict.SEND),
        ("", Verdict.IGNORE),
        ("  \n ", Verdict.IGNORE),
        ("to be continued \\", Verdict.NEW_LINE),
        ("a real backslash \\\\", Verdict.SEND),
        ("three \\\\\\", Verdict.NEW_LINE),
        ("/exit", Verdict.LEAVE),
        (" /QUIT ", Verdict.LEAVE),
        ("/exit now", Verdict.SEND),
        ("/help", Verdict.SEND),
        ("/anything else", Verdict.SEND),
    ],
)
def test_enter(text, verdict):
    assert on_enter(text, len(text)) is verdict


def test_enter_inside_the_text_sends_it_whatever_its_end():
    assert on_enter("a path C:\\", 3) is Verdict.SEND


def test_ctrl_c_clears_a_half_typed_line_also_while_the_agent_thinks():
    assert on_interrupt("half", thinking=False) is Verdict.CLEAR
    assert on_interrupt("half", thinking=True) is Verdict.CLEAR


def test_ctrl_c_on_an_empty_line_stops_a_thinking_agent():
    assert on_interrupt("", thinking=True) is Verdict.STOP


def test_ctrl_c_on_an_empty_line_tells_how_to_leave():
    assert on_interrupt("", thinking=False) is Verdict.HINT


def test_a_slash_offers_all_commands_and_more_letters_fewer():
    assert [name for name, _ in completions("/")] == [
        "/help",
        "/status",
        "/stop",
        "/new",
        "/model",
        "/usage",
        "/persona",
        "/exit",
    ]
    assert [name for name, _ in completions("/ST")] == ["/status", "/stop"]


@pytest.mark.parametrize("text", ["", "hello", "see /st", "/stop now", "/stop ", "/xyz"])
def test_nothing_is_offered_where_no_command_begins(text):
    assert completions(text) == []
