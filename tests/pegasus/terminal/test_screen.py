"""The prompt: keys go in through a pipe, and what a terminal would show comes out."""

from __future__ import annotations

import errno
import os
import queue
import termios
import threading
from time import monotonic

import attrs
import pytest
from prompt_toolkit.data_structures import Size
from prompt_toolkit.input import create_input, create_pipe_input
from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.output.vt100 import Vt100_Output

from pegasus.terminal.completion import Suggestions
from pegasus.terminal.leaving import Leave, LeaveRules
from pegasus.terminal.prompt import PasteReader
from pegasus.terminal.prompt_rules import ScreenListener
from pegasus.terminal.screen import Screen
from pegasus.terminal.status_line import ChatStatus, Draft, RunningTask

CTRL_C, CTRL_D, CTRL_J, CTRL_R = "\x03", "\x04", "\n", "\x12"
ENTER, ALT_ENTER, UP, TAB = "\r", "\x1b\r", "\x1b[A", "\t"


KNOWN = Suggestions(
    commands={"/help": "what there is", "/status": "what is going on", "/stop": "end it", "/model": "which model"},
    skills={"/weather": "ask for the weather", "/explain": "say why"},
    models=("anthropic/claude-1", "test/model-1"),
    tasks=(("12", "fetch the report"), ("3", "dig")),
)


class Rig:
    """A screen in its thread, the keyboard and the glass on its two sides."""

    def __init__(self, keys, glass, history):
        self.keys = keys
        self.glass = glass
        self.messages: queue.Queue[str] = queue.Queue()
        self.left = threading.Event()
        self.failure: BaseException | None = None
        self.media = []
        self.choices: list[Leave] = []
        self.slashes, self.interrupts = threading.Semaphore(0), threading.Semaphore(0)
        self.rules = LeaveRules()
        self.screen = Screen(
            history,
            ScreenListener(self._take, self._leave, self.slashes.release, on_interrupt=self.interrupts.release),
            colour=False,
            max_bytes=10_000,
            leave_rules=lambda: self.rules,
            input=keys,
            output=Vt100_Output(glass, lambda: Size(24, glass.columns), term="xterm"),
        )
        self.screen.status(ChatStatus(online=True))
        self.screen.suggest(KNOWN)
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        try:
            self.screen.run()
        except BaseException as error:
            self.failure = error

    def _take(self, text, media):
        self.media.append(media)
        self.messages.put(text)

    def _leave(self, leave):
        self.choices.append(leave)
        self.left.set()

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


def test_the_path_of_a_picture_becomes_a_mention_where_a_word_begins(rig, tmp_path):
    picture = tmp_path / "shot.png"
    picture.write_bytes(b"\x89PNG\r\n\x1a\n")
    rig.type(f"\x1b[200~{picture}\x1b[201~", "and x", f"\x1b[200~{picture}\x1b[201~", ENTER)
    assert rig.sent() == f'@"{picture}" and x{picture}'


def test_a_very_long_paste_arrives_whole(rig):
    rig.screen._max_bytes = 1 << 20
    text = "".join(f"line {n}\n" for n in range(5000))
    rig.type("\x1b[200~" + text + "\x1b[201~", ENTER)
    assert rig.sent() == text.rstrip()


def test_a_long_paste_is_a_few_words_on_the_screen_and_whole_in_the_message(rig, tmp_path):
    """It is passed and deleted as one character, and a file that it mentions is not attached. The history has all of it."""
    (tmp_path / "note.txt").write_text("private")
    code, log = f"x = 1  # @{tmp_path}/note.txt\r" * 200, "y" * 1500
    rig.screen._max_bytes = 1 << 20
    rig.type("see ", f"\x1b[200~{code}\x1b[201~", " and ", f"\x1b[200~{log}\x1b[201~")
    rig.glass.wait("› see [pasted 200 lines] and [pasted 1,500 characters]")
    rig.type(f"\x1b[200~{code}\x1b[201~", "\x7f", "!", ENTER)
    rig.glass.wait("› see [pasted 200 lines] and [pasted 1,500 characters]!\n\n›")
    whole = f"see {code.replace(chr(13), chr(10))} and {log}!"
    assert (rig.sent(), rig.media) == (whole, [()])
    rig.type(UP)
    rig.glass.wait("yyy!")
    rig.type(CTRL_C)


