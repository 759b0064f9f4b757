"""The prompt: keys go in through a pipe, and what a terminal would show comes out."""

from __future__ import annotations

import errno
import queue
import threading

import pytest
from prompt_toolkit.data_structures import Size
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output.vt100 import Vt100_Output

from pegasus.terminal.prompt_rules import ChatStatus
from pegasus.terminal.screen import Screen

CTRL_C, CTRL_D, CTRL_J, CTRL_R = "\x03", "\x04", "\n", "\x12"
ENTER, ALT_ENTER, UP, TAB = "\r", "\x1b\r", "\x1b[A", "\t"


class Rig:
    """A screen in its thread, the keyboard and the glass on its two sides."""

    def __init__(self, keys, glass, history):
        self.keys = keys
        self.glass = glass
        self.messages: queue.Queue[str] = queue.Queue()
        self.left = threading.Event()
        self.failure: BaseException | None = None
        self.screen = Screen(
            history,
            on_message=self.messages.put,
            on_leave=self.left.set,
            colour=False,
            skills=lambda: {"weather": "ask for the weather"},
            input=keys,
            output=Vt100_Output(glass, lambda: Size(24, glass.columns), term="xterm"),
        )
        self.screen.status(ChatStatus(online=True))
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        try:
            self.screen.run()
        except BaseException as error:
            self.failure = error

    def type(self, *keys):
        for key in keys:
            self.keys.send_text(key)

    def sent(self):
        return self.messages.get(timeout=20)

    def ended(self):
        self.thread.join(20)
        assert not self.thread.is_alive()


@pytest.fixture
def rig(glass, tmp_path):
    with create_pipe_input() as keys:
        rig = Rig(keys, glass, tmp_path / "history")
        glass.wait(lambda shown: shown == "›")
        yield rig
        rig.screen.close()
        rig.ended()
    assert not glass.unknown
    if rig.failure is not None:
        raise rig.failure


def test_enter_sends_the_line_and_leaves_it_on_the_screen(rig):
    rig.type("hello", ENTER)
    assert rig.sent() == "hello"
    rig.glass.wait(lambda shown: shown == "› hello\n\n›")


def test_empty_lines_are_not_sent(rig):
    rig.type(ENTER, "   ", ENTER, "hello", ENTER)
    assert rig.sent() == "hello"


@pytest.mark.parametrize("key", [ALT_ENTER, CTRL_J, "\\" + ENTER])
def test_three_keys_make_a_new_line(rig, key):
    rig.type("one", key, "two", ENTER)
    assert rig.sent() == "one\ntwo"


def test_a_pasted_text_keeps_its_lines_and_is_not_sent_by_them(rig):
    rig.type("\x1b[200~one\rtwo\r\nthree\n\x1b[201~", "four", ENTER)
    assert rig.sent() == "one\ntwo\nthree\nfour"


def test_a_very_long_paste_arrives_whole(rig):
    text = "".join(f"line {n}\n" for n in range(5000))
    rig.type("\x1b[200~" + text + "\x1b[201~", ENTER)
    assert rig.sent() == text.rstrip()


def test_a_reply_is_printed_above_a_half_typed_line(rig):
    rig.type("half a li")
    rig.glass.wait("› half a li")
    shown = threading.Event()
    rig.screen.reply("Pegasus", "**Hello** there", shown.set)
    assert shown.wait(20)
    rig.type("ne")
    rig.glass.wait(lambda shown: shown == "Pegasus\nHello there\n\n› half a line")
    rig.type(ENTER)
    assert rig.sent() == "half a line"


def test_a_reply_is_printed_above_lines_that_wrap_and_a_status(rig):
    rig.screen.status(ChatStatus(lost=True))
    rig.type("x" * 100, CTRL_J, "second")
    rig.glass.wait("  connection lost")
    rig.screen.reply("Pegasus", "Hello", lambda: None)
    wrapped = "› " + "x" * 58 + "\n  " + "x" * 42 + "\n  second\n  connection lost, trying again"
    rig.glass.wait(lambda shown: shown == "Pegasus\nHello\n\n" + wrapped)


def test_many_replies_between_keys_lose_no_key_and_no_line(rig):
    for n in range(50):
        rig.screen.reply("Pegasus", f"reply {n}", lambda: None)
        rig.type("abcdefghij"[n % 10])
    rig.type(ENTER)
    assert rig.sent() == "abcdefghij" * 5
    rig.glass.wait("› " + "abcdefghij" * 5)
    shown = rig.glass.wait("reply 49")  # all keys that are there are read at once, ahead of replies told between them
    assert [line for line in shown.split("\n") if line.startswith("reply")] == [f"reply {n}" for n in range(50)]


def test_thinking_is_shown_and_taken_away_again(rig):
    rig.screen.status(ChatStatus(online=True, thinking=True))
    rig.glass.wait("thinking")
    rig.glass.wait("⠙ thinking")  # it moves by itself
    rig.screen.status(ChatStatus(online=True))
    rig.glass.wait(lambda shown: shown == "›")


def test_ctrl_c_clears_a_half_typed_line(rig):
    rig.type("half", CTRL_C, "whole", ENTER)
    assert rig.sent() == "whole"


def test_ctrl_c_on_an_empty_line_stops_a_thinking_agent(rig):
    rig.screen.status(ChatStatus(online=True, thinking=True))
    rig.type(CTRL_C)
    assert rig.sent() == "/stop"


