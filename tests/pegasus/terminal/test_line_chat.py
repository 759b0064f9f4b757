"""A chat for pipes, in virtual time."""

from __future__ import annotations

import os

import pytest
import trio

from pegasus.client import MessageAccepted, MessageRejected, Offline
from pegasus.messages import ChannelInfo, OutboundMessage, Typing
from pegasus.terminal.line_chat import DaemonGone, InputLines, LineChat
from pegasus.terminal.turn_watch import AWAY_SECONDS, CHECK_SECONDS, TurnWatch

CHANNEL = ChannelInfo("cli", "main")
BEGIN, END = Typing(CHANNEL, True), Typing(CHANNEL, False)
ACCEPTED = MessageAccepted("m-1")
ANSWER = OutboundMessage("answer", CHANNEL, 1)


# ------------------------------------------------------------------ turns


@pytest.mark.parametrize(
    ("text", "events", "over"),
    [
        ("hello", [], False),
        ("hello", [ACCEPTED], False),
        ("hello", [ACCEPTED, BEGIN], False),
        ("hello", [ACCEPTED, BEGIN, ANSWER], False),
        ("hello", [ACCEPTED, BEGIN, ANSWER, END], True),
        ("hello", [ACCEPTED, BEGIN, END], True),
        ("hello", [BEGIN, ACCEPTED, END], True),
        ("hello", [BEGIN, END], False),
        ("hello", [BEGIN, END, ACCEPTED], True),
        ("hello", [ACCEPTED, ANSWER], False),
        ("hello", [ACCEPTED, END], False),
        ("hello", [MessageRejected("m-1", "bad_frame", "no")], True),
        ("/status", [ACCEPTED], False),
        ("/status", [ACCEPTED, ANSWER], True),
        ("/HELP me", [ACCEPTED, ANSWER], True),
        ("/status", [ANSWER, ACCEPTED], True),
        ("/status", [BEGIN, ACCEPTED, ANSWER], False),
        ("/new", [ACCEPTED, ANSWER], False),
        ("/new", [ACCEPTED, BEGIN, ANSWER, END], True),
        ("hello", [ACCEPTED, BEGIN, Offline("x", 1.0)], False),
    ],
)
async def test_when_a_turn_is_over(talk, autojump_clock, text, events, over):
    watch = TurnWatch(talk)
    await watch.send(text)
    talk.tell(*events)
    for _ in events:
        await watch.next_event()
    assert watch.is_over is over


@pytest.mark.parametrize("work", [{"waiting": 1, "seq": 1}, {"waiting": 0, "seq": 2}])
async def test_a_turn_without_signs_is_over_when_nothing_waits_and_all_replies_have_come(talk, autojump_clock, work):
    talk.answers["conversation"] = {"tasks": [], **work}
    watch = TurnWatch(talk)
    await watch.send("hello")
    talk.tell(ACCEPTED, ANSWER)
    with trio.move_on_after(100):
        while not watch.is_over:
            await watch.next_event()
    assert not watch.is_over
    talk.answers["conversation"] = {"tasks": [], "waiting": 0, "seq": 1}
    assert await watch.next_event() is None
    assert watch.is_over


# ------------------------------------------------------------------ the chat


class Rig:
    """A LineChat with what it wrote and reported."""

    def __init__(self, talk):
        self.talk = talk
        self.out: list[str] = []
        self.problems: list[str] = []
        self.broken = False
        self.end = None

    async def write(self, text):
        await trio.lowlevel.checkpoint()
        if self.broken:
            raise BrokenPipeError
        self.out.append(text)

    async def run(self, *lines, most=1000):
        return await LineChat(self.talk, self.write, self.problems.append, max_frame_bytes=most).run(
            Each(lines, self.end)
        )


class Each:
    """The lines, one after the other; then `end` is waited for, if one is given."""

    def __init__(self, lines, end=None):
        self._lines = iter(lines)
        self._end = end

    def __aiter__(self):
        return self

    async def __anext__(self):
        await trio.lowlevel.checkpoint()
        for line in self._lines:
            return line
        if self._end is not None:
            await self._end.wait()
        raise StopAsyncIteration


@pytest.fixture
def rig(talk):
    talk.online()
    return Rig(talk)