def test_the_editor_gets_the_whole_text(rig, tmp_path, monkeypatch):
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\ntr x z < "$1" > "$1.new" && mv "$1.new" "$1"\n')
    editor.chmod(0o755)
    monkeypatch.setenv("VISUAL", str(editor))
    rig.type(f"\x1b[200~{'x' * 2000}\x1b[201~", "\x18\x05")
    rig.glass.wait("zzz")
    rig.type(ENTER)
    assert rig.sent() == "z" * 2000


def test_keys_beside_a_folded_paste_hit_what_they_show(rig):
    rig.type(f"\x1b[200~{'a' * 2000}\x1b[201~", "bc", "\x1b[D", "\x1b[D", "\x1b[D", "0", ENTER)
    assert rig.sent() == "0" + "a" * 2000 + "bc"


def test_a_very_long_paste_is_searched_for_its_end_once_and_not_with_each_piece(rig, monkeypatch):
    rig.screen._max_bytes = 1 << 20
    text = "x" * 400_000
    fed, feed = [], Vt100Parser.feed
    monkeypatch.setattr(Vt100Parser, "feed", lambda self, data: (fed.append(data), feed(self, data)))
    rig.type("\x1b[200~" + text + "\x1b[201~", "yz", ENTER)
    assert rig.sent() == text + "yz"
    assert len([data for data in fed if data]) < 20


class Pieces(PasteReader):
    """A reader of a terminal that gives these pieces."""

    def __init__(self, *pieces):
        self.pipe, write = os.pipe()
        super().__init__(self.pipe, encoding="utf-8")
        self.results = []
        for piece in pieces:
            os.write(write, piece.encode())
            self.results.append(self.read())
        os.close(write)
        self.results.append(self.read())
        os.close(self.pipe)


def test_typed_text_is_read_at_once_and_a_paste_when_it_is_whole():
    assert Pieces("ab", "c\x1b[200~one", " two ", "three", "\x1b[201~d", "e").results == [
        "ab",
        "c\x1b[200~one",
        "",
        "",
        " two three\x1b[201~d",
        "e",
        "",
    ]


@pytest.mark.parametrize("at", range(1, 12))
def test_a_paste_whose_marks_come_in_pieces_is_whole(at):
    begin, end = "\x1b[200~", "\x1b[201~"
    cut = min(at, len(begin) - 1)
    reader = Pieces(begin[:cut], begin[cut:], "text", end[:cut], end[cut:], "typed")
    assert reader.results == [begin[:cut], begin[cut:], "", "", f"text{end}", "typed", ""]


def test_a_paste_behind_a_paste_is_whole_too():
    begin, end = "\x1b[200~", "\x1b[201~"
    reader = Pieces(f"{begin}a{end}b", f"{begin}c", f"d{end}e{begin}f", "g", f"h{end}")
    assert reader.results == [f"{begin}a{end}b", f"{begin}c", f"d{end}e{begin}f", "", f"gh{end}", ""]


def test_a_paste_that_the_end_of_the_terminal_cuts_off_is_not_lost():
    assert Pieces("\x1b[200~one", " two").results == ["\x1b[200~one", "", " two"]


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


# ------------------------------------------------------------------ a reply that is being written


