"""The bridge for Discord, against the Discord of the test kit."""

from __future__ import annotations

import sys
from contextlib import aclosing, asynccontextmanager

import anyio
import pytest

from pegasus.bridge import BridgeState
from pegasus.messages import ChannelInfo, Media
from pegasus.testing.bridges.discord import ANNA, BOT, CHANNEL, DIRECT, DiscordService
from pegasus.testing.bridges.discord import TOKEN as DISCORD_TOKEN
from pegasus.testing.bridges.steps import Step, StepPoints
from pegasus.testing.bridges.suite import examine_bridge
from pegasus.testing.bridges.verdict import DeliveryClass
from pegasus.testing.services.server import every_other, open_service
from tests.examples.conftest import EXAMPLES, load, run_without_variables, texts_of
from tests.pegasus.gateway.world import TOKEN, world

discord_bridge = load("discord_bridge")
ROOM = ChannelInfo("discord", CHANNEL)
MENTION = {"content": f"<@{BOT['id']}> hello", "mentions": [BOT]}


@asynccontextmanager
async def open_discord():
    service = DiscordService()
    service.points = StepPoints(lambda: None)
    async with open_service(service):
        yield service


@asynccontextmanager
async def running(discord, gateway, tmp_path):
    bridge = discord_bridge.DiscordMessenger(DISCORD_TOKEN, f"{discord.base_url}/api/v10")
    state = BridgeState.load(tmp_path / "state")
    async with bridge.http, bridge.files, anyio.create_task_group() as tasks:
        tasks.start_soon(bridge.serve, gateway.url, TOKEN, state)
        count = len(discord.greetings)
        await discord.until(lambda: len(discord.greetings) > count)
        yield state
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def bridged(tmp_path):
    async with open_discord() as discord, world() as gateway, running(discord, gateway, tmp_path):
        yield discord, gateway


async def heard(gateway, count):
    await gateway.journal.until(lambda: len(gateway.journal.accepted) >= count)
    return [message for message, _ in gateway.journal.accepted]


async def test_a_message_reaches_the_agent_and_the_reply_the_channel(tmp_path):
    async with bridged(tmp_path) as (discord, gateway):
        said = discord.say("hello", channel_id=DIRECT)
        [message] = await heard(gateway, 1)
        assert (message.text, message.id) == ("hello", said["id"])
        assert message.channel == ChannelInfo("discord", DIRECT, ANNA["id"])
        assert "group" not in message.metadata
        direct = ChannelInfo("discord", DIRECT)
        await gateway.typing(direct, True)
        await gateway.say(direct, "**hi** @everyone")
        await discord.until(lambda: discord.sent(DIRECT))
        [reply] = discord.sent(DIRECT)
        assert (reply["content"], reply["allowed_mentions"]) == ("**hi** @everyone", {"parse": []})
        assert discord.typing == [DIRECT]


async def test_in_a_channel_mentions_answers_and_edits_are_told_apart_and_bots_are_not_heard(tmp_path):
    async with bridged(tmp_path) as (discord, gateway):
        first = discord.say("tea?")
        discord.say(**MENTION)
        own = discord.say("mine", BOT)
        discord.say("why?", type=19, referenced_message=own)
        discord.say("see", message_snapshots=[{"message": {"content": "news"}}])
        discord.edit(first, "tea? https://example.org", None)  # a preview of the link
        discord.edit(first, "coffee?", "2026-01-01T12:01:00+00:00")
        discord.say("beep", {**ANNA, "id": "400", "bot": True})
        discord.say("beep", webhook_id="500")
        discord.say("joined", type=7)
        discord.say("the end")
        messages = await heard(gateway, 6)
        assert [message.text for message in messages] == [
            "tea?",
            "@pegasus hello",
            "why?",
            "see",
            "(This message was edited. It now reads:)\ncoffee?",
            "the end",
        ]
        assert [message.metadata["mentioned"] for message in messages] == [False, True, True, False, False, False]
        assert messages[2].metadata["quotes"] == [{"kind": "answers", "author": "pegasus", "text": "mine"}]
        assert messages[3].metadata["quotes"] == [{"kind": "forwards", "author": "", "text": "news"}]


async def test_files_go_both_ways_and_no_file_server_sees_the_token(tmp_path):
    async with bridged(tmp_path) as (discord, gateway):
        discord.uploads["/attachments/1/a.png"] = ("image/png", b"picture")
        facts = {"filename": "a.png", "content_type": "image/png", "size": 7}
        place = f"{discord.base_url}/attachments/1"
        discord.say("look", attachments=[{**facts, "url": f"{place}/a.png"}, {**facts, "url": f"{place}/gone"}])
        [message] = await heard(gateway, 1)
        assert message.media == (Media("a.png", "image/png", "cGljdHVyZQ=="),)
        assert message.text.startswith("look\n[file a.png: Client error '401")
        [request, _] = [request for request in discord.requests if request.path.startswith("/attachments")]
        assert "authorization" not in request.headers
        files = tuple(Media(f"{number}.txt", "text/plain", "aGk=") for number in range(11))
        await gateway.say(ROOM, "see", media=files)
        await discord.until(lambda: len(discord.sent()) == 2)
        names = [each["filename"] for message in discord.sent() for each in message["attachments"]]
        assert names == [f"{number}.txt" for number in range(11)]
        assert (
            discord.uploads[f"/attachments/{discord.sent()[0]['attachments'][0]['url'].split('/')[-2]}/0.txt"][1]
            == b"hi"
        )