def test_ctrl_c_on_an_empty_line_tells_how_to_leave_until_the_next_key(rig):
    rig.screen.status(ChatStatus(online=True))
    rig.type(CTRL_C)
    rig.glass.wait("Ctrl-D or /exit leaves")
    rig.type("x")
    rig.glass.wait(lambda shown: shown == "› x")
    assert rig.messages.empty()


@pytest.mark.parametrize("keys", [CTRL_D, "/exit" + ENTER, "/quit" + ENTER])
def test_leaving_erases_the_prompt(rig, keys):
    rig.screen.notice("before")
    rig.screen.status(ChatStatus(online=True, thinking=True))
    rig.type(keys)
    assert rig.left.wait(20)
    rig.ended()
    assert rig.glass.shown == "before"
    assert rig.messages.empty()


def test_ctrl_d_in_a_text_deletes_a_character_and_does_not_leave(rig):
    rig.type("ab\x01", CTRL_D, ENTER)  # Ctrl-A goes to the beginning
    assert rig.sent() == "b"
    assert not rig.left.is_set()


def test_a_command_that_does_not_exist_is_not_sent(rig):
    rig.type("/foo", ENTER, "hello", ENTER)
    assert rig.sent() == "hello"
    rig.glass.wait("there is no command /foo")


def test_tab_takes_a_skill(rig):
    rig.type("/wea")
    rig.glass.wait("ask for the weather")
    rig.type(TAB)
    rig.glass.wait("› /weather")
    rig.type(ENTER)
    assert rig.sent() == "/weather"


def test_up_recalls_what_was_said(rig):
    rig.type("first", ENTER, "second", ENTER)
    assert [rig.sent(), rig.sent()] == ["first", "second"]
    rig.glass.wait("› second\n\n›")
    rig.type(UP)
    rig.glass.wait("› second\n\n› second")
    rig.type(UP, ENTER)
    assert rig.sent() == "first"


def test_ctrl_r_searches_what_was_said(rig):
    rig.type("the weather in Rome", ENTER, "hello", ENTER)
    assert rig.sent()
    assert rig.sent()
    rig.glass.wait("› hello\n\n›")
    rig.type(CTRL_R, "weat")
    rig.glass.wait("› the weather in Rome\nsearch: weat")
    rig.type(ENTER, ENTER)
    assert rig.sent() == "the weather in Rome"


def test_history_outlives_the_chat(glass, tmp_path):
    (tmp_path / "history").write_text('"from yesterday"\n')
    with create_pipe_input() as keys:
        rig = Rig(keys, glass, tmp_path / "history")
        glass.wait("›")
        rig.type("x", "\x7f")
        glass.wait(lambda shown: shown == "›")
        rig.type(UP)
        glass.wait("› from yesterday")
        rig.screen.close()
        rig.ended()


def test_a_slash_offers_the_commands_and_tab_takes_one(rig):
    rig.type("/st")
    rig.glass.wait("/status")
    rig.glass.wait("/stop")
    rig.type(TAB)
    rig.glass.wait("› /status")
    rig.type(ENTER)
    assert rig.sent() == "/status"


def test_help_is_asked_of_the_agent_and_shows_the_keys_too(rig):
    rig.type("/help", ENTER)
    assert rig.sent() == "/help"
    rig.glass.wait("Up, Down, Ctrl-R   earlier messages")


def test_what_was_typed_cannot_command_the_terminal_either(rig):
    rig.type("\x1b[200~\x1b[31mred\x1b[201~", ENTER)
    assert rig.sent() == "\x1b[31mred"
    rig.glass.wait("› ␛[31mred")
    assert "\x1b[31m" not in rig.glass.raw


def test_bytes_that_are_no_utf8_are_replaced(rig):
    rig.keys.send_bytes(b"caf\xe9\r")
    assert rig.sent() == "caf\ufffd"


def test_another_width_is_used_once_told(rig):
    rig.type("one two three")
    rig.glass.wait("› one two three")
    rig.glass.columns = 10
    rig.screen.resized()
    rig.glass.wait("› one two\n  three")


def test_a_terminal_that_is_gone_is_left(rig):
    rig.keys.close()
    assert rig.left.wait(20)
    rig.ended()


def test_a_terminal_that_cannot_be_written_to_any_more_is_left(rig):
    rig.glass.broken = OSError(errno.EIO, "Input/output error")
    rig.screen.notice("lost")
    assert rig.left.wait(20)
    rig.ended()
    rig.glass.broken = None


def test_what_goes_wrong_on_the_screen_comes_out_of_run(rig):
    rig.glass.broken = OSError(errno.ENOSPC, "No space left")
    rig.screen.notice("lost")
    rig.ended()
    assert rig.failure is rig.glass.broken
    rig.failure = rig.glass.broken = None


def test_closed_before_it_runs_it_shows_what_it_was_told_and_ends(glass, tmp_path):
    with create_pipe_input() as keys:
        output = Vt100_Output(glass, lambda: Size(24, 60), term="xterm")
        screen = Screen(tmp_path / "h", on_message=print, on_leave=print, input=keys, output=output)
        screen.notice("the last word")
        screen.close()
        screen.run()
    assert glass.shown == "the last word"


def test_after_the_end_it_may_still_be_told_things(rig):
    rig.screen.close()
    rig.ended()
    rig.screen.notice("too late")
    rig.screen.status(ChatStatus())
    rig.screen.close()