def test_a_draft_grows_above_a_half_typed_line_and_the_reply_takes_its_place(rig):
    rig.type("half a li")
    rig.glass.wait("› half a li")
    rig.screen.draft(Draft("Pegasus", "", "Let me see."))
    rig.glass.wait(lambda shown: shown == "Let me see.\n\n› half a li")
    rig.screen.draft(Draft("Pegasus", "**Once** upon", "Let me see."))
    rig.glass.wait(lambda shown: shown == "Let me see.\n\nPegasus\nOnce upon\n\n› half a li")
    rig.screen.draft(Draft("Pegasus", "**Once** upon\n\n- a ti"))
    rig.glass.wait(lambda shown: shown == "Pegasus\nOnce upon\n\n • a ti\n\n› half a li")
    rig.type("ne")
    rig.screen.reply("Pegasus", "**Once** upon\n\n- a time", lambda: None)
    rig.glass.wait(lambda shown: shown == "Pegasus\nOnce upon\n\n • a time\n\n› half a line")


def test_a_withdrawn_draft_leaves_nothing(rig):
    rig.screen.draft(Draft("Pegasus", "never mind"))
    rig.glass.wait("never mind")
    rig.screen.draft(None)
    rig.glass.wait(lambda shown: shown == "›")


def test_of_a_long_draft_the_newest_lines_are_shown_and_no_more_than_the_window_holds(rig):
    rig.screen.notice("before")
    rig.type("typed")
    rig.screen.draft(Draft("Pegasus", "\n\n".join(f"line {n}" for n in range(50_000))))
    shown = rig.glass.wait("line 49999\n\n› typed").split("\n")
    assert shown[:3] == ["before", "", "…"]
    assert len(shown) == 24 - 1


def test_a_draft_is_drawn_at_most_ten_times_a_second_and_the_newest_wins(rig):
    laid_out = []
    lay_out = rig.screen._layout.draft
    rig.screen._layout.draft = lambda *args: laid_out.append(args[1]) or lay_out(*args)
    for n in range(1000):
        rig.screen.draft(Draft("Pegasus", f"piece {n}"))
    rig.glass.wait("piece 999")
    assert len(laid_out) < 20


def test_a_draft_follows_the_width_of_the_window(rig):
    rig.screen.draft(Draft("Pegasus", "一二三四 five six"))
    rig.glass.wait("一二三四 five six")
    rig.glass.columns = 12
    rig.screen.resized()
    rig.glass.wait("一二三四\nfive six\n\n›")


def test_a_draft_cannot_command_the_terminal_either(rig):
    rig.screen.draft(Draft("Pegasus", "\x1b[31mred \u202eesrever", "\x1b[32mgreen"))
    rig.glass.wait("␛[32mgreen\n\nPegasus\n␛[31mred esrever")


def test_the_time_of_a_running_task_goes_on_by_itself(rig):
    rig.screen.status(ChatStatus(online=True, tasks=(RunningTask(3, "dig", "shell_exec", 2, monotonic() - 8.5),)))
    rig.glass.wait("task 3: dig · shell_exec · step 2 · 0:08")
    rig.glass.wait("task 3: dig · shell_exec · step 2 · 0:09")


def test_ctrl_c_clears_a_half_typed_line(rig):
    rig.type("half", CTRL_C, "whole", ENTER)
    assert rig.sent() == "whole"


@pytest.mark.parametrize("key", [CTRL_C, "\x1b"])
def test_a_key_on_an_empty_line_ends_the_answer_of_a_thinking_agent(rig, key):
    rig.screen.status(ChatStatus(online=True, thinking=True))
    rig.glass.wait("thinking")
    rig.type(key)
    assert rig.interrupts.acquire(timeout=5)
    assert rig.messages.empty()
    rig.type(CTRL_C)
    if key == CTRL_C:
        assert rig.sent() == "/stop"
        rig.type(CTRL_C)
    assert rig.interrupts.acquire(timeout=5), "a third one is a first one again"


def test_esc_leaves_what_is_typed(rig):
    rig.screen.status(ChatStatus(online=True, thinking=True))
    rig.type("half a line")
    rig.glass.wait("› half a line")
    rig.type("\x1b")
    assert rig.interrupts.acquire(timeout=5)
    rig.type(" more", ENTER)
    assert rig.sent() == "half a line more"


