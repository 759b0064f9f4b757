"""Main Agents that delegate, as scripts, and ways to look at what became of it."""

import re

import attrs
import trio

from pegasus.messages import Address, ChannelInfo
from pegasus.settings import AgentSettings, Settings, TaskSettings
from pegasus.tasks import ListTasks
from pegasus.testing.scripted import call, say
from pegasus.testing.world import FakeChannel
from tests.pegasus.conversation.test_projection import is_valid

SLACK = ChannelInfo("slack", "D-general", "zhangsan", "thread:1")
CLI_OWNS = Settings(agent=AgentSettings(owners=("cli:*",)))
"""All others are guests."""
RESUME = Settings(tasks=TaskSettings(recovery="resume"))
FAIL = Settings(tasks=TaskSettings(recovery="fail"))
_LINE = re.compile(r"^\[channel: (\S+) \| id: (\S+)(?: \| thread: (\S+))?(?: \| user: \S+)?\]\n", re.MULTILINE)


def add_tool(world, name, run, **more):
    """Give the Main Agent of a world another tool."""
    services = world.tree.services.main_agent
    for each in (services, services.for_chat(Address("any", "chat"))):
        tools = each.toolset.now.executor._tools
        clock = tools["current_time"]
        tools[name] = attrs.evolve(clock, spec=attrs.evolve(clock.spec, name=name), run=run, **more)


def add_sleepy(world):
    """Give the Main Agent a tool that never ends by itself."""

    async def run(arguments, context):
        await trio.sleep_forever()

    add_tool(world, "sleepy", run)


def reply(text, channel_id="main", call_id="r", **more):
    return call("reply", call_id, text=text, channelId=channel_id, **more)


def spawn(task, call_id="s", **more):
    return call("spawn_subagent", call_id, description=task, input=task, **more)


def asked(request):
    """What the last message or notice says, and how to answer where it came from; None after results alone."""
    text = request.turns[-1].text
    lines = list(_LINE.finditer(text))
    if not lines:
        return None
    kind, channel_id, thread = lines[-1].groups()
    where = {"channel_id": channel_id, "channelType": kind, **({"replyTo": thread} if thread else {})}
    return text[lines[-1].end() :], where


def delegate(request):
    """A voice that hands on every message, and tells where it was asked what comes back."""
    assert is_valid(request.turns)
    found = asked(request)
    if found is None:
        return say()
    text, where = found
    if text.startswith("[Task "):
        return say("", reply(text, **where))
    return say("", reply("on it", **where), spawn(text))


def both():
    return FakeChannel("cli"), FakeChannel("slack")


def agent_of(world):
    return world.root.ref("tasks/agent")


async def tasks_of(world):
    return await agent_of(world).ask(ListTasks, None)


def crash(world, path):
    """End an actor as a defect would; its supervisor starts it again."""
    world.root.ref(path)._cell.incarnation.kill("a test")


def notices(session):
    return [line for line in session if line.get("metadata", {}).get("type") == "task_notify"]


def result_of(session, name):
    """The results of all calls of a tool, as the model saw them."""
    ids = {made["id"] for line in session for made in line.get("toolCalls", ()) if made["name"] == name}
    return [line["content"] for line in session if line.get("toolCallId") in ids]
