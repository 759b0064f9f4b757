"""The line under the prompt."""

from __future__ import annotations

from pegasus.terminal.prompt_rules import FRAME_SECONDS, ChatStatus, status_line

ONLINE = ChatStatus(online=True)


def test_nothing_is_shown_while_nothing_happens():
    assert status_line(ONLINE, 0.0) == ""


def test_thinking_moves_and_after_a_while_tells_how_long_and_how_to_end_it():
    thinking = ChatStatus(online=True, thinking=True)
    assert status_line(thinking, 0.0) == "⠋ thinking"
    assert status_line(thinking, FRAME_SECONDS * 1.5) == "⠙ thinking"
    assert status_line(thinking, 8.0).endswith("thinking for 8 s, Ctrl-C stops")
    assert status_line(thinking, 125.0).endswith("thinking for 2 min 05 s, Ctrl-C stops")


def test_the_connection_is_told_before_and_after_it_was_there():
    assert status_line(ChatStatus(), 0.0) == "connecting"
    assert status_line(ChatStatus(lost=True), 0.0) == "connection lost, trying again"


def test_messages_that_wait_for_a_connection_are_counted():
    assert status_line(ChatStatus(lost=True, unsent=1), 0.0).endswith("1 message waiting to be sent")
    assert status_line(ChatStatus(lost=True, unsent=2), 0.0).endswith("2 messages waiting to be sent")
    assert status_line(ChatStatus(online=True, unsent=1), 0.0) == ""


def test_thinking_is_not_claimed_while_nobody_knows():
    assert status_line(ChatStatus(lost=True, thinking=True), 0.0) == "connection lost, trying again"


def test_a_hint_stands_before_the_rest():
    assert status_line(ChatStatus(online=True, thinking=True), 0.0, "hint") == "hint · ⠋ thinking"


def test_a_terminal_without_unicode_gets_none():
    line = status_line(ChatStatus(online=True, thinking=True), 0.0, "hint", unicode=False)
    assert line == "hint - thinking"


def test_the_end_of_a_reply_that_is_being_written_is_shown_in_one_line():
    def line(draft):
        return status_line(ChatStatus(online=True, thinking=True, draft=draft), 0.0)

    assert line("Hello,\nyou") == "Hello, you"
    assert line("x" * 100 + " end") == "…" + "x" * 56 + " end"


def test_a_reply_that_is_being_written_commands_no_terminal_either():
    line = status_line(ChatStatus(online=True, thinking=True, draft="\x1b[31mred \u202eesrever"), 0.0)
    assert line == "␛[31mred esrever"
