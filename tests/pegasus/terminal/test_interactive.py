"""A person's chat, between a conversation and a screen that are both stand-ins."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest
import trio

from pegasus.client import MessageRejected
from pegasus.messages import ChannelInfo, Media, OutboundMessage, Progress, Typing
from pegasus.terminal import chat
from pegasus.terminal.chat import ChatConfig, DaemonGone, InteractiveChat
from pegasus.terminal.prompt_rules import ChatStatus


class FakeScreen:
    """Records the calls of the chat. Its thread runs until `close`, or until the test ends it."""

    def __init__(self, on_message, left):
        self.type = on_message
        self.left = left
        self.calls: list[tuple] = []
        self.ran_in = None
        self.failure: Exception | None = None
        self.shows = True
        self.hangs = False
        self._end = threading.Event()
        self._token = trio.lowlevel.current_trio_token()
        self._news = trio.Event()

    def run(self):
        self.ran_in = threading.current_thread()
        self._end.wait(30)
        if self.failure is not None:
            raise self.failure

    def reply(self, agent, text, shown):
        self._tell(("reply", agent, text))
        if self.shows:
            threading.Thread(target=shown).start()

    def notice(self, text):
        self._tell(("notice", text))

    def status(self, status):
        self._tell(("status", status))

    def resized(self):
        self._tell(("resized",))

    def close(self):
        self._tell(("closed",))
        if not self.hangs:
            self._end.set()

    def end(self, failure=None):
        self.failure = failure
        self._end.set()

    def _tell(self, what):
        self.calls.append(what)
        self._news.set()
        self._news = trio.Event()

    async def wait(self, *what):
        with trio.fail_after(20):
            while what not in self.calls:
                await self._news.wait()

    def of(self, kind):
        return [what[1:] for what in self.calls if what[0] == kind]


class Rig:
    def __init__(self, talk, **config):
        self.talk = talk
        config = ChatConfig(ChannelInfo("cli", "main"), Path("history"), 10_000, **config)
        self.chat = InteractiveChat(talk, self._make, config)
        self.unsent = None

    def _make(self, on_message, left):
        self.screen = FakeScreen(on_message, left)
        return self.screen

    async def run(self):
        self.unsent = await self.chat.run()


@pytest.fixture
async def rig(talk, nursery):
    rig = Rig(talk)
    talk.online()
    nursery.start_soon(rig.run)
    await rig.screen.wait("status", ChatStatus(online=True))
    yield rig
    rig.screen.left()


def accepting(talk):
    talk.on_send = lambda text: talk.accept()


async def test_what_is_typed_is_sent_in_order(rig):
    accepting(rig.talk)
    for text in ("one", "two", "three"):
        rig.screen.type(text)
    await rig.talk.wait_sent(3)
    assert rig.talk.sent == ["one", "two", "three"]


async def test_replies_come_in_the_agents_name(talk, nursery):
    rig = Rig(talk)
    talk.online("Ada")
    talk.reply("Good morning.")
    nursery.start_soon(rig.run)
    await rig.screen.wait("reply", "Ada", "Good morning.")
    rig.screen.left()


async def test_the_next_event_is_asked_for_when_the_reply_was_shown(rig):
    """Asking acknowledges: a reply nobody saw must come again."""
    rig.screen.shows = False
    rig.talk.online()
    rig.talk.reply("one")
    rig.talk.reply("two")
    await rig.screen.wait("reply", "Pegasus", "one")
    await trio.testing.wait_all_tasks_blocked(0.01)
    assert rig.screen.of("reply") == [("Pegasus", "one")]


async def test_files_that_come_along_are_named(rig):
    channel = ChannelInfo("cli", "main")
    rig.talk.online()
    rig.talk.tell(OutboundMessage("Here.", channel, 1, media=(Media("a.png", "image/png", ""),)))
    await rig.screen.wait("reply", "Pegasus", "Here.\n\n[attached: a.png, image/png]")


async def test_a_reply_that_is_being_written_is_shown_in_the_status_line_until_it_is_there(rig):
    rig.talk.online()
    rig.talk.tell(Typing(ChannelInfo("cli", "main"), True))
    rig.talk.tell(Progress(ChannelInfo("cli", "main"), "Once upon"))
    rig.talk.tell(Typing(ChannelInfo("cli", "main"), False))
    await trio.testing.wait_all_tasks_blocked(0.01)
    assert [status.draft for (status,) in rig.screen.of("status")][-2:] == ["Once upon", ""]


async def test_the_first_welcome_greets_and_the_next_do_not(rig):
    rig.talk.offline()
    rig.talk.online()
    rig.talk.reply("x")
    await rig.screen.wait("reply", "Pegasus", "x")
    assert [text for (text,) in rig.screen.of("notice") if text.startswith("Talking with")] == [
        "Talking with Pegasus. /help shows what there is, Ctrl-D leaves, and Pegasus goes on."
    ]


async def test_the_greeting_names_the_model_and_what_leaving_does(talk, nursery):
    rig = Rig(talk, model="anthropic/claude", stops_agent=True)
    talk.online("Ada")
    nursery.start_soon(rig.run)
    await rig.screen.wait("notice", "Talking with Ada (anthropic/claude). /help shows what there is, Ctrl-D stops Ada.")
    rig.screen.left()


async def test_the_status_follows_thinking_and_the_connection(rig):
    rig.talk.online()
    await rig.screen.wait("status", ChatStatus(online=True))
    rig.talk.thinking(True)
    await rig.screen.wait("status", ChatStatus(online=True, thinking=True))
    rig.talk.offline()
    await rig.screen.wait("status", ChatStatus(lost=True))
    rig.screen.type("are you there?")
    await rig.screen.wait("status", ChatStatus(lost=True, unsent=1))


async def test_stop_passes_what_waits_to_be_sent(rig):
    gate = trio.Event()
    send = rig.talk.send

    async def slow(text):
        if text != "/stop":
            await gate.wait()
        return await send(text)

    rig.talk.send = slow
    rig.screen.type("one")
    rig.screen.type("/stop")
    await rig.talk.wait_sent(1)
    assert rig.talk.sent == ["/stop"]
    gate.set()


async def test_a_text_the_gateway_would_not_take_is_refused_with_both_sizes(rig):
    rig.screen.type("x" * 20_000)
    await rig.screen.wait("notice", "Not sent: 20,258 bytes; the gateway takes 10,000 at most.")
    assert rig.talk.sent == []


async def test_more_than_can_wait_is_refused(rig):
    async def stuck(text):
        await trio.sleep_forever()

    rig.talk.send = stuck
    for n in range(chat.MAX_UNSENT + 2):
        rig.screen.type(str(n))
    with trio.fail_after(20):
        while len(rig.screen.of("notice")) < 2:  # the first one greets
            await trio.testing.wait_all_tasks_blocked(0.01)
    assert "waiting to be sent already" in rig.screen.of("notice")[1][0]


async def test_a_message_the_gateway_did_not_take_is_reported(rig):
    rig.talk.online()
    rig.talk.tell(MessageRejected("m-1", "bad_frame", "no such channel"))
    await rig.screen.wait("notice", "Not taken: no such channel (bad_frame)")


async def test_a_window_of_another_size_is_passed_to_the_screen(rig):
    await trio.testing.wait_all_tasks_blocked(0.01)
    os.kill(os.getpid(), signal.SIGWINCH)
    await rig.screen.wait("resized")


# ------------------------------------------------------------------ ends


async def test_leaving_ends_the_chat_and_closes_the_screen(talk):
    rig = Rig(talk)
    talk.online()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.run)
        rig.screen.left()
    assert rig.unsent == 0
    assert rig.screen.calls[-1] == ("closed",)
    assert rig.screen.ran_in is not threading.current_thread()


async def test_what_was_typed_just_before_leaving_is_waited_for(talk):
    rig = Rig(talk)
    talk.online()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.run)
        await rig.screen.wait("status", ChatStatus(online=True))
        rig.screen.type("bye")
        rig.screen.left()
        await talk.wait_sent(1)
        await rig.screen.wait("closed")
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert rig.unsent is None
        talk.accept()
    assert rig.unsent == 0


async def test_what_nobody_accepts_is_not_waited_for_without_end(talk, monkeypatch):
    monkeypatch.setattr(chat, "ACCEPT_SECONDS", 0.01)
    rig = Rig(talk)
    talk.online()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.run)
        await rig.screen.wait("status", ChatStatus(online=True))
        rig.screen.type("bye")
        await talk.wait_sent(1)
        rig.screen.left()
    assert rig.unsent == 1


async def test_without_a_connection_leaving_does_not_wait(talk):
    rig = Rig(talk)
    talk.online()
    talk.offline()
    with trio.fail_after(1.5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rig.run)
            rig.screen.type("into the void")
            await talk.wait_sent(1)
            rig.screen.left()
    assert rig.unsent == 1


async def test_a_refusal_for_good_ends_the_chat(talk):
    rig = Rig(talk)
    talk.online()
    talk.offline("unauthorized: wrong token", None)
    talk.end()
    with pytest.raises(DaemonGone, match="wrong token"):
        await rig.run()
    assert ("closed",) in rig.screen.calls


async def test_a_chat_with_another_process_needs_it_at_the_start(talk):
    rig = Rig(talk)
    talk.offline("no daemon is running")
    with pytest.raises(DaemonGone, match="no daemon is running"):
        await rig.run()
    assert rig.screen.ran_in is None


async def test_a_crash_of_the_screen_is_the_chats(talk):
    rig = Rig(talk)
    talk.online()
    rig.screen.end(RuntimeError("broken glass"))
    with pytest.raises(RuntimeError, match="broken glass"):
        await rig.run()


async def test_a_screen_that_ends_by_itself_ends_the_chat(talk):
    rig = Rig(talk)
    talk.online()
    rig.screen.end()
    await rig.run()
    assert rig.unsent == 0


async def test_cancelled_it_closes_the_screen_and_waits_for_its_thread(talk):
    rig = Rig(talk)
    talk.online()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.run)
        await trio.testing.wait_all_tasks_blocked(0.01)
        nursery.cancel_scope.cancel()
    assert rig.screen.calls[-1] == ("closed",)


async def test_a_screen_that_hangs_is_left_behind_and_the_terminal_restored(talk, monkeypatch):
    restored = []
    monkeypatch.setattr(chat, "CLOSE_SECONDS", 0.01)
    monkeypatch.setattr(chat, "restore_terminal", lambda: restored.append(True))
    rig = Rig(talk)
    talk.online()
    rig.screen.hangs = True
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rig.run)
            await trio.testing.wait_all_tasks_blocked(0.01)
            nursery.cancel_scope.cancel()
    rig.screen.end()
    assert restored == [True]


def test_what_the_screen_tells_after_the_end_is_nobodys(talk):
    async def life():
        rig = Rig(talk)
        talk.online()
        rig.screen.left()
        await rig.run()
        return rig

    rig = trio.run(life)
    rig.screen.type("too late")
    rig.screen.left()