def test_esc_of_an_idle_agent_does_nothing(rig):
    rig.type("\x1b")
    rig.type("x", ENTER)
    assert rig.sent() == "x"
    assert not rig.interrupts.acquire(blocking=False)


def test_a_draft_that_is_cut_off_stays_marked_above_the_prompt(rig):
    rig.screen.draft(Draft("Pegasus", "Once upon"))
    rig.glass.wait("Once upon")
    rig.screen.cut("Pegasus", "Once upon")
    rig.glass.wait(lambda shown: shown == "Pegasus\nOnce upon\n(ended here)\n\n›")


def test_ctrl_c_on_an_empty_line_tells_how_to_leave_until_the_next_key(rig):
    rig.screen.status(ChatStatus(online=True))
    rig.type(CTRL_C)
    rig.glass.wait("Ctrl-D or /exit leaves")
    rig.type("x")
    rig.glass.wait(lambda shown: shown == "› x")
    assert rig.messages.empty()


@pytest.mark.parametrize(("tasks", "name"), [((1,), "1"), ((1, 2), "N")])
def test_ctrl_c_beside_a_running_task_tells_how_to_end_it_too(rig, tasks, name):
    rig.screen.status(ChatStatus(online=True, tasks=tuple(RunningTask(number, "dig") for number in tasks)))
    rig.type(CTRL_C)
    rig.glass.wait(f"/stop or /tasks cancel {name}; Ctrl-D leaves")
    assert rig.messages.empty()


@pytest.mark.parametrize("keys", [CTRL_D, "/exit" + ENTER, "/quit" + ENTER])
def test_leaving_erases_the_prompt(rig, keys):
    rig.screen.notice("before")
    rig.type(keys)
    assert rig.left.wait(20)
    rig.ended()
    assert rig.glass.shown == "before"
    assert rig.messages.empty()


def test_ctrl_d_in_a_text_deletes_a_character_and_does_not_leave(rig):
    rig.type("ab\x01", CTRL_D, ENTER)  # Ctrl-A goes to the beginning
    assert rig.sent() == "b"
    assert not rig.left.is_set()


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


# ------------------------------------------------------------------ completion


def test_enter_sends_what_is_typed_while_a_menu_is_open(rig):
    rig.type("/st")
    rig.glass.wait("/status")
    rig.glass.wait("/stop")
    rig.type(ENTER)
    assert rig.sent() == "/st"


@pytest.mark.parametrize("columns", [60, 110])
def test_the_menu_shows_as_much_of_a_description_as_there_are_columns_for(glass, tmp_path, columns):
    glass.columns = columns
    with create_pipe_input() as keys:
        rig = Rig(keys, glass, tmp_path / "history")
        rig.screen.suggest(Suggestions({"/long": "0123456789" * 9, "/other": "short"}, {}, (), ()))
        rig.type("/")
        glass.wait("0123456789" * (9 if columns == 110 else 4))
        glass.wait(lambda shown: ("0123456789" * 5 not in shown) == (columns == 60))
        glass.wait(lambda shown: ("…" in shown) == (columns == 60) and "..." not in shown)
        rig.type(CTRL_C)
        rig.screen.close()
        rig.ended()


def test_tab_adds_what_all_choices_have_in_common_and_then_highlights_the_first(rig):
    rig.type("/s")
    rig.glass.wait("end it")
    rig.type(TAB)
    rig.glass.wait(lambda shown: shown.startswith("› /st\n") and "end it" in shown)
    rig.type(TAB)
    rig.glass.wait(lambda shown: shown.startswith("› /status\n"))
    rig.type(TAB)
    rig.glass.wait(lambda shown: shown.startswith("› /stop\n"))
    rig.type(ENTER)
    assert rig.sent() == "/stop"


def test_tab_never_chooses_to_leave_before_a_skill(rig):
    rig.type("/ex")
    rig.glass.wait("leave the chat")
    rig.type(TAB)
    rig.glass.wait(lambda shown: shown.startswith("› /explain\n"))
    rig.type(ENTER)
    assert rig.sent() == "/explain"
    assert not rig.left.is_set()


