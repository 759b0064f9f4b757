"""One Main Agent for each chat: side by side, in order within a chat, a bounded number in memory, resumed from disk."""

from __future__ import annotations

import json
from functools import partial

import pytest
import trio

from actors.testing import simulate
from pegasus.app import tree
from pegasus.formatting import LONGEST_KEY
from pegasus.intake.submission import NAME_LENGTH
from pegasus.main_agent.chats import KEEP_IDLE
from pegasus.main_agent.session.files import chat_files, chat_key
from pegasus.messages import Address, ChannelInfo
from pegasus.models import UserTurn
from pegasus.settings import AgentSettings, Settings
from pegasus.storage import LostChats, StorageError, TakeLease, Volume, journal
from pegasus.storage.database import NodeFacts, run_database_journal
from pegasus.storage.database.engine import LEASE
from pegasus.testing.memory_database import Fate, MemoryDatabase
from pegasus.testing.memory_disk import MemoryDisk
from pegasus.testing.scripted import After, Hang, ScriptedModel, call, say
from pegasus.testing.world import FakeChannel, kill, open_world

from .voices import asked, delegate, reply


def chat(name, user=None):
    return ChannelInfo("web", name, user)


def each_chat(**agent):
    return Settings(agent=AgentSettings(scope="chat", **agent))


def echo(request, seconds=0.0):
    """Say the last message again, and which one of this conversation it is."""
    found = asked(request)
    if found is None:
        return say()
    count = sum(turn.text.count("[channel: ") for turn in request.turns if isinstance(turn, UserTurn))
    answer = say("", reply(f"{count}: {found[0]}", **found[1], call_id=f"r{count}"))
    return After(seconds, answer) if seconds else answer


def session_of(world, name):
    return [json.loads(line) for line in world.disk.content(chat_files(Address("web", name)).path).splitlines()]


def open_chats(model, *, disk=None, settings=None, web=None):
    return open_world(
        model, disk=disk, settings=settings or each_chat(), channels=(FakeChannel("cli"), web or FakeChannel("web"))
    )


# ------------------------------------------------------------------ conversations of their own


async def test_each_chat_has_a_conversation_of_its_own(autojump_clock):
    web = FakeChannel("web")
    async with open_chats(ScriptedModel(echo), web=web) as world:
        for name, text in (("a", "one"), ("b", "two"), ("a", "three")):
            await world.say(text, chat(name))
            await web.next_reply()
        await world.idle()
        said = [(message.channel.channel_id, message.text) for message in web.replies]
        assert said == [("a", "1: one"), ("b", "1: two"), ("a", "2: three")]
        assert [line["role"] for line in session_of(world, "b")] == ["user", "assistant", "tool"]
        assert session_of(world, "b")[0]["metadata"]["chat"] == "web:b"
        assert world.disk.content("main/current.jsonl") == b""


async def test_chats_are_worked_on_side_by_side_and_each_in_order(autojump_clock):
    web = FakeChannel("web")
    async with open_chats(ScriptedModel(lambda request: echo(request, 10.0)), web=web) as world:
        for number in range(3):
            for name in "abcdefghij":
                await world.say(f"{number}", chat(name))
        await world.idle()
        assert 30 <= trio.current_time() < 32, "three thoughts one after the other, in ten chats at once"
        for name in "abcdefghij":
            said = [message.text for message in web.replies if message.channel.channel_id == name]
            assert said == ["1: 0", "2: 1", "3: 2"]


async def test_a_chat_that_thinks_for_ever_holds_nobody_up(autojump_clock):
    web = FakeChannel("web")
    model = ScriptedModel(lambda request: Hang() if "hang" in request.turns[-1].text else echo(request))
    async with open_chats(model, web=web) as world:
        await world.say("hang", chat("a"))
        await trio.sleep(1)
        await world.say("hello", chat("b"))
        assert (await web.next_reply()).text == "1: hello"


# ------------------------------------------------------------------ commands


async def test_stop_ends_the_thought_of_its_own_chat_only(autojump_clock):
    web = FakeChannel("web")
    model = ScriptedModel(lambda request: Hang())
    async with open_chats(model, web=web) as world:
        await world.say("think", chat("a"))
        await world.say("think", chat("b"))
        await trio.sleep(1)
        await world.say("/stop", chat("a"))
        stopped = await web.next_reply()
        assert stopped.channel.channel_id == "a"
        assert "- thought: think" in stopped.text
        assert model.cancelled == 1
        assert (await world.status()).thinking_about == "think"


