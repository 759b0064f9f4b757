"""`pegasus` and `pegasus chat` on a pseudo-terminal, as a person uses them."""

from __future__ import annotations

import json
import os
import signal
from contextlib import asynccontextmanager

import pytest
import trio

from tests.blackbox.support import HANG, Book, Call, Thought, running, say, serving, until
from tests.blackbox.support.terminal import ALT_ENTER, CTRL_C, CTRL_D, ENTER, UP, terminal
from tests.blackbox.support.work import Effects, Office, act, answer

PROMPT = "/help shows what there is"
"""Before that line, the terminal is not yet in the hands of the chat."""
LEAVE = (CTRL_D, CTRL_D)
"""Leaves whether or not the agent is still at the end of its turn, when the first one asks."""
STAND_IN = {"models.default": "offline/stand-in"}


@asynccontextmanager
async def started(tmp_path, book=None):
    """Yield a daemon, and the terminal that has started it and shows its prompt."""
    async with serving(tmp_path, book or Book(), start=False) as daemon:
        daemon.configure()
        async with terminal(daemon.home) as screen:
            await screen.see(PROMPT)
            yield daemon, screen


async def test_one_command_and_one_talks_to_the_agent(tmp_path):
    """What a newcomer does: pegasus, hello, Ctrl-D."""
    async with started(tmp_path) as (daemon, screen):
        for line in ("Talking with Pegasus (test/model-1)", "Ctrl-D stops Pegasus"):
            assert line in screen.text
        await screen.type("hello", ENTER)
        await screen.see("echo: hello")
        await screen.type(*LEAVE)
        await screen.see("Stopping Pegasus")
        assert await screen.exit() == 0
        for line in ("warning", "Traceback", "pegasus ready"):
            assert line not in screen.text
        assert not (daemon.home / "run" / "daemon.json").exists()


async def test_the_stand_in_says_at_once_that_it_is_one_and_how_to_get_a_real_model(tmp_path):
    home = tmp_path / "home"
    async with terminal(home, "--set", "gateway.port=0", "--set", "http.port=0") as screen:
        await screen.see(PROMPT)
        await screen.type("hello", ENTER)
        await screen.see("stand-in")
        await screen.see("ANTHROPIC_API_KEY")
        await screen.type("/exit", ENTER, CTRL_D)
        assert await screen.exit() == 0


async def test_chat_with_a_running_daemon(stage, name):
    async with stage.play(book := Book({"hello": say("**bold** and `code`")}), name) as daemon:
        async with terminal(daemon.home, "chat", "--channel", name) as screen:
            await screen.see(PROMPT)
            await screen.type("hello", ENTER)
            await screen.see("bold and code")
            await screen.type("two", ALT_ENTER, "lines", ENTER)
            await screen.see("echo: two")
            await screen.see("lines")
            await screen.type("/exit", ENTER, CTRL_D)
            assert await screen.exit() == 0
        assert [view.question.text for view in book.asked] == ["hello", "two\nlines"]
        assert daemon.alive


async def test_a_text_that_is_too_large_is_not_sent_and_the_chat_goes_on(tmp_path):
    async with serving(tmp_path, book := Book(), {"gateway.max_frame_bytes": 4096}) as daemon:
        async with terminal(daemon.home, "chat") as screen:
            await screen.see(PROMPT)
            await screen.type("many words " * 500, ENTER)
            await screen.see("Not sent:")
            await screen.see("the agent takes 4,096 at most")
            await screen.type(CTRL_C)  # the text is still on the prompt
            await screen.type("hello", ENTER)
            await screen.see("echo: hello")
            await screen.type("/exit", ENTER, CTRL_D)
            assert await screen.exit() == 0
        assert [view.question.text for view in book.asked] == ["hello"]


async def test_a_draft_grows_a_menu_offers_skills_and_a_file_goes_along(stage, name, tmp_path):
    (tmp_path / "my notes.txt").write_text("buy milk")
    text = "**First words** of it, in the middle a little more, and the end."
    call = Call("reply", {"channelId": name, "text": text})
    slow = Thought(calls=(call,), pieces=20, hang_after=18, go_on=trio.Event())
    async with (
        stage.play(book := Book({"tell me": slow}), name) as daemon,
        terminal(daemon.home, "chat", "--channel", name) as screen,
    ):
        await screen.see(PROMPT)
        await screen.type("tell me", ENTER)
        await screen.see("First words")
        assert "the end" not in screen.text
        slow.go_on.set()
        await screen.see("the end.")
        await screen.type("/expl")
        await screen.see("/explain")
        await screen.type(CTRL_C, f'see @"{tmp_path}/my')
        await screen.see(' notes.txt"')
        await screen.type("\t")
        await screen.see(' notes.txt"')
        await screen.type(ENTER)
        await screen.see("[attached: my notes.txt, 8 bytes]")
        await screen.see("echo: see")
        assert "buy milk" in book.asked[-1].newest
        await screen.type("/staus", ENTER)
        await screen.see("Did you mean /status?")


