"""Before a scripted journal: how the agent starts, and what it does with an item that has failed again and again."""

import attrs
import pytest
import trio

from actors import Child, open_supervisor
from pegasus.conversation.entry import Entry, encode
from pegasus.main_agent import AgentServices, AgentToolset, main_agent
from pegasus.messages import ChannelInfo, InboundMessage, OutboundMessage
from pegasus.models.base import ToolCall
from pegasus.settings import LiveValue
from pegasus.storage import (
    Commit,
    CompleteItem,
    Item,
    Lease,
    NextItem,
    Posted,
    ReadFile,
    ReplaceFile,
    TakeItem,
    TakeLease,
    Waiting,
)
from pegasus.testing.scripted import ScriptedModel, say
from pegasus.tools import ToolExecutor

HERE = ChannelInfo("cli", "main")


@attrs.define
class Journal:
    """Hands out one item, remembers what is posted and done. known: replies by their keys."""

    item: Item
    lane: str = "main"
    session: bytes = b""
    known: dict = attrs.field(factory=dict)
    posts: list = attrs.field(factory=list)
    done: trio.Event = attrs.field(factory=trio.Event)

    async def run(self, inbox):
        waiting = []
        async for message in inbox:
            match message:
                case TakeLease(reply, owner):
                    reply.send(Lease(owner, 1))
                case ReadFile(reply, _):
                    reply.send(self.session)
                case NextItem(reply, lane):
                    reply.send(self.item) if lane == self.lane and not self.done.is_set() else waiting.append(reply)
                case TakeItem(reply, n):
                    reply.send(
                        self.item if (n, self.lane) == (self.item.n, "main") and not self.done.is_set() else None
                    )
                case Posted(reply, keys):
                    reply.send(tuple(self.known.get(key) for key in keys))
                case Waiting(reply):
                    reply.send(1)
                case ReplaceFile(reply, _, content):
                    self.session = content
                    reply.send(None)
                case Commit(reply, _, posts):
                    self.posts += posts
                    reply.send(tuple(OutboundMessage(post.text, HERE, 1) for post in posts))
                case CompleteItem():
                    self.done.set()


async def handle(journal):
    """Let the agent handle the item; gives the texts that it posted."""
    services = AgentServices(ScriptedModel(lambda _: say("")), LiveValue(AgentToolset("", ToolExecutor(()))), lambda: 0)
    async with open_supervisor([Child("journal", journal.run)]) as root:
        await root.start_child(Child("agent", main_agent, root.ref("journal"), services))
        await journal.done.wait()
    return [post.text for post in journal.posts]


def item(text, attempt):
    return Item(5, InboundMessage(text, HERE, "m-1"), attempt)


ANSWERED = b"".join(
    map(
        encode,
        [
            Entry(0, "user", "x", item=5),
            Entry(0, "assistant", "", (ToolCall("c1", "reply", {"text": "answer", "channelId": "main"}),)),
            Entry(0, "tool", '{"queued":true}', call_id="c1"),
        ],
    )
)


async def test_a_message_that_has_failed_three_times_gets_an_apology(autojump_clock):
    [text] = await handle(Journal(item("x", 4)))
    assert "failed 3 times" in text


async def test_one_that_was_answered_before_gets_none(autojump_clock):
    """Whatever failed then, it was not the answer."""
    assert await handle(Journal(item("x", 4), session=ANSWERED)) == []


@pytest.mark.parametrize("command", ["/stop", "/help", "/status"])
async def test_a_command_that_has_failed_three_times_gets_an_apology(autojump_clock, command):
    [text] = await handle(Journal(item(command, 4), lane="control"))
    assert "failed 3 times" in text


@pytest.mark.parametrize("attempt", [1, 2, 4])
@pytest.mark.parametrize("command", ["/stop", "/help"])
async def test_a_command_that_was_answered_before_is_not_carried_out_again(autojump_clock, command, attempt):
    """The crash came before the inbox knew that it was done. A /stop would end what nobody wanted ended."""
    answered = {"main/5/command": OutboundMessage("answered", HERE, 1)}
    assert await handle(Journal(item(command, attempt), lane="control", known=answered)) == []


async def test_the_agent_is_up_before_it_asks_what_became_of_delegated_work(autojump_clock):
    """Who answers that may wait for the journal, and a journal that is down waits for the end of this start."""
    spawned = Entry(0, "assistant", "", (ToolCall("s1", "spawn_subagent", {}),))
    journal = Journal(item("x", 1), session=b"".join(map(encode, [Entry(0, "user", "x", item=5), spawned])))
    answer = trio.Event()

    class Busy:
        async def result_of(self, made, key):
            await answer.wait()
            return '{"status":"spawned"}'

    services = AgentServices(
        ScriptedModel(lambda _: say("")), LiveValue(AgentToolset("", ToolExecutor(()))), lambda: 0, work=Busy()
    )
    async with open_supervisor([Child("journal", journal.run)]) as root:
        with trio.fail_after(1):
            await root.start_child(Child("agent", main_agent, root.ref("journal"), services))
        answer.set()
        await journal.done.wait()
