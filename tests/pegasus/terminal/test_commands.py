"""What the keys mean."""

from __future__ import annotations

import pytest

from pegasus.terminal.prompt_rules import KeyAction, on_enter, on_interrupt


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("hello", KeyAction.SEND),
        ("", KeyAction.IGNORE),
        ("  \n ", KeyAction.IGNORE),
        ("to be continued \\", KeyAction.NEW_LINE),
        ("a real backslash \\\\", KeyAction.SEND),
        ("three \\\\\\", KeyAction.NEW_LINE),
        ("/exit", KeyAction.LEAVE),
        (" /QUIT ", KeyAction.LEAVE),
        ("/exit now", KeyAction.SEND),
        ("/help", KeyAction.SEND),
        ("/anything else", KeyAction.SEND),
    ],
)
def test_enter(text, action):
    assert on_enter(text, len(text)) is action


def test_enter_inside_the_text_sends_it_whatever_its_end():
    assert on_enter("a path C:\\", 3) is KeyAction.SEND


def test_ctrl_c_clears_a_half_typed_line_also_while_the_agent_thinks():
    assert on_interrupt("half", thinking=False) is KeyAction.CLEAR
    assert on_interrupt("half", thinking=True) is KeyAction.CLEAR


def test_ctrl_c_on_an_empty_line_ends_the_answer_and_once_more_all_work():
    assert on_interrupt("", thinking=True) is KeyAction.INTERRUPT
    assert on_interrupt("", thinking=True, again=True) is KeyAction.STOP
    assert on_interrupt("", thinking=False, again=True) is KeyAction.STOP
    assert on_interrupt("half", thinking=True, again=True) is KeyAction.CLEAR


def test_ctrl_c_on_an_empty_line_tells_how_to_leave():
    assert on_interrupt("", thinking=False) is KeyAction.HINT