async def test_a_reply_that_arrives_while_one_types_does_not_garble_the_line(stage, name):
    async with stage.play(book := Book(), name) as daemon, daemon.client("cli", name) as other:
        async with terminal(daemon.home, "chat", "--channel", name) as screen:
            await screen.see(PROMPT)
            await screen.type("first", ENTER)
            await screen.see("echo: first")
            await screen.type("half a sent")
            await screen.see("half a sent")
            await other.say("from elsewhere")
            await screen.see("echo: from elsewhere")
            await screen.see("half a sent")
            await screen.type("ence", ENTER)
            await screen.see("echo: half a sentence")
        assert book.asked[-1].question.text == "half a sentence"


async def test_history_of_the_time_before(stage, name):
    async with stage.play(book := Book(), name) as daemon:
        async with terminal(daemon.home, "chat", "--channel", name) as screen:
            await screen.see(PROMPT)
            await screen.type("remember this line", ENTER)
            await screen.see("echo: remember this line")
            await screen.type(*LEAVE)
            assert await screen.exit() == 0
        async with terminal(daemon.home, "chat", "--channel", name) as screen:
            await screen.see(PROMPT)
            await screen.type("x", ENTER)
            await screen.see("echo: x")
            await screen.type(UP, UP, ENTER)
            await screen.see("echo: remember this line")
        assert [view.question.text for view in book.asked] == ["remember this line", "x", "remember this line"]


async def test_escape_sequences_in_a_reply_are_not_obeyed(stage, name):
    evil = "\x1b]0;pwned\x07 \x1b[31;5mblink\x1b[2J \x9b2J done"
    async with (
        stage.play(Book({"hello": say(evil)}), name) as daemon,
        terminal(daemon.home, "chat", "--channel", name) as screen,
    ):
        await screen.see(PROMPT)
        await screen.type("hello", ENTER)
        await screen.see("done")
        for sequence in (b"\x1b]0;pwned", b"\x1b[31;5m", b"\xc2\x9b2J"):
            assert sequence not in screen.raw


async def test_ctrl_c_while_it_thinks_ends_the_answer(stage, name):
    async with (
        stage.play(book := Book({"a long thought": HANG}), name) as daemon,
        terminal(daemon.home, "chat", "--channel", name) as screen,
    ):
        await screen.see(PROMPT)
        await screen.type("a long thought", ENTER)
        await book.reached(1)
        await screen.see("thinking")
        await screen.type(CTRL_C)
        await book.abandoned()
        await screen.see("Ended the answer to “a long thought”")


async def test_chat_goes_on_when_the_daemon_comes_back(stage, name):
    async with stage.play(book := Book(), name) as daemon, terminal(daemon.home, "chat", "--channel", name) as screen:
        await screen.see(PROMPT)
        await screen.type("one", ENTER)
        await screen.see("echo: one")
        daemon.kill()
        await screen.type("two", ENTER)
        await daemon.start()
        await screen.see("echo: two", 25)
        assert [view.question.text for view in book.asked] == ["one", "two"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_stops_both_and_leaves_the_terminal_as_it_was(tmp_path, number):
    home = tmp_path / "home"
    async with running(home, STAND_IN) as daemon:
        await daemon.stop()
    async with terminal(home) as screen:
        before = screen.attributes()
        await screen.see(PROMPT)
        await until(lambda: screen.attributes() != before, "the prompt")
        pid = daemon_pid(home)
        screen.process.send_signal(number)
        assert await screen.exit() == 0
        assert not is_running(pid)
        assert screen.attributes() == before
        assert screen.raw.rfind(b"\x1b[?25h") >= screen.raw.rfind(b"\x1b[?25l"), "the cursor is hidden"


# ------------------------------------------------------------------ the daemon that the chat has started


def daemon_pid(home):
    return json.loads((home / "run" / "daemon.json").read_text())["pid"]


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] != "Z"


async def test_a_killed_chat_leaves_the_agent_running_and_the_next_one_joins_it(tmp_path):
    async with started(tmp_path) as (daemon, first):
        pid = daemon_pid(daemon.home)
        first.process.kill()
        try:
            async with terminal(daemon.home) as screen:
                await screen.see(PROMPT)
                await screen.see("Ctrl-D leaves, and Pegasus goes on")
                await screen.type("hello", ENTER)
                await screen.see("echo: hello")
                await screen.type(*LEAVE)
                assert await screen.exit() == 0
            assert daemon_pid(daemon.home) == pid
            assert is_running(pid)
        finally:
            os.kill(pid, signal.SIGTERM)
            await until(lambda: not is_running(pid), "the end of the daemon")