async def test_new_begins_a_conversation_in_its_own_chat_only_also_for_a_guest(autojump_clock):
    web = FakeChannel("web")
    settings = each_chat(owners=("cli:*",))
    async with open_chats(ScriptedModel(echo), settings=settings, web=web) as world:
        for name in "ab":
            await world.say("hello", chat(name, name))
            await web.next_reply()
        await world.say("/new", chat("a", "a"))
        text = (await web.next_reply()).text
        assert text.startswith("This is a fresh conversation. The one before is kept in web%3Aa.2026-02-25-"), (
            "as `sessions show` takes it"
        )
        for name in "ab":
            await world.say("again", chat(name, name))
        assert {(await web.next_reply()).text for _ in "ab"} == {"1: again", "2: again"}
        archive = text.split()[-1].rstrip(".")
        assert b"hello" in world.disk.content(f"sessions/{archive}")


async def test_a_chat_reads_its_own_archives_only(autojump_clock):
    web = FakeChannel("web")

    def model(request):
        found = asked(request)
        if found is None:
            return say()
        where = found[1]["channel_id"]
        if "read" in found[0]:
            return say("", call("session_archive_read", f"s{len(request.turns)}", file="2026-02-25-120000.jsonl"))
        return say("", reply(f"noted: {where}", **found[1]))

    async with open_chats(ScriptedModel(model), web=web) as world:
        await world.say("a secret", chat("a"))
        await world.say("/new", chat("a"))
        await world.idle()
        for name in "ab":
            await world.say("read", chat(name))
        await world.idle()
        own, others = ([line["content"] for line in session_of(world, name) if line["role"] == "tool"] for name in "ab")
        assert "a secret" in own[0]
        assert "there is no archive" in others[0]


async def test_status_tells_of_its_own_chat(autojump_clock):
    web = FakeChannel("web")
    model = ScriptedModel(delegate)
    async with open_world(
        model,
        task_model=ScriptedModel(lambda request: Hang()),
        settings=each_chat(),
        channels=(FakeChannel("cli"), web),
    ) as world:
        await world.say("count the stars", chat("a"))
        await web.next_reply()
        await world.say("/status", chat("b"))
        text = (await web.next_reply()).text
        assert "I am idle." in text
        assert "count the stars" not in text
        await world.say("/status", chat("a"))
        assert "count the stars" in (await web.next_reply()).text


async def test_the_model_that_was_chosen_for_a_chat_answers_there_and_nowhere_else_also_after_a_restart(autojump_clock):
    disk, web = MemoryDisk(), FakeChannel("web")
    other = ScriptedModel(lambda request: say("", reply("the other", **asked(request)[1])), name="lab/other")
    for run in range(2):
        async with open_world(
            ScriptedModel(echo),
            disk=disk,
            settings=each_chat(),
            channels=(FakeChannel("cli"), web),
            models={"lab/other": other},
        ) as world:
            if not run:
                await world.tree.services.environment.models.chat_choices.choose(Address("web", "a"), "lab/other")
            for name in "ab":
                await world.say("who are you?", chat(name))
            await world.idle()
            said = {message.channel.channel_id: message.text for message in web.replies[-2:]}
            assert said["a"] == "the other"
            assert said["b"].endswith("who are you?")
            await world.idle()
            for name, is_other in (("a", True), ("b", False)):
                for command in ("/status", "/model", "/speech"):
                    await world.say(command, chat(name))
                    await world.idle()
                    assert ("lab/other" in web.replies[-1].text) is is_other


async def test_a_stop_of_a_program_ends_the_thoughts_of_all_chats(autojump_clock):
    async with open_chats(ScriptedModel(lambda request: Hang())) as world:
        for name in "abc":
            await world.say(f"think of {name}", chat(name))
        await trio.sleep(1)
        ended = await world.stop_thinking()
        assert {work.what for work in ended} == {"think of a", "think of b", "think of c"}
        assert (await world.status()).thinking_about is None