def test_models_and_tasks_are_offered_behind_their_commands(rig):
    rig.type("/model cl")
    rig.glass.wait("anthropic/claude-1")
    rig.type(TAB, ENTER)
    assert rig.sent() == "/model anthropic/claude-1"
    rig.type("/tasks show re")
    rig.glass.wait("fetch the report")
    rig.type(TAB, ENTER)
    assert rig.sent() == "/tasks show 12"


def test_the_suggestions_are_brought_up_to_date_when_a_command_begins(rig):
    rig.type("/", "s", "\x7f", "\x7f", "/")
    for _ in range(3):
        assert rig.slashes.acquire(timeout=20)


# ------------------------------------------------------------------ files


@pytest.fixture
def folder(tmp_path, monkeypatch):
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def test_a_mentioned_file_goes_along(rig, folder):
    (folder / "my notes.txt").write_text("remember")
    rig.type('see @"my')
    rig.glass.wait('@"my notes.txt"')
    rig.type(TAB, " please", ENTER)
    assert rig.sent() == 'see @"my notes.txt" please'
    (media,) = rig.media[0]
    assert (media.name, media.mime, media.data) == ("my notes.txt", "text/plain", "cmVtZW1iZXI=")
    rig.glass.wait("[attached: my notes.txt, 8 bytes]")


def test_a_message_with_a_file_that_cannot_be_sent_stays_on_the_prompt(rig, folder):
    rig.type("see @missing.txt", ENTER)
    rig.glass.wait("Not sent: there is no file missing.txt")
    rig.glass.wait(lambda shown: shown.endswith("› see @missing.txt"))
    assert rig.messages.empty()
    (folder / "missing.txt").write_text("here I am")
    rig.type(ENTER)
    assert rig.sent() == "see @missing.txt"


def test_a_file_that_a_message_has_no_room_for_is_refused_with_both_sizes(rig, folder):
    (folder / "long.txt").write_text("x" * 9_000)
    rig.type("@long.txt", ENTER)
    rig.glass.wait("Not sent: long.txt has 9,000 bytes; this message has room\nfor 6,")
    assert rig.messages.empty()


# ------------------------------------------------------------------ leaving while something runs

BUSY = ChatStatus(online=True, tasks=(RunningTask(3, "dig"),))


@pytest.mark.parametrize("keys", [CTRL_D, "/exit" + ENTER])
def test_leaving_asks_what_becomes_of_the_running_work(rig, keys):
    rig.screen.status(BUSY)
    rig.glass.wait("task 3")
    rig.type(keys)
    rig.glass.wait("Still running: task 3 (dig).")
    rig.glass.wait("leave it running; so does Ctrl-D")
    assert not rig.left.is_set()
    rig.type("x", "\x1b[A", ENTER, "l")
    rig.ended()
    assert rig.choices == [Leave.LEAVE]
    assert rig.messages.empty()


@pytest.mark.parametrize("key", ["\x1b", CTRL_C])
def test_staying_is_an_answer_too(rig, key):
    rig.screen.status(BUSY)
    rig.type(CTRL_D)
    rig.glass.wait("Still running")
    rig.type(key)
    rig.glass.wait(lambda shown: "Still running" not in shown)
    rig.type("hello", ENTER)
    assert rig.sent() == "hello"
    assert not rig.left.is_set()


@pytest.mark.parametrize(("key", "choice"), [("l", Leave.KEEP), ("q", Leave.LEAVE), (CTRL_D, Leave.LEAVE)])
def test_a_chat_that_stops_the_agent_says_what_happens(rig, key, choice):
    rig.rules = LeaveRules(stops_agent=True)
    rig.screen.status(BUSY)
    rig.type(CTRL_D)
    rig.glass.wait("leave it running in the background")
    rig.glass.wait("give it up, and stop the agent")
    rig.glass.wait("only stop the agent, as Ctrl-D does; it goes on")
    rig.glass.wait("the next start, but the step under way is not")
    rig.type(key)
    rig.ended()
    assert rig.choices == [choice]