async def test_a_daemon_that_dies_is_told_and_its_exit_code_is_the_chats(tmp_path):
    async with started(tmp_path) as (daemon, screen):
        os.kill(daemon_pid(daemon.home), signal.SIGKILL)
        await screen.see("the agent has ended with exit code 137")
        await screen.type("is anybody there?", ENTER)
        assert await screen.exit(20) == 137
        await screen.see("it did not come back; pegasus --home")
        await screen.see("1 message was not sent")
        await screen.see("is anybody there?")
        assert json.loads((daemon.home / "run" / "history").read_text()) == "is anybody there?"


async def test_whoever_leaves_after_the_daemon_has_died_is_not_told_that_it_goes_on(tmp_path):
    async with started(tmp_path) as (daemon, screen):
        os.kill(daemon_pid(daemon.home), signal.SIGKILL)
        await screen.see("the agent has ended with exit code 137")
        await screen.type(*LEAVE)
        await screen.see("Pegasus does not run; pegasus --home")
        await screen.see("starts it again, and tasks that were running go on")


async def test_a_daemon_that_comes_back_is_joined(tmp_path):
    async with started(tmp_path) as (daemon, screen):
        os.kill(daemon_pid(daemon.home), signal.SIGKILL)
        await screen.see("the agent has ended")
        await daemon.start()
        await screen.type("hello", ENTER)
        await screen.see("echo: hello", 25)
        await screen.type(*LEAVE)
        assert await screen.exit() == 0
        assert daemon.alive


@asynccontextmanager
async def digging(tmp_path, command):
    """Yield a daemon, and the terminal that has started it and its task 1: this shell command, and then the answer "dug it all"."""
    work = Effects(tmp_path)
    book = Office({"dig": [act(work.shell("dug", command)), answer("dug it all")]})
    async with started(tmp_path, book) as (daemon, screen):
        await screen.type("do dig", ENTER)
        await work.happened("dug")
        await screen.see("task 1: dig")
        await screen.type("hello", ENTER)  # its answer says that no answer to the message before is to come
        await screen.see("echo: hello")
        yield daemon, screen


async def test_running_tasks_are_named_when_one_leaves_and_go_on_at_the_next_start(tmp_path):
    async with digging(tmp_path, "sleep 3") as (daemon, screen):
        await screen.type(CTRL_D)
        await screen.see("Still running: task 1 (dig")
        await screen.see("it goes on at the next start")
        await screen.type("q")
        await screen.see("1 task is running; it goes on at the next start, but the step under way is not repeated.")
        assert await screen.exit(20) == 0
        async with terminal(daemon.home) as screen:
            await screen.see("dug it all")
            await screen.type(*LEAVE)
            assert await screen.exit(20) == 0


async def test_one_may_leave_an_agent_that_works_running_and_stop_its_work_later(tmp_path):
    """With a joined chat in between: the agent that `pegasus` has started goes on without its terminal."""
    async with digging(tmp_path, "sleep 30") as (daemon, screen):
        await screen.type("/exit", ENTER)
        await screen.see("running in the background")
        pid = daemon_pid(daemon.home)
        await screen.type("l")
        assert await screen.exit(20) == 0
        await screen.see("Pegasus goes on in the background.")
        await screen.see(f"`kill {pid}` ends it")
        try:
            assert is_running(pid)
            async with terminal(daemon.home) as screen:
                await screen.see("Ctrl-D leaves, and Pegasus goes on")
                await screen.see("task 1: dig")
                await screen.type(CTRL_D)
                await screen.see("stop it and leave")
                await screen.type("s")
                await screen.see("Stopped:")
                assert await screen.exit(20) == 0
                await screen.see("Pegasus goes on;")
            assert is_running(pid)
        finally:
            os.kill(pid, signal.SIGTERM)
            await until(lambda: not is_running(pid), "the end of the daemon")


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("[gateway]\nprot = 1\n", 78, "gateway.prot"),
        ('[gateway]\nhost = "192.0.2.1"\nallow_remote = true\n', 1, "cannot listen"),
    ],
)
async def test_a_daemon_that_cannot_start_says_why(tmp_path, text, code, words):
    home = tmp_path / "home"
    home.mkdir()
    (home / "pegasus.toml").write_text(text)
    async with terminal(home) as screen:
        await screen.see(words)
        assert await screen.exit() == code
