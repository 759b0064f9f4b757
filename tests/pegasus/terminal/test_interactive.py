"""A person's chat, between a conversation and a screen that are both stand-ins."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import attrs
import pytest
import trio

from pegasus.client import MessageRejected, Offline
from pegasus.messages import (
    ApprovalNotice,
    ChannelInfo,
    FileEdit,
    Media,
    OutboundMessage,
    ReplyDraft,
    TaskProgress,
    Typing,
)
from pegasus.terminal import interactive
from pegasus.terminal.completion import Suggestions
from pegasus.terminal.greeting import ChatConfig
from pegasus.terminal.interactive import InteractiveChat
from pegasus.terminal.leaving import Leave, LeaveRules
from pegasus.terminal.line_chat import DaemonGone
from pegasus.terminal.questions import WaitingQuestion
from pegasus.terminal.status_line import ChatStatus, Draft, status_line
from pegasus.terminal.typed_messages import MAX_UNSENT

CHANNEL = ChannelInfo("cli", "main")


class FakeScreen:
    """Records the calls of the chat. Its thread runs until `close`, or until the test ends it."""

    def __init__(self, listener):
        self.listener = listener
        self.calls: list[tuple] = []
        self.ran_in = None
        self.failure: Exception | None = None
        self.shows = True
        self.hangs = False
        self._end = threading.Event()
        self._token = trio.lowlevel.current_trio_token()
        self._news = trio.Event()

    def type(self, text, *media):
        self.listener.on_message(text, media)

    def left(self, leave=Leave.LEAVE):
        self.listener.on_leave(leave)

    def run(self):
        self.ran_in = threading.current_thread()
        self._end.wait(30)
        if self.failure is not None:
            raise self.failure

    def reply(self, agent, text, shown):
        self._tell(("reply", agent, text))
        if self.shows:
            threading.Thread(target=shown).start()

    def draft(self, draft):
        self._tell(("draft", draft))

    def question(self, id, tool, text, *, may_widen, is_new):
        self._tell(("question", id, tool, is_new))

    def question_over(self, id=""):
        self._tell(("question over", id))

    def suggest(self, suggestions):
        self._tell(("suggest", suggestions))

    def notice(self, text):
        self._tell(("notice", text))

    def status(self, status):
        self._tell(("status", status))

    def resized(self):
        self._tell(("resized",))

    def leave(self, others):
        self._tell(("leave", others))

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

    def _make(self, listener):
        self.screen = FakeScreen(listener)
        return self.screen

    async def run(self):
        self.leave = await self.chat.run()
        self.unsent = self.chat.unsent


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


async def test_what_comes_of_work_for_a_guest_is_marked(rig):
    rig.talk.tell(OutboundMessage("The report.", CHANNEL, 1, {"who": "guest"}), OutboundMessage("Mine.", CHANNEL, 2))
    await rig.screen.wait("reply", "Pegasus", "Mine.")
    shown = [what[-1] for what in rig.screen.calls if what[0] in ("notice", "reply")]
    assert shown[1:] == ["(from work for a guest)", "The report.", "Mine."]


async def test_the_question_of_another_client_is_shown_once_above_its_answers(rig):
    def answer(seq, id, text):
        return OutboundMessage(text, CHANNEL, seq, {"inReplyTo": id, "question": f"question {id}"})

    rig.talk.tell(answer(1, "m-1", "mine"), answer(2, "x-1", "one"), answer(3, "x-1", "two"), answer(4, "x-2", "three"))
    await rig.screen.wait("reply", "Pegasus", "three")
    shown = [what[-1] for what in rig.screen.calls if what[0] in ("notice", "reply")]
    assert shown[1:] == [
        "mine",
        "(asked elsewhere) question x-1",
        "one",
        "two",
        "(asked elsewhere) question x-2",
        "three",
    ]


async def test_an_own_question_is_shown_above_its_answer_when_more_was_sent_since(rig):
    rig.screen.type("first")
    rig.screen.type("second")
    await rig.talk.wait_sent(2)
    await trio.testing.wait_all_tasks_blocked(0.01)
    for seq, id in ((1, "m-1"), (2, "m-2")):
        rig.talk.tell(OutboundMessage(f"to {id}", CHANNEL, seq, {"inReplyTo": id, "question": f"question {id}"}))
    await rig.screen.wait("reply", "Pegasus", "to m-2")
    shown = [what[-1] for what in rig.screen.calls if what[0] in ("notice", "reply")]
    assert shown[1:] == ["(about) question m-1", "to m-1", "to m-2"]


async def test_what_a_message_has_used_stands_below_its_reply_if_the_owner_wants_it(rig):
    rig.talk.online()
    rig.talk.reply("one", usage={"inputTokens": 1204, "outputTokens": 80})
    await rig.screen.wait("notice", "(1,204 tokens in, 80 out)")


async def test_a_reply_that_is_being_written_is_shown_until_it_is_there(rig):
    talk = rig.talk
    talk.thinking(True)
    talk.tell(ReplyDraft(CHANNEL, "", "Let me see"), ReplyDraft(CHANNEL, "Once upon"))
    talk.reply("Once upon a time")
    talk.thinking(False)
    talk.reply("later")
    await rig.screen.wait("reply", "Pegasus", "later")
    assert rig.screen.of("draft") == [(Draft("Pegasus", "", "Let me see"),), (Draft("Pegasus", "Once upon"),)]
    assert [status.writing for (status,) in rig.screen.of("status")] == [False, False, True, False, False]


async def test_another_attempt_is_told_in_place_of_thinking(rig):
    rig.talk.thinking(True)
    rig.talk.tell(ReplyDraft(CHANNEL, "", activity="retrying (429), attempt 2"), ReplyDraft(CHANNEL, "Once upon"))
    await rig.screen.wait("draft", Draft("Pegasus", "Once upon"))
    lines = [status_line(status, 0.0) for (status,) in rig.screen.of("status")]
    assert lines == ["", "⠋ thinking", "⠋ retrying (429), attempt 2", "⠋ writing"]
    assert len(rig.screen.of("draft")) == 1, "nothing is drawn above the prompt for it"


@pytest.mark.parametrize("end", [ReplyDraft(CHANNEL, ""), Typing(CHANNEL, False), Offline("gone", 1.0)])
async def test_a_draft_is_withdrawn(rig, end):
    rig.talk.thinking(True)
    rig.talk.tell(ReplyDraft(CHANNEL, "Once upon"), end)
    await rig.screen.wait("draft", None)
    assert not rig.screen.of("status")[-1][0].writing


def task(state, id="t-1", number=1):
    return TaskProgress(CHANNEL, id, number, "dig", state, "", 1, 1000)


async def test_running_tasks_are_shown_until_they_end_or_the_connection_is_lost(rig):
    def shown():
        return [[task.number for task in status.tasks] for (status,) in rig.screen.of("status")]

    rig.talk.tell(task("ACTING"), task("IDLE", "t-2", 2), task("COMPLETED"), task("ACTING", "t-2", 2))
    rig.talk.offline()
    await rig.screen.wait("status", ChatStatus(lost=True))
    assert shown() == [[], [1], [1, 2], [2], [2], []]


async def test_a_task_that_has_asked_something_waits_in_the_line_until_it_goes_on(rig):
    rig.talk.tell(task("SUSPENDED"), task("REASONING"), task("SUSPENDED"))
    rig.talk.offline()
    await rig.screen.wait("status", ChatStatus(lost=True))
    shown = [[len(status.asking), len(status.tasks)] for (status,) in rig.screen.of("status")]
    assert shown == [[0, 0], [1, 0], [0, 1], [1, 0], [0, 0]]


async def test_what_a_task_changes_in_a_file_is_shown_as_a_difference(rig):
    rig.talk.tell(task("ACTING"), FileEdit(CHANNEL, "t-1", "/home/me/a.txt", "```diff\n-tea\n```"))
    await rig.screen.wait("reply", "task 1", "`/home/me/a.txt`\n\n```diff\n-tea\n```")


async def test_the_first_welcome_greets_and_the_next_do_not(rig):
    rig.talk.offline()
    rig.talk.online()
    rig.talk.reply("x")
    await rig.screen.wait("reply", "Pegasus", "x")
    assert [text for (text,) in rig.screen.of("notice") if text.startswith("Talking with")] == [
        "Talking with Pegasus.\n"
        "Try “what can you do?” or “remember that …”.\n/help shows what there is, Ctrl-D leaves, and Pegasus goes on."
    ]


@pytest.mark.parametrize(
    ("speech", "manner"),
    [("direct", "which answers directly"), ("monologue", "which speaks when it has something to say")],
)
async def test_the_greeting_names_the_model_and_how_it_speaks_and_what_leaving_does(talk, nursery, speech, manner):
    rig = Rig(talk, model="anthropic/claude", speech=speech, leave_rules=lambda: LeaveRules(stops_agent=True))
    talk.online("Ada")
    nursery.start_soon(rig.run)
    await rig.screen.wait(
        "notice",
        f"Talking with Ada (anthropic/claude), {manner}.\n"
        "Try “what can you do?” or “remember that …”.\n/help shows what there is, Ctrl-D stops Ada.",
    )
    rig.screen.left()


async def test_the_greeting_of_the_stand_in_names_what_it_can_do(talk, nursery):
    rig = Rig(talk, model="offline/stand-in")
    talk.online()
    nursery.start_soon(rig.run)
    await rig.screen.wait("status", ChatStatus(online=True))
    assert "Try “demo” or “remember that I like tea”." in rig.screen.of("notice")[0][0]
    rig.screen.left()


# ------------------------------------------------------------------ commands and files


COMPLETIONS = {
    "commands": [{"name": "/status", "description": "what is going on"}],
    "skills": [{"name": "review", "description": "look at it"}],
    "models": ["test/model-1"],
}
TASKS = {"tasks": [{"taskId": "t-1", "number": 1, "description": "dig"}, {"taskId": "t-2", "number": 2}]}
KNOWN = Suggestions(
    {"/status": "what is going on"}, {"/review": "look at it"}, ("test/model-1",), (("2", ""), ("1", "dig"))
)


@pytest.fixture
async def known(talk, nursery):
    """A chat whose agent has said what there is."""
    talk.answers = {"completions": COMPLETIONS, "tasks.list": TASKS}
    rig = Rig(talk)
    talk.online()
    nursery.start_soon(rig.run)
    await rig.screen.wait("suggest", KNOWN)
    yield rig
    rig.screen.left()


async def test_what_may_be_typed_is_asked_for_in_the_background(known):
    assert known.talk.called == ["completions", "tasks.list"]


async def test_it_is_asked_for_again_when_somebody_begins_to_type_a_command(known, monkeypatch):
    monkeypatch.setattr(interactive, "FRESH_SECONDS", 0.0)
    known.talk.answers["completions"] = {**COMPLETIONS, "models": []}
    known.screen.listener.on_slash()
    await known.screen.wait("suggest", attrs.evolve(KNOWN, models=()))


@pytest.mark.parametrize(
    ("typed", "says"), [("exit", "/exit leaves the chat"), ("Quit ", "/quit leaves"), ("?", "/help lists commands")]
)
async def test_a_word_that_is_a_command_elsewhere_is_answered_here_and_not_sent(known, typed, says):
    known.screen.type(typed)
    known.screen.type(" exit")
    await known.talk.wait_sent(1)
    assert known.talk.sent == [" exit"]
    *_, (notice,) = known.screen.of("notice")
    assert notice.startswith(f"Not sent. {says}")
    assert notice.endswith("; a blank in front sends it as text.")


async def test_a_command_that_does_not_exist_is_answered_here_and_not_sent(known):
    known.screen.type("/staus now")
    await known.screen.wait(
        "notice",
        "Not sent. There is no command /staus. Did you mean /status? /help lists all; a blank in front sends it as text.",
    )
    assert known.talk.sent == []


@pytest.mark.parametrize("text", ["/review this", "/status", "/etc/hosts is broken", " /staus", "hello"])
async def test_everything_else_is_sent(known, text):
    known.screen.type(text)
    await known.talk.wait_sent(1)
    assert known.talk.sent == [text]


async def test_a_skill_that_was_just_written_is_sent(known):
    known.talk.answers["completions"] = {**COMPLETIONS, "skills": [{"name": "new-one", "description": ""}]}
    known.screen.type("/new-one")
    await known.talk.wait_sent(1)
    assert known.talk.sent == ["/new-one"]


async def test_while_the_agent_has_not_said_what_there_is_every_command_is_sent(rig):
    rig.screen.type("/staus")
    await rig.talk.wait_sent(1)


async def test_an_agent_of_another_version_that_does_not_know_the_question_is_no_problem(talk, nursery):
    talk.answers = {"completions": ["nonsense"], "tasks.list": None}
    rig = Rig(talk)
    talk.online()
    nursery.start_soon(rig.run)
    await rig.screen.wait("status", ChatStatus(online=True))
    await trio.testing.wait_all_tasks_blocked(0.01)
    assert rig.screen.of("suggest") == []
    rig.screen.left()


async def test_files_are_sent_with_the_message(rig):
    file = Media("notes.txt", "text/plain", "aGk=")
    rig.screen.type("see @notes.txt", file)
    await rig.talk.wait_sent(1)
    assert rig.talk.media == [(file,)]


async def test_a_message_that_is_too_large_with_its_files_is_refused(rig):
    rig.screen.type("see", Media("a.png", "image/png", "x" * 10_000))
    with trio.fail_after(20):
        while len(rig.screen.of("notice")) < 2:
            await trio.testing.wait_all_tasks_blocked(0.01)
    assert rig.screen.of("notice")[1][0].startswith("Not sent: 10,")
    assert rig.talk.sent == []


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

    async def slow(text, media=(), is_urgent=False):
        if not is_urgent:
            await gate.wait()
        return await send(text, is_urgent=is_urgent)

    rig.talk.send = slow
    rig.screen.type("one")
    rig.screen.type("/stop")
    await rig.talk.wait_sent(1)
    assert rig.talk.sent == ["/stop"]
    gate.set()


async def test_a_text_the_gateway_would_not_take_is_refused_with_both_sizes(rig):
    rig.screen.type("x" * 20_000)
    await rig.screen.wait("notice", "Not sent: 20,258 bytes; the agent takes 10,000 at most.")
    assert rig.talk.sent == []


async def test_more_than_can_wait_is_refused(rig):
    async def stuck(text, media=()):
        await trio.sleep_forever()

    rig.talk.send = stuck
    for n in range(MAX_UNSENT + 2):
        rig.screen.type(str(n))
    with trio.fail_after(20):
        while len(rig.screen.of("notice")) < 2:  # the first one greets
            await trio.testing.wait_all_tasks_blocked(0.01)
    assert "waiting to be sent already" in rig.screen.of("notice")[1][0]


async def test_a_message_the_gateway_did_not_take_is_reported(rig):
    rig.talk.online()
    rig.talk.tell(MessageRejected("m-1", "bad_frame", "no such channel"))
    await rig.screen.wait("notice", "Not taken: no such channel")


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
    assert rig.unsent == ()
    assert rig.screen.calls[-1] == ("closed",)
    assert rig.screen.ran_in is not threading.current_thread()


async def test_leaving_may_keep_the_agent(talk):
    rig = Rig(talk)
    talk.online()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.run)
        rig.screen.left(Leave.KEEP)
    assert rig.leave is Leave.KEEP


async def test_leaving_may_stop_the_work_first(talk):
    rig = Rig(talk)
    talk.online()
    talk.tell(task("ACTING"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.run)
        await trio.testing.wait_all_tasks_blocked(0.01)
        rig.screen.left(Leave.STOP)
        await talk.wait_sent(1)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert ("closed",) not in rig.screen.calls
        talk.accept()
        talk.tell(task("FAILED"))
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert ("closed",) not in rig.screen.calls
        talk.reply("Stopped: dig")
    assert talk.sent == ["/stop"]
    assert rig.leave is Leave.STOP


async def test_work_that_does_not_stop_does_not_hold_the_chat(talk, monkeypatch):
    monkeypatch.setattr(interactive, "STOP_SECONDS", 0.05)
    rig = Rig(talk)
    accepting(talk)
    talk.online()
    talk.tell(task("ACTING"))
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rig.run)
            await trio.testing.wait_all_tasks_blocked(0.01)
            rig.screen.left(Leave.STOP)


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
    assert rig.unsent == ()


async def test_what_nobody_accepts_is_not_waited_for_without_end(talk, monkeypatch):
    monkeypatch.setattr(interactive, "ACCEPT_SECONDS", 0.01)
    rig = Rig(talk)
    talk.online()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.run)
        await rig.screen.wait("status", ChatStatus(online=True))
        rig.screen.type("bye")
        await talk.wait_sent(1)
        rig.screen.left()
    assert rig.unsent == ("bye",)


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
    assert rig.unsent == ("into the void",)


async def test_what_was_not_sent_is_known_when_the_chat_is_cancelled(talk):
    """The daemon is gone for good: whoever cancels the chat must be able to name every message, in order."""
    rig = Rig(talk)
    talk.online()

    async def stuck(text, media=()):
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.run)
        await rig.screen.wait("status", ChatStatus(online=True))
        talk.offline()
        rig.screen.type("one")
        await talk.wait_sent(1)
        talk.send = stuck
        for text in ("two", "three"):
            rig.screen.type(text)
        await trio.testing.wait_all_tasks_blocked(0.01)
        nursery.cancel_scope.cancel()
    assert rig.chat.unsent == ("one", "two", "three")


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
    talk.offline("no agent is running")
    with pytest.raises(DaemonGone, match="no agent is running"):
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
    assert rig.unsent == ()


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
    monkeypatch.setattr(interactive, "CLOSE_SECONDS", 0.01)
    monkeypatch.setattr(interactive, "restore_terminal", lambda: restored.append(True))
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


# ------------------------------------------------------------------ messages that wait for their turn


def waits(rig, count, **status):
    return rig.screen.wait("status", ChatStatus(online=True, waiting=count, **status))


async def test_messages_without_an_answer_are_counted(rig, talk):
    accepting(talk)
    for text in ("one", "two", "three", "/status"):
        rig.screen.type(text)
    await waits(rig, 3)
    talk.thinking(True)
    talk.reply("to two", inReplyTo="m-2")
    await waits(rig, 1, thinking=True, answered=True)
    talk.reply("to three", inReplyTo="m-3")
    await waits(rig, 0, thinking=True, answered=True)


async def test_a_message_that_ends_in_silence_is_not_waited_for(rig, talk, monkeypatch):
    monkeypatch.setattr(interactive, "ENDED_SECONDS", 0.01)
    accepting(talk)
    talk.answers["conversation"] = {"tasks": [], "waiting": 1, "seq": 0}
    rig.screen.type("one")
    rig.screen.type("two")
    await waits(rig, 2)
    talk.thinking(True)
    talk.thinking(False)
    while "conversation" not in talk.called:  # noqa: ASYNC110 the call announces nothing
        await trio.sleep(0.01)
    assert rig.screen.of("status")[-1][0].waiting == 2
    talk.answers["conversation"] = {"tasks": [], "waiting": 0, "seq": 0}
    rig.screen.calls.clear()
    talk.thinking(True)
    talk.thinking(False)
    await waits(rig, 0)


async def test_stop_all_discards_what_was_typed_and_not_sent(talk, nursery):
    rig = Rig(talk)
    talk.online()
    nursery.start_soon(rig.run)
    await rig.screen.wait("status", ChatStatus(online=True))
    send = talk.send

    async def full(text, *, media=(), is_urgent=False):
        if not is_urgent:
            await trio.sleep_forever()
        return await send(text, media=media, is_urgent=is_urgent)

    talk.send = full
    for n in range(3):
        rig.screen.type(f"line {n}")
    rig.screen.type("/stop")
    await talk.wait_sent(1)
    rig.screen.type("/Stop All")
    await talk.wait_sent(2)
    talk.send = send
    rig.screen.type("after")
    await talk.wait_sent(3)
    assert talk.sent == ["/stop", "/Stop All", "after"]
    assert talk.urgent == ["/stop", "/Stop All"]
    assert any("Discarded: 4 messages that were not sent yet." in text for (text,) in rig.screen.of("notice"))
    rig.screen.left()


# ------------------------------------------------------------------ other chats, and an agent that ends


@pytest.mark.parametrize(
    ("answer", "others"),
    [({"clients": [{}, {}, {}]}, 2), ({"clients": [{}]}, 0), ({"clients": "?"}, 0), (None, 0)],
)
async def test_leaving_finds_out_who_else_is_connected(rig, talk, answer, others):
    if answer is not None:
        talk.answers["clients"] = answer
    rig.screen.listener.on_leaving()
    await rig.screen.wait("leave", others)


@pytest.mark.parametrize(
    ("reason", "end"), [("closed (1001: the gateway is stopping)", "was stopped"), ("closed", "has ended unexpectedly")]
)
async def test_a_chat_that_has_joined_says_that_the_agent_is_gone_and_how_to_start_it(talk, nursery, reason, end):
    runs = True
    rig = Rig(talk, agent_runs=lambda: runs, start_command="./scripts/run")
    talk.online()
    nursery.start_soon(rig.run)
    await rig.screen.wait("status", ChatStatus(online=True))
    talk.offline(reason)
    await rig.screen.wait("status", ChatStatus(lost=True))
    runs = False
    talk.offline("no agent is running")
    await rig.screen.wait("status", ChatStatus(lost=True, gone=True))
    talk.offline("no agent is running")
    talk.online()
    await rig.screen.wait("status", ChatStatus(online=True, lost=True))
    notice = (
        f"Pegasus {end}. `./scripts/run` in another terminal starts it again, and this chat goes on; Ctrl-D leaves."
    )
    assert rig.screen.of("notice")[1:] == [(notice,)]
    rig.screen.left()


async def test_the_end_of_the_turn_of_the_only_message_is_its_end(rig, talk):
    accepting(talk)
    rig.screen.type("one")
    await waits(rig, 1)
    talk.thinking(True)
    await waits(rig, 1, thinking=True)
    rig.screen.calls.clear()
    talk.thinking(False)
    await waits(rig, 0)
    assert "conversation" not in talk.called


def question(id, state="open", by=""):
    return ApprovalNotice(id, "shell_exec", {"command": "ls"}, "a rule", "owner", 1, state, by=by, task_id="t1")


async def test_a_question_is_printed_once_and_counts_again_after_a_lost_connection(rig):
    rig.talk.tell(question("a-1"))
    await rig.screen.wait("question", "a-1", "shell_exec", True)
    assert rig.screen.of("status")[-1][0].questions == (WaitingQuestion("a-1", "shell_exec", may_widen=False),)
    assert rig.screen.of("suggest")[-1][0].questions == (("a-1", "shell_exec"),)
    rig.talk.tell(Offline("gone", 1.0))
    await rig.screen.wait("question over", "")
    rig.talk.online()
    rig.talk.tell(question("a-1"))
    await rig.screen.wait("question", "a-1", "shell_exec", False)
    rig.talk.tell(question("a-1", "allowed", by="web:page"))
    await rig.screen.wait("question over", "a-1")
    await rig.screen.wait("notice", "a-1 (shell_exec) is allowed by web:page.")
    assert rig.screen.of("status")[-1][0].questions == ()