def test_a_chat_that_stops_the_agent_asks_first_who_else_talks_with_it(rig):
    asked = threading.Event()
    rig.screen._listener = attrs.evolve(rig.screen._listener, on_leaving=asked.set)
    rig.rules = LeaveRules(stops_agent=True)
    rig.screen.status(ChatStatus(online=True))
    rig.type(CTRL_D)
    assert asked.wait(20)
    assert not rig.left.is_set()
    rig.screen.leave(1)
    rig.glass.wait("Another chat is connected to this agent.")
    rig.type("l")
    rig.ended()
    assert rig.choices == [Leave.KEEP]


@pytest.mark.parametrize("first", [CTRL_D, "/exit" + ENTER])
def test_a_second_ctrl_d_does_not_wait_for_who_else_talks_with_the_agent(rig, first):
    rig.screen._listener = attrs.evolve(rig.screen._listener, on_leaving=lambda: None)
    rig.rules = LeaveRules(stops_agent=True)
    rig.screen.status(ChatStatus(online=True))
    rig.type(first, CTRL_D)
    rig.ended()
    assert rig.choices == [Leave.LEAVE]


def test_the_screen_stays_until_the_work_has_been_stopped(rig):
    rig.screen.status(BUSY)
    rig.type(CTRL_D)
    rig.glass.wait("Still running")
    rig.type("S")
    assert rig.left.wait(20)
    assert rig.choices == [Leave.STOP]
    rig.screen.reply("Pegasus", "Stopped: dig", lambda: None)
    rig.glass.wait("Stopped: dig")


def test_a_question_about_work_that_has_ended_meanwhile_is_taken_back(rig):
    rig.screen.status(BUSY)
    rig.type(CTRL_D)
    rig.glass.wait("Still running")
    rig.screen.status(ChatStatus(online=True))
    rig.glass.wait("Nothing is running any more; Ctrl-D or /exit leaves")
    rig.type(CTRL_D)
    rig.ended()


def test_the_hint_that_nothing_runs_goes_when_something_runs_again(rig):
    rig.screen.status(BUSY)
    rig.type(CTRL_D)
    rig.glass.wait("Still running")
    rig.screen.status(ChatStatus(online=True))
    rig.glass.wait("Nothing is running any more")
    rig.screen.status(ChatStatus(online=True, thinking=True))
    rig.glass.wait(lambda shown: "Nothing is running" not in shown and "thinking" in shown)


def test_the_question_stays_between_the_answers_to_several_messages(rig):
    rig.screen.status(ChatStatus(online=True, thinking=True, waiting=2))
    rig.type(CTRL_D)
    rig.glass.wait("Still running: the answers to 2 messages.")
    rig.screen.status(ChatStatus(online=True, waiting=1))
    rig.glass.wait("Still running: the answer to your message.")


def test_a_message_that_is_too_large_stays_on_the_prompt(rig):
    rig.screen._max_bytes = 300
    rig.type("x" * 100, ENTER)
    rig.glass.wait("the agent takes 300 at most")
    rig.type("\x7f" * 90, ENTER)
    assert rig.sent() == "x" * 10


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


def test_a_terminal_that_is_gone_before_its_modes_are_set_is_left(glass, tmp_path, monkeypatch):
    left = []
    with create_pipe_input() as keys:

        def gone():
            raise termios.error(errno.EIO, "Input/output error")

        monkeypatch.setattr(keys, "raw_mode", gone)
        output = Vt100_Output(glass, lambda: Size(24, 60), term="xterm")
        Screen(tmp_path / "h", ScreenListener(print, left.append), input=keys, output=output).run()
    assert left == [Leave.LEAVE]


