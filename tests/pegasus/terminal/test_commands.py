"""What the keys mean."""

from __future__ import annotations

import pytest

from pegasus.terminal.prompt_rules import KeyAction, completions, on_enter, on_interrupt, unknown_command


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


def test_ctrl_c_on_an_empty_line_stops_a_thinking_agent():
    assert on_interrupt("", thinking=True) is KeyAction.STOP


def test_ctrl_c_on_an_empty_line_tells_how_to_leave():
    assert on_interrupt("", thinking=False) is KeyAction.HINT


def test_a_slash_offers_all_commands_and_more_letters_fewer():
    assert [name for name, _ in completions("/", {})] == [
        "/help",
        "/status",
        "/stop",
        "/new",
        "/model",
        "/usage",
        "/persona",
        "/exit",
    ]
    assert [name for name, _ in completions("/ST", {})] == ["/status", "/stop"]


@pytest.mark.parametrize("text", ["", "hello", "see /st", "/stop now", "/stop ", "/xyz"])
def test_nothing_is_offered_where_no_command_begins(text):
    assert completions(text, {}) == []


def test_skills_are_offered_behind_the_commands():
    skills = {"weather": "ask for the weather", "stop": "never reached", "explain": "say why"}
    assert completions("/e", skills) == [("/exit", "leave the chat (also /quit)"), ("/explain", "say why")]
    assert completions("/w", skills) == [("/weather", "ask for the weather")]
    assert [name for name, _ in completions("/st", skills)] == ["/status", "/stop"]


@pytest.mark.parametrize("text", ["/foo", "/foo bar", "/staus", "/Foo", "/st"])
def test_a_command_that_does_not_exist_is_answered_here(text):
    assert f"there is no command {text.split()[0]}." in unknown_command(text, ["weather"])


def test_a_command_that_is_nearly_one_is_named():
    assert "Did you mean /status?" in unknown_command("/staus", [])
    assert "Did you mean /weather?" in unknown_command("/wether in Rome", ["weather"])


@pytest.mark.parametrize(
    "text",
    ["/stop", "/STATUS", "/quit", "/weather in Rome", "/usr/bin/env is a path", "/", " /foo", "hello", "/?", "// a"],
)
def test_commands_skills_and_everything_else_are_sent(text):
    assert unknown_command(text, ["weather"]) is None