async def test_the_report_of_a_task_reaches_the_chat_that_asked_for_it(autojump_clock):
    web = FakeChannel("web")

    def model(request):
        return delegate(request) if "[Task" not in request.turns[-1].text else echo(request)

    tasks = ScriptedModel([say("the stars are many")])
    async with open_world(
        ScriptedModel(model), task_model=tasks, settings=each_chat(), channels=(FakeChannel("cli"), web)
    ) as world:
        await world.say("count the stars", chat("a"))
        await world.idle()
        await trio.sleep(60)
        await world.idle()
        assert web.replies
        assert {message.channel.channel_id for message in web.replies} == {"a"}
        assert "the stars are many" in world.disk.content("sessions/web%3Aa.jsonl").decode()


async def test_a_message_that_is_withdrawn_ends_the_thought_of_its_own_chat_only(autojump_clock):
    model = ScriptedModel(lambda request: Hang())
    async with open_chats(model) as world:
        for name in "ab":
            await world.say("think", chat(name), message_id="m")
        await trio.sleep(1)
        world.tree.main_agent.withdraw(Address("web", "a"), "m")
        await trio.sleep(1)
        assert model.cancelled == 1
        assert (await world.status()).in_hand == 1


# ------------------------------------------------------------------ in memory and on disk


async def test_no_more_chats_than_allowed_are_in_memory(autojump_clock):
    web = FakeChannel("web")
    most = 0

    def model(request):
        return echo(request, 1.0)

    async with open_chats(ScriptedModel(model), settings=each_chat(max_active_chats=3), web=web) as world:
        for number in range(20):
            await world.say("hello", chat(f"c{number}"))
        while len(web.replies) < 20:
            most = max(most, (await world.status()).chats)
            await trio.sleep(0.25)
        assert most == 3
        assert trio.current_time() < 8, "three at a time"


async def test_while_all_think_the_stop_of_another_chat_is_answered(autojump_clock):
    web = FakeChannel("web")
    model = ScriptedModel(lambda request: Hang())
    async with open_chats(model, settings=each_chat(max_active_chats=2), web=web) as world:
        for name in "abc":
            await world.say("think", chat(name))
        await trio.sleep(1)
        await world.say("/stop", chat("c"))
        assert (await web.next_reply()).channel.channel_id == "c"


async def test_chats_that_are_not_in_memory_leave_no_task_behind(autojump_clock):
    web = FakeChannel("web")
    async with open_chats(ScriptedModel(echo), settings=each_chat(max_active_chats=3), web=web) as world:
        counts = []
        for number in range(120):
            await world.say("hello", chat(f"c{number}"))
            await web.next_reply()
            await world.idle()
            counts.append(trio.lowlevel.current_statistics().tasks_living)
        assert max(counts[60:]) <= max(counts[:60])
        await trio.sleep(KEEP_IDLE + 1)
        assert (await world.status()).chats == 0
        assert trio.lowlevel.current_statistics().tasks_living < counts[0]


async def test_an_idle_chat_is_parked_and_comes_back_with_its_conversation(autojump_clock):
    web = FakeChannel("web")
    async with open_chats(ScriptedModel(echo), web=web) as world:
        await world.say("one", chat("a"))
        await web.next_reply()
        assert (await world.status()).chats == 1
        await trio.sleep(KEEP_IDLE + 1)
        assert (await world.status()).chats == 0
        await world.say("two", chat("a"))
        assert (await web.next_reply()).text == "2: two"


async def test_a_chat_that_goes_on_is_not_parked(autojump_clock):
    web = FakeChannel("web")
    async with open_chats(ScriptedModel(echo), web=web) as world:
        for _ in range(5):
            await world.say("one", chat("a"))
            await web.next_reply()
            await trio.sleep(KEEP_IDLE * 0.9)
        assert (await world.status()).chats == 1


async def test_a_thousand_chats_at_once_are_all_answered_once(autojump_clock):
    web = FakeChannel("web")
    async with open_chats(ScriptedModel(lambda request: echo(request, 1.0)), web=web) as world:
        for number in range(1000):
            await world.say("hello", chat(f"c{number}"))
        await world.idle()
        assert sorted(m.channel.channel_id for m in web.replies) == sorted(f"c{number}" for number in range(1000))
        assert trio.current_time() < 1000 / 50 * 1.5


