"""Approvals on Telegram: a question with buttons, which owners answer with a click, and which shows the answer."""

from contextlib import asynccontextmanager

import attrs
import trio

from pegasus.messages import ChannelInfo
from pegasus.settings import PolicySettings
from pegasus.testing.scripted import ScriptedModel, say
from pegasus.testing.world import kill
from tests.pegasus.app.test_approvals import Touch, at_work, outcome, say_to, submit, until_waiting
from tests.pegasus.channels.telegram.conftest import GROUP, OWNER, STRANGER, telegram_settings

HERE = ChannelInfo("telegram", str(OWNER), str(OWNER))
IN_GROUP = ChannelInfo("telegram", str(GROUP), str(OWNER))


@asynccontextmanager
async def asked(play, channel=HERE, **more):
    """A task of the owner waits for a yes; yields stage, tool, task, and the message with the question."""
    touch = Touch()
    rules = ({"tool": "touch", "decision": "ask"},)
    settings = attrs.evolve(telegram_settings(), policy=PolicySettings(rules=rules))
    world = {"task_model": at_work("x"), "tools": (touch.tool,)}
    async with play(ScriptedModel(lambda request: say()), settings=settings, world=world, **more) as stage:
        task_id = await submit(stage.world, channel)
        await until_waiting(stage.world, task_id)
        yield stage, touch, task_id, await stage.telegram.next_message()


def labels(message):
    return [button["text"] for row in message.reply_markup["inline_keyboard"] for button in row]


async def test_a_click_of_the_owner_allows_the_call_and_takes_the_place_of_the_buttons(play, autojump_clock):
    async with asked(play) as (stage, touch, task_id, question):
        assert labels(question) == [
            "Allow once",
            "Deny",
            "Same call always",
            "Tool in this task",
            "Tool for an hour",
            "Tool always",
        ]
        assert [len(row) for row in question.reply_markup["inline_keyboard"]] == [2, 2, 2]
        assert "touch" in question.text
        click = stage.telegram.click(question, "Allow once", user=OWNER)
        assert (await outcome(stage.world, task_id)).result == '"touched"'
        await trio.sleep(5)
        assert touch.touched == ["x"]
        assert "is allowed: touch will be run." in stage.telegram.clicks[click]["text"]
        assert question.reply_markup is None
        assert question.edits == 1
        assert "llowed" in question.text.splitlines()[-1]


async def test_in_a_group_nobody_but_owners_can_click(play, autojump_clock):
    async with asked(play, IN_GROUP) as (stage, touch, task_id, question):
        assert question.chat_id == GROUP
        click = stage.telegram.click(question, "Allow once", user=STRANGER)
        await trio.sleep(5)
        assert stage.telegram.clicks[click] == {
            "callback_query_id": click,
            "text": "Only my owner may decide about that.",
            "show_alert": True,
        }
        assert touch.touched == []
        stage.telegram.click(question, "Deny", user=OWNER)
        assert "has said no" in (await outcome(stage.world, task_id)).result
        assert touch.touched == []


async def test_an_answer_that_is_given_elsewhere_is_shown_here(play, autojump_clock):
    async with asked(play) as (stage, _touch, task_id, question):
        approval = question.text.split("/approve ")[1].split()[0]
        await say_to(stage.world, f"/approve {approval}")
        assert (await outcome(stage.world, task_id)).result == '"touched"'
        await trio.sleep(5)
        assert question.reply_markup is None
        assert f"{approval} (touch) is allowed by cli:main." in question.text


async def test_a_click_after_a_restart_finds_its_message(play, autojump_clock):
    async with asked(play) as (stage, _, _task_id, question):
        telegram, disk = stage.telegram, stage.world.disk
        await kill(stage.world)
    touch = Touch()
    rules = ({"tool": "touch", "decision": "ask"},)
    settings = attrs.evolve(telegram_settings(), policy=PolicySettings(rules=rules))
    world = {"task_model": at_work("x"), "tools": (touch.tool,)}
    model = ScriptedModel(lambda request: say())
    async with play(model, telegram, settings=settings, disk=disk, world=world) as stage:
        telegram.click(question, "Tool always", user=OWNER)
        await trio.sleep(30)
        assert question.reply_markup is None
        assert telegram.shown.count((OWNER, question.text)) == 1
        assert "llowed" in question.text.splitlines()[-1]
        assert touch.touched == ["x"]


async def test_a_click_that_makes_no_sense_is_answered(play, autojump_clock):
    async with asked(play) as (stage, touch, _, question):
        for data in ("a:a-0000:once", "a:x", "p:WRONGCOD", "", "x" * 64, "a:a-0000:ever"):
            question.reply_markup = {"inline_keyboard": [[{"text": "?", "callback_data": data}]]}
            click = stage.telegram.click(question, "?", user=OWNER)
            await trio.sleep(5)
            assert stage.telegram.clicks[click]["text"]
        assert touch.touched == []