def answering(talk, *, silent=False):
    def answer(text):
        talk.accept()
        talk.thinking(True)
        if not silent:
            talk.reply(f"You said {text}")
        talk.thinking(False)

    talk.on_send = answer


async def test_each_line_is_a_message_and_each_reply_a_line(rig, autojump_clock):
    answering(rig.talk)
    assert await rig.run("one", "two") == 0
    assert rig.talk.sent == ["one", "two"]
    assert rig.out == ["You said one\n", "You said two\n"]


async def test_a_turn_that_ends_in_silence_is_a_turn(rig, autojump_clock):
    answering(rig.talk, silent=True)
    assert await rig.run("one", "two") == 0
    assert rig.out == []
    assert rig.talk.sent == ["one", "two"]


async def test_a_message_waits_for_the_end_of_the_turn_before(rig, autojump_clock):
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.run, "one", "two")
        await rig.talk.wait_sent(1)
        rig.talk.accept()
        rig.talk.thinking(True)
        rig.talk.reply("more to come")
        await trio.sleep(3600)
        assert rig.talk.sent == ["one"]
        rig.talk.thinking(False)
        await rig.talk.wait_sent(2)
        nursery.cancel_scope.cancel()


async def test_empty_lines_are_no_messages(rig, autojump_clock):
    answering(rig.talk)
    assert await rig.run("", "  ", "one") == 0
    assert rig.talk.sent == ["one"]


async def test_exit_ends_the_input(rig, autojump_clock):
    answering(rig.talk)
    assert await rig.run("one", "/exit", "two") == 0
    assert rig.talk.sent == ["one"]


async def test_a_reply_between_the_turns_is_written_when_it_comes(rig, autojump_clock):
    rig.end = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.run)
        rig.talk.reply("by the way")
        await trio.testing.wait_all_tasks_blocked()
        assert rig.out == ["by the way\n"]
        rig.end.set()


async def test_a_line_the_gateway_would_not_take_is_not_sent_and_is_reported(rig, autojump_clock):
    answering(rig.talk)
    assert await rig.run("x" * 5000, "one", most=3000) == 1
    assert rig.talk.sent == ["one"]
    assert len(rig.problems) == 1
    assert rig.problems[0].startswith("line 1 was not taken")


async def test_a_line_the_gateway_did_not_take_is_reported_and_the_rest_goes_on(rig, autojump_clock):
    def refuse_first(text):
        if text == "one":
            rig.talk.tell(MessageRejected("m-1", "bad_frame", "not like this"))
        else:
            rig.talk.accept()
            rig.talk.thinking(True)
            rig.talk.thinking(False)

    rig.talk.on_send = refuse_first
    assert await rig.run("one", "two") == 1
    assert rig.problems == ["line 1 was not taken: not like this"]
    assert rig.talk.sent == ["one", "two"]


async def test_a_reader_that_left_ends_the_chat_quietly(rig, autojump_clock):
    answering(rig.talk)
    rig.broken = True
    assert await rig.run("one", "two") == 0
    assert rig.talk.sent == ["one"]
    assert rig.problems == []


async def test_without_a_daemon_nothing_is_read(talk, autojump_clock):
    talk.offline("no agent is running")
    rig = Rig(talk)
    with pytest.raises(DaemonGone, match="no agent is running"):
        await rig.run("one")
    assert talk.sent == []


async def test_a_wrong_token_later_ends_the_chat(rig, autojump_clock):
    rig.talk.on_send = lambda text: rig.talk.offline("unauthorized: wrong token", None)
    with pytest.raises(DaemonGone, match="wrong token"):
        await rig.run("one")


async def test_a_daemon_that_stays_away_ends_the_chat(rig, autojump_clock):
    rig.talk.on_send = lambda text: rig.talk.offline("closed", 1.0)
    start = trio.current_time()
    with pytest.raises(DaemonGone, match="has not come back"):
        await rig.run("one")
    assert trio.current_time() - start == pytest.approx(AWAY_SECONDS)


async def test_a_line_that_was_not_sent_is_named_when_the_chat_gives_up(rig, autojump_clock):
    rig.talk.on_send = lambda text: rig.talk.offline("closed", 1.0)
    with pytest.raises(DaemonGone):
        await rig.run("one", "two")
    assert rig.problems == ["line 1 was not sent, nor any line after it: one"]