async def test_more_chats_that_talk_without_a_pause_than_have_a_place_are_all_answered(autojump_clock):
    web = FakeChannel("web")
    names, rounds = [f"c{number}" for number in range(12)], 12
    settings = each_chat(max_active_chats=3)
    async with open_chats(ScriptedModel(lambda request: echo(request, 1.0)), settings=settings, web=web) as world:
        for name in names:
            await world.say("hello", chat(name))
        for _ in range(len(names) * (rounds - 1)):
            answered = await web.next_reply()
            await world.say("hello", chat(answered.channel.channel_id))
        await world.idle()
    for name in names:
        texts = [reply.text for reply in web.replies if reply.channel.channel_id == name]
        assert [text for text in texts if not text.endswith("hello")] == [], "giving up a place is no failed attempt"
    assert len(web.replies) == len(names) * rounds


# ------------------------------------------------------------------ crashes


async def test_after_a_power_failure_each_chat_goes_on_where_it_was(autojump_clock):
    disk, web = MemoryDisk(), FakeChannel("web")
    async with open_chats(ScriptedModel(lambda request: Hang()), disk=disk, web=web) as world:
        for name in "abc":
            await world.say(f"hello {name}", chat(name))
        await trio.sleep(1)
        with trio.CancelScope() as scope:
            await kill(world)
            scope.cancel()
    async with open_chats(ScriptedModel(echo), disk=disk, web=web) as world:
        await world.idle()
        assert sorted(message.text for message in web.replies) == ["1: hello a", "1: hello b", "1: hello c"]


class OneBadFile(MemoryDisk):
    """A disk with one file that cannot be read."""

    unreadable = ""

    async def run(self, work, *args):
        if work is Volume.read and args == (self.unreadable,):
            raise StorageError("a bad sector")
        return await super().run(work, *args)


async def test_a_chat_whose_file_cannot_be_read_disturbs_no_other_and_goes_on_when_it_can(autojump_clock):
    disk, web = OneBadFile(), FakeChannel("web")
    async with open_chats(ScriptedModel(echo), disk=disk, web=web) as world:
        disk.unreadable = chat_files(Address("web", "a")).path
        await world.say("hello", chat("a"))
        await trio.sleep(5)
        await world.say("hello", chat("b"))
        assert (await web.next_reply()).channel.channel_id == "b"
        disk.unreadable = ""
        assert (await web.next_reply()).text == "1: hello"


async def test_a_chat_whose_work_fails_again_and_again_disturbs_no_other_and_is_told_so(autojump_clock):
    web = FakeChannel("web")

    def model(request):
        if "poison" in request.turns[-1].text:
            raise RuntimeError("a defect")
        return echo(request)

    async with open_chats(ScriptedModel(model), web=web) as world:
        await world.say("poison", chat("a"))
        for _ in range(20):
            await world.say("hello", chat("b"))
            await trio.sleep(1)
        others = [message for message in web.replies if message.channel.channel_id == "b"]
        assert len(others) == 20
        await world.idle()
        [told] = [message.text for message in web.replies if message.channel.channel_id == "a"]
        assert "work on your message failed 3 times" in told
        await world.say("and now?", chat("a"))
        await world.idle()
        assert "and now?" in web.replies[-1].text


async def test_an_agent_that_was_replaced_writes_nothing_more(autojump_clock):
    """As when the chat was given to another machine: the thought that comes late is not written, and not said."""
    web = FakeChannel("web")
    async with open_chats(ScriptedModel(lambda request: echo(request, 10.0)), web=web) as world:
        await world.say("hello", chat("a"))
        await trio.sleep(1)
        await world.journal.ask(TakeLease, chat_files(Address("web", "a")).owner)
        await trio.sleep(10)
        assert web.replies == []
        assert [line["role"] for line in session_of(world, "a")] == ["user"]
        assert (await web.next_reply()).text == "1: hello", "started anew, with a lease of its own"