async def test_a_long_reply_is_cut_and_a_question_has_buttons_whose_click_is_the_answer(tmp_path):
    async with bridged(tmp_path) as (discord, gateway):
        await gateway.say(ROOM, "word " * 700 + "allow?", metadata={"approval": "a1"})
        await discord.until(lambda: len(discord.sent()) == 2)
        first, last = discord.sent()
        assert not first["components"]
        [row] = last["components"]
        assert [button["label"] for button in row["components"]] == ["Approve", "Deny"]
        id = discord.click(row["components"][0]["custom_id"], last)
        await discord.until(lambda: discord.clicks == [id])
        [answer] = await heard(gateway, 1)
        assert (answer.text, answer.channel.user_id, answer.id) == ("/approve a1", ANNA["id"], id)


@pytest.mark.parametrize("code", [None, 4000, 1001, 4009])
async def test_after_a_lost_connection_nothing_is_missing(tmp_path, code, monkeypatch):
    monkeypatch.setattr("pegasus.bridge.messenger.FIRST_PAUSE", 0.01)
    async with bridged(tmp_path) as (discord, gateway):
        discord.say("m0")
        await heard(gateway, 1)
        discord.drop_connections(code)
        discord.say("m1")
        await heard(gateway, 2)
        assert texts_of(gateway) == ["m0", "m1"]
        assert discord.greetings == ["identify", "identify" if code in (1001, 4009) else "resume"]


async def test_after_a_long_absence_the_channels_are_read(tmp_path):
    async with open_discord() as discord, world() as gateway:
        discord.say("before the first start")
        async with running(discord, gateway, tmp_path):
            discord.say("m0", channel_id=DIRECT)
            discord.say("m1")
            await heard(gateway, 2)
        discord.end_sessions()
        for number in range(2, 150):
            discord.say(f"m{number}", channel_id=DIRECT if number % 50 else CHANNEL)
        async with running(discord, gateway, tmp_path):
            await heard(gateway, 150)
        assert sorted(texts_of(gateway), key=lambda text: int(text[1:])) == [f"m{number}" for number in range(150)]
        assert discord.greetings == ["identify", "identify"]  # the session could not be resumed


async def test_a_gateway_that_answers_no_heartbeat_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr("pegasus.bridge.messenger.FIRST_PAUSE", 0.01)
    async with open_discord() as discord, world() as gateway:
        discord.heartbeat, discord.is_mute = 0.05, True
        async with running(discord, gateway, tmp_path):
            await discord.until(lambda: "resume" in discord.greetings)


async def test_a_bot_without_the_content_intent_is_told_to_its_owner_and_does_not_hurry(tmp_path, caplog, monkeypatch):
    pauses = []

    async def sleep(seconds):
        pauses.append(seconds)
        raise TimeoutError

    monkeypatch.setattr(discord_bridge.anyio, "sleep", sleep)
    async with open_discord() as discord:
        discord.allowed_intents = 1 << 9
        bridge = discord_bridge.DiscordMessenger(DISCORD_TOKEN, f"{discord.base_url}/api/v10")
        with pytest.raises(TimeoutError):
            async with aclosing(bridge.listen("")) as messages:
                await anext(messages)
        await bridge.http.aclose()
        await bridge.files.aclose()
    assert "switch on the Message Content Intent" in caplog.text
    assert pauses == [600]


async def test_nothing_is_lost_while_discord_fails_half_of_all_calls(tmp_path):
    async with bridged(tmp_path) as (discord, gateway):
        discord.fault = every_other(discord.busy)
        for number in range(4):
            await gateway.say(ROOM, f"r{number}")
        await discord.until(lambda: len(discord.sent()) == 4)
        assert discord.seen() == [f"r{number}" for number in range(4)]


async def test_a_channel_that_is_gone_holds_up_no_other_reply(tmp_path):
    async with bridged(tmp_path) as (discord, gateway):
        await gateway.say(ChannelInfo("discord", "999"), "lost")
        await gateway.say(ROOM, "heard")
        await discord.until(lambda: discord.sent())


@pytest.mark.tried(
    "services", "Discord, the example bridge killed between Discord and the agent", "exactly-once for minutes"
)
async def test_the_suite_proves_more_than_it_declares():
    command = [sys.executable, str(EXAMPLES / "discord_bridge.py")]
    found = await examine_bridge(command, DiscordService(), steps=[Step.HANDING_OUT, Step.SENT])
    assert (found.is_passed, found.delivery, found.declared) == (
        True,
        DeliveryClass.EXACTLY_ONCE,
        DeliveryClass.AT_LEAST_ONCE,
    )


def test_without_its_variables_it_says_which_are_missing():
    code, said = run_without_variables("discord_bridge")
    assert (code, said.partition(";")[0]) == (1, "not set: DISCORD_TOKEN, PEGASUS_TOKEN")
