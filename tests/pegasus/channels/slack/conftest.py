"""The whole agent in virtual time with the Slack adapter, and a fake Slack in memory."""

from __future__ import annotations

import re
from contextlib import asynccontextmanager

import attrs
import pytest
import trio

from pegasus.channels import WebhookRequest
from pegasus.channels.slack import SlackAdapter
from pegasus.messages import ChannelInfo, StoredFile
from pegasus.settings import AgentSettings, Settings, SlackSettings
from pegasus.storage import Commit, Post, keep_file
from pegasus.testing.scripted import ScriptedModel, call, say
from pegasus.testing.services.slack_events import SlackEnvelope, deliver, message_event, signed
from pegasus.testing.services.slack_server import SlackServer, open_slack
from pegasus.testing.services.slack_workspace import APP_TOKEN, BOT_TOKEN, SIGNING_SECRET, SlackWorkspace
from pegasus.testing.world import START, open_world

OWNER, FRIEND, STRANGER = "U0OWNER", "U0FRIEND", "U0STRANGER"


def answering(*texts: str) -> ScriptedModel:
    """A model that answers each message with "re: " and its last line, or with these texts, where it came from."""

    def answer(request):
        said = request.turns[-1].text
        head = re.findall(r"^\[channel: .*\]$", said, re.MULTILINE)[-1]
        fields = dict(part.partition(": ")[::2] for part in head[1:-1].split(" | "))
        text = said.rpartition(head)[2]
        answer.count += 1
        words = texts[(answer.count - 1) % len(texts)] if texts else f"re: {text.split(chr(10))[-1]}"
        thread = {"replyTo": fields["thread"]} if "thread" in fields else {}
        return say("", call("reply", f"c{answer.count}", channelId=fields["id"], text=words, **thread))

    answer.count = 0
    return ScriptedModel(answer)


def slack_settings(**keys) -> Settings:
    keys = {"enabled": True, "bot_token": BOT_TOKEN, "app_token": APP_TOKEN, "allow_from": (FRIEND,), **keys}
    channels = {**Settings().channels, "slack": SlackSettings(**keys)}
    return Settings(agent=AgentSettings(owners=("cli:*", f"slack:{OWNER}")), channels=channels)


async def post(stage, text, channel_id, reply_to=None, files=(), **metadata):
    """Put a reply into the outbox, as the agent does. files: names; the content is "hello"."""
    channel = ChannelInfo("slack", channel_id, reply_to=reply_to)
    key = f"test/{trio.current_time()}/{text[:40]}/{channel_id}"
    path = await keep_file(stage.world.journal, b"hello", "txt") if files else ""
    stored = tuple(StoredFile(name, "text/plain", path, 5) for name in files)
    reply = Post(key, text, channel_id, channel, "slack", reply_to, metadata, stored)
    await stage.world.journal.ask(Commit, (), (reply,))


async def ready(stage):
    await stage.slack.until(lambda _: any(socket.is_open for socket in stage.server.sockets))


class Stage:
    """A world with its Slack."""

    def __init__(self, world, server: SlackServer, adapter: SlackAdapter, model: ScriptedModel) -> None:
        self.world, self.server, self.adapter, self.model = world, server, adapter, model
        self.slack = server.workspace
        self.dm = self.slack.open_dm(OWNER)

    async def emit(self, envelope: SlackEnvelope):
        """Deliver by Socket Mode, once the adapter is connected, and wait until it was acknowledged."""
        await self.slack.until(lambda _: any(socket.is_open for socket in self.server.sockets))
        delivery = await self.server.emit(envelope)
        with trio.fail_after(60):
            await delivery.acknowledged.wait()
        return delivery

    def message(self, text: str, user: str = OWNER, channel: str = "", **more) -> SlackEnvelope:
        return message_event(self.slack, channel or self.dm, user, text, **more)

    async def say(self, text: str, user: str = OWNER, channel: str = "", **more):
        return await self.emit(self.message(text, user, channel, **more))

    async def until_posted(self, count: int) -> list[str]:
        """Wait for so many messages of the app; return their texts."""
        with trio.fail_after(7200):
            await self.slack.until(lambda slack: len(slack.texts()) >= count)
        return self.slack.texts()

    async def settle(self) -> list[str]:
        """Wait until nothing is under way, also what waits for further parts; return the texts of all messages."""
        for _ in range(2):  # pictures are read in real time
            await self.world.idle()
            await trio.sleep(30)
        return self.slack.texts()

    async def post(self, headers, body: bytes):
        """Hand in a webhook as the HTTP server does; return the answer."""
        return await self.adapter.receive(WebhookRequest("POST", "/channels/slack/events", headers, body))

    async def webhook(self, envelope, **how):
        return await self.post(*signed(envelope, self.slack.now(), **how))

    async def deliver(self, envelope: SlackEnvelope) -> int:
        """Deliver by the Events API with its retries; return the number of attempts."""

        async def post(headers, body):
            return (await self.post(headers, body)).status

        return await deliver(self.slack, envelope, post)

    def owner_places(self) -> list[ChannelInfo]:
        """Where the daemon tells owners of somebody unknown."""
        return [ChannelInfo("slack", OWNER, OWNER)]

    def prompts(self) -> str:
        """Everything that a model has read."""
        return "\n".join(
            turn.text for request in self.model.requests for turn in request.turns if hasattr(turn, "text")
        )


@pytest.fixture
def play():
    """`async with play() as stage`: the agent with Slack. The same workspace and disk may be given to the next one."""

    @asynccontextmanager
    async def open_stage(model=None, workspace=None, *, disk=None, settings=None, fault=None, world=None, **keys):
        workspace, model = workspace or SlackWorkspace(start=START // 1000), model or answering()
        for id, name in ((OWNER, "anna"), (FRIEND, "ben"), (STRANGER, "eve")):
            if id not in workspace.users:
                workspace.add_user(name, id=id)
        settings = settings or slack_settings(**keys)
        workspace.fault = fault or workspace.fault
        made = []
        async with open_slack(workspace, in_memory=True) as server:

            def services(context):
                context = attrs.evolve(context, transport=server.transport())
                made.append(SlackAdapter(settings.channels["slack"], context, server.connect))
                return made

            options = {"settings": settings, "disk": disk, "services": services, **(world or {})}
            async with open_world(model, **options) as running:
                yield Stage(running, server, made[0], model)

    return open_stage


@pytest.fixture
def by_webhook():
    """Settings for the Events API."""
    return slack_settings(app_token="", signing_secret=SIGNING_SECRET)