@pytest.mark.parametrize("accepted", [False, True])
async def test_lines_that_have_come_and_were_not_sent_are_counted(rig, autojump_clock, accepted):
    reader, writer = os.pipe()
    os.write(writer, b"one\ntwo\n\nthree\nfo")
    lines = InputLines(reader, longest=1000)

    def leave(text):
        if accepted:
            rig.talk.accept()
        rig.talk.offline("closed", 1.0)

    rig.talk.on_send = leave
    chat = LineChat(rig.talk, rig.write, rig.problems.append, max_frame_bytes=1000, count_rest=lines.count_rest)
    with pytest.raises(DaemonGone):
        await chat.run(lines)
    expected = "3 lines were not sent, from line 2 on" if accepted else "4 lines were not sent, from line 1 on: one"
    assert rig.problems == [expected]
    os.close(writer)
    os.close(reader)


async def test_a_line_that_was_not_sent_is_named_when_the_chat_is_ended(rig, autojump_clock):
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.run, "one")
        await rig.talk.wait_sent(1)
        nursery.cancel_scope.cancel()
    assert rig.problems == ["line 1 was not sent, nor any line after it: one"]


async def test_attempts_that_fail_do_not_prolong_the_wait_for_the_daemon(rig, autojump_clock):
    async def failing():
        for _ in range(100):
            rig.talk.offline("closed", 1.0)
            await trio.sleep(1)

    start = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(failing)
        with pytest.raises(DaemonGone):
            await rig.run("one")
        nursery.cancel_scope.cancel()
    assert trio.current_time() - start == pytest.approx(AWAY_SECONDS)


async def test_a_daemon_that_comes_back_and_thinks_on_is_waited_for(rig, autojump_clock):
    async def restart():
        await rig.talk.wait_sent(1)
        rig.talk.accept()
        rig.talk.offline()
        await trio.sleep(AWAY_SECONDS - 1)
        rig.talk.online()
        rig.talk.thinking(True)
        await trio.sleep(100 * CHECK_SECONDS)
        rig.talk.reply("at last")
        rig.talk.thinking(False)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(restart)
        assert await rig.run("one") == 0
    assert rig.out == ["at last\n"]


@pytest.mark.parametrize("replies", [(), ("here",)])
async def test_a_turn_whose_end_was_missed_is_over_when_the_daemon_says_so(rig, autojump_clock, replies):
    async def cut():
        await rig.talk.wait_sent(1)
        rig.talk.accept()
        rig.talk.thinking(True)
        rig.talk.offline()
        rig.talk.online()
        for text in replies:
            rig.talk.reply(text)
        rig.talk.answers["conversation"] = {"tasks": [], "waiting": 1, "seq": len(replies)}
        await trio.sleep(600)
        rig.talk.answers["conversation"] = {"tasks": [], "waiting": 0, "seq": len(replies)}

    start = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cut)
        assert await rig.run("one") == 0
    assert trio.current_time() - start == pytest.approx(600, abs=CHECK_SECONDS)
    assert rig.out == [f"{text}\n" for text in replies]


async def test_without_a_lost_connection_there_is_no_hurry(rig, autojump_clock):
    """An accepted message may wait for hours behind others."""

    async def busy():
        await rig.talk.wait_sent(1)
        rig.talk.accept()
        await trio.sleep(7200)
        rig.talk.thinking(True)
        rig.talk.thinking(False)

    start = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(busy)
        assert await rig.run("one") == 0
    assert trio.current_time() - start == pytest.approx(7200)


async def test_a_doubt_does_not_outlive_its_turn(rig, autojump_clock):
    async def cut_then_busy():
        await rig.talk.wait_sent(1)
        rig.talk.accept()
        rig.talk.offline()
        rig.talk.online()
        rig.talk.answers["conversation"] = {"tasks": [], "waiting": 0, "seq": 0}
        await rig.talk.wait_sent(2)
        rig.talk.answers["conversation"] = {"tasks": [], "waiting": 1, "seq": 0}
        rig.talk.accept()
        await trio.sleep(7200)
        rig.talk.reply("two")
        rig.talk.thinking(True)
        rig.talk.thinking(False)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(cut_then_busy)
        assert await rig.run("one", "two") == 0
    assert rig.out == ["two\n"]