def test_what_goes_wrong_on_the_screen_comes_out_of_run(rig):
    rig.glass.broken = OSError(errno.ENOSPC, "No space left")
    rig.screen.notice("lost")
    rig.ended()
    assert rig.failure is rig.glass.broken
    rig.failure = rig.glass.broken = None


def test_closed_before_it_runs_it_shows_what_it_was_told_and_ends(glass, tmp_path):
    with create_pipe_input() as keys:
        output = Vt100_Output(glass, lambda: Size(24, 60), term="xterm")
        screen = Screen(tmp_path / "h", ScreenListener(print, print), input=keys, output=output)
        screen.notice("the last word")
        screen.close()
        screen.run()
    assert glass.shown == "the last word"


def test_enter_before_the_prompt_and_while_it_is_made_sends_the_line(glass, tmp_path):
    keyboard, terminal = os.openpty()

    class Output(Vt100_Output):
        """An output that is asked for its encoding while the prompt is made, and in that moment somebody types."""

        def encoding(self):
            if typed:
                os.write(keyboard, typed.pop())
            return super().encoding()

    typed, messages = [b"second\r"], queue.Queue()
    with open(terminal) as stdin:
        screen = Screen(
            tmp_path / "h",
            ScreenListener(lambda text, media: messages.put(text), print),
            input=create_input(stdin),
            output=Output(glass, lambda: Size(24, 60), term="xterm"),
        )
        screen.status(ChatStatus(online=True))
        os.write(keyboard, b"first\r")
        thread = threading.Thread(target=screen.run, daemon=True)
        thread.start()
        assert [messages.get(timeout=20) for _ in range(2)] == ["first", "second"]
        screen.close()
        thread.join(20)
    os.close(keyboard)


def test_after_the_end_it_may_still_be_told_things(rig):
    rig.screen.close()
    rig.ended()
    rig.screen.notice("too late")
    rig.screen.status(ChatStatus())
    rig.screen.close()


def test_a_letter_answers_a_question_that_was_on_the_screen_for_a_second(rig, monkeypatch):
    now = [100.0]
    monkeypatch.setattr("pegasus.terminal.screen.monotonic", lambda: now[0])
    rig.screen.question("a-1", "shell_exec", "May task 1 run shell_exec?", may_widen=True, is_new=True)
    rig.glass.wait(lambda shown: "May task 1" in shown)
    now[0] = 102.0
    rig.type("y", ENTER)
    assert rig.sent() == "/approve a-1"
    rig.glass.wait(lambda shown: shown.endswith("› y\n\n›"))


def test_a_letter_that_was_begun_before_the_question_came_answers_nothing(rig, monkeypatch):
    now = [100.0]
    monkeypatch.setattr("pegasus.terminal.screen.monotonic", lambda: now[0])
    rig.type("y")
    rig.glass.wait(lambda shown: shown == "› y")
    rig.screen.question("a-1", "shell_exec", "May task 1 run shell_exec?", may_widen=True, is_new=True)
    rig.glass.wait(lambda shown: "May task 1" in shown)
    now[0] = 105.0
    rig.type(ENTER)
    rig.glass.wait(lambda shown: "came while you were typing" in shown)
    now[0] = 107.0
    rig.type("n", ENTER)
    assert rig.sent() == "/deny a-1"


def test_a_plain_yes_stays_on_the_prompt_until_enter_sends_it(rig):
    rig.screen.question("a-1", "shell_exec", "May task 1 run shell_exec?", may_widen=True, is_new=True)
    rig.type("yes", ENTER)
    rig.glass.wait(lambda shown: "Was that meant for a-1 (shell_exec)?" in shown and shown.endswith("› yes"))
    rig.type(ENTER)
    assert rig.sent() == "yes"


def test_a_letter_is_a_message_when_the_question_is_over(rig):
    rig.screen.question("a-1", "shell_exec", "May task 1 run shell_exec?", may_widen=True, is_new=True)
    rig.screen.question_over("a-1")
    rig.glass.wait(lambda shown: "May task 1" in shown)
    rig.type("y", ENTER)
    assert rig.sent() == "y"