async def test_the_agent_of_a_chat_that_another_machine_has_taken_ends_at_once(monkeypatch, autojump_clock):
    asked, hold = [], journal._Journal._hold

    def note(self, query):
        """Keep each question about lost chats, which the journal of files does not answer."""
        if isinstance(query, LostChats):
            asked.append(query)
        hold(self, query)

    monkeypatch.setattr(journal._Journal, "_hold", note)
    model = ScriptedModel(lambda request: Hang())
    async with open_chats(model) as world:
        for name in "ab":
            await world.say("think", chat(name))
        await trio.sleep(1)
        a, b = Address("web", "a"), Address("web", "b")
        before = asked[-1]
        assert before.running.keys() == {a, b}
        before.reply.send((a,))
        await trio.testing.wait_all_tasks_blocked()
        assert model.cancelled == 1
        without, after = asked[-2:]
        assert without.running == {b: before.running[b]}
        assert after.running[a].token > before.running[a].token, "here its item is due again, so it gets another agent"


def test_agents_end_whose_chats_their_node_has_lost_and_has_again(monkeypatch):
    """What they have answered was not noted yet. They would be given it again and again, and could not note it."""
    names, answered = [f"c{n}" for n in range(20)], []

    async def main():
        lost = set()
        database = MemoryDatabase(fate=lambda link, call: Fate.LOST if call in lost else Fate.DONE)
        run = partial(run_database_journal, database=database.link("a"), facts=NodeFacts("a"), scope="chat")
        monkeypatch.setattr(tree, "run_journal", lambda *args, disk, **options: run(*args, **options))
        async with open_chats(ScriptedModel(echo), web=(web := FakeChannel("web"))) as world:
            for calls in ((), ("note", "renew"), ()):
                lost |= set(calls)
                for name in names:
                    await world.say("hello", chat(name))
                    await web.next_reply()
                await trio.sleep(LEASE)
                lost -= set(calls)
            answered.extend(reply.text for reply in web.replies)

    simulate(main, seeds=range(1), max_steps=50_000, allow=["pegasus"], twice=0, shrink=0)
    assert answered == [f"{n}: hello" for n in (1, 2, 3) for _ in names]


# ------------------------------------------------------------------ keys


@pytest.mark.parametrize(
    ("address", "key"),
    [
        (Address("web", "c1"), "web%3Ac1"),
        (Address("a", "b_c"), "a%3Ab_c"),
        (Address("a:b", "c"), "a%3Ab%3Ac"),
        (Address("slack", "#general"), "slack%3A%23general"),
        (Address("x", "../../etc/passwd"), "x%3A%2E%2E%2F%2E%2E%2Fetc%2Fpasswd"),
        (Address("x", "ü€😀"), "x%3A%C3%BC%E2%82%AC%F0%9F%98%80"),
        (Address("x", "a.b~c*\0\n"), "x%3Aa%2Eb%7Ec%2A%00%0A"),
        (Address("x", "\udc80"), "x%3A%ED%B2%80"),
    ],
)
def test_the_key_of_a_chat_is_a_file_name(address, key):
    assert chat_key(address) == key


def test_long_keys_are_cut_and_stay_different():
    names = [chat_key(Address("x", "a" * 500 + tail)) for tail in "bc"]
    assert names[0] != names[1]
    assert all(len(name) == LONGEST_KEY for name in names)
    assert len(chat_key(Address("x", "a" * (LONGEST_KEY - 4)))) == LONGEST_KEY


def test_nobody_can_choose_a_name_whose_key_is_that_of_a_long_one():
    long = chat_key(Address("x", "a" * 500))
    assert chat_key(Address("x", long.removeprefix("x%3A"))) != long


async def test_chats_with_unusual_names_are_answered(autojump_clock):
    web = FakeChannel("web")
    names = ["../../x", "a/b", ".", "..", "CON", "a" * NAME_LENGTH, "Ünïcode", "white space", "%41", "A"]
    model = ScriptedModel(lambda request: say("yes"))
    async with open_chats(model, settings=each_chat(speech="direct"), web=web) as world:
        for name in names:
            await world.say("hello", chat(name))
        await world.idle()
        assert sorted(message.channel.channel_id for message in web.replies) == sorted(names)
        assert {path.rpartition("/")[0] for path in world.disk.paths() if path.startswith("sessions")} == {"sessions"}
        assert len([path for path in world.disk.paths() if path.startswith("sessions/")]) == len(names)
