"""`pegasus` and `pegasus chat` on a pseudo-terminal, as a person uses them."""

from __future__ import annotations

import signal

from tests.blackbox.support import HANG, Book, running, say, serving, until
from tests.blackbox.support.terminal import ALT_ENTER, CTRL_C, CTRL_D, ENTER, UP, terminal

PROMPT = "/help shows what there is"
"""Before that line, the terminal is not yet in the hands of the chat."""
STAND_IN = {"models.default": "offline/stand-in"}


async def test_one_command_and_one_talks_to_the_agent(tmp_path):
    """What a newcomer does: pegasus, hello, Ctrl-D."""
    async with serving(tmp_path, Book(), start=False) as daemon:
        daemon.configure()
        async with terminal(daemon.home) as screen:
            await screen.see("pegasus ready ws=")
            before = len(screen.text)
            await screen.see(PROMPT)
            await screen.type("hello", ENTER)
            await screen.see("echo: hello")
            await screen.type(CTRL_D)
            assert await screen.exit() == 0
            assert "warning" not in screen.text[before:]
            assert "Traceback" not in screen.text
        assert not (daemon.home / "run" / "daemon.json").exists()


async def test_the_stand_in_says_at_once_that_it_is_one_and_how_to_get_a_real_model(tmp_path):
    home = tmp_path / "home"
    async with terminal(home, "--set", "gateway.port=0") as screen:
        await screen.see(PROMPT)
        await screen.type("hello", ENTER)
        await screen.see("stand-in")
        await screen.see("ANTHROPIC_API_KEY")
        await screen.type("/exit", ENTER)
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
            await screen.type("/exit", ENTER)
            assert await screen.exit() == 0
        assert [view.question.text for view in book.asked] == ["hello", "two\nlines"]
        assert daemon.alive


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
            await screen.type(CTRL_D)
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


async def test_ctrl_c_while_it_thinks_stops_it(stage, name):
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
        await screen.see("Stopped")


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


async def test_a_signal_leaves_the_terminal_as_it_was(tmp_path):
    home = tmp_path / "home"
    async with running(home, STAND_IN) as daemon:
        await daemon.stop()
    async with terminal(home) as screen:
        before = screen.attributes()
        await screen.see("pegasus ready ws=")
        await until(lambda: screen.attributes() != before, "the prompt")
        screen.process.send_signal(signal.SIGTERM)
        assert await screen.exit() == 0
        assert screen.attributes() == before
        assert screen.raw.rfind(b"\x1b[?25h") >= screen.raw.rfind(b"\x1b[?25l"), "the cursor is hidden"
