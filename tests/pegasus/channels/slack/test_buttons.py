"""Buttons: only owners decide, an answer takes the buttons away wherever it was given, one click lets somebody in."""

import attrs

from pegasus.channels.slack.buttons import section_blocks
from pegasus.messages import ApprovalNotice, ChannelInfo
from pegasus.settings import PolicySettings
from pegasus.testing.scripted import ScriptedModel, say
from pegasus.testing.services.slack_events import click_event
from pegasus.testing.world import kill
from tests.pegasus.app.test_approvals import Touch, at_work, outcome, submit, until_waiting
from tests.pegasus.channels.slack.conftest import FRIEND, OWNER, STRANGER, post, ready, slack_settings

QUESTION = "May task 3 run shell_exec?\n```\ngit push <origin>\n```\n/approve a-7f3k"


def buttons(message):
    return [
        element["action_id"] for block in message.blocks if block["type"] == "actions" for element in block["elements"]
    ]


async def ask(stage, **metadata):
    """Show a question of the agent; return its message."""
    decisions = []

    async def decide(id, decision, by):
        decisions.append((id, decision, by))
        return f"{id} is allowed: shell_exec will be run."

    stage.adapter.buttons._context = attrs.evolve(stage.adapter.context, decide=decide)
    await ready(stage)
    await post(stage, QUESTION, stage.dm, **(metadata or {"approval": "a-7f3k"}))
    await stage.until_posted(1)
    return stage.slack.posts[0], decisions


async def click(stage, message, user, action, value="a-7f3k", **more):
    event = click_event(stage.slack, user, message.channel, message.ts, action, value, **more)
    event.payload["message"]["text"] = message.text
    await stage.emit(event)
    await stage.settle()


async def test_an_owner_answers_by_a_button_and_the_answer_takes_its_place(play, autojump_clock):
    async with play() as stage:
        message, decisions = await ask(stage, approval="a-7f3k", scopes=["once", "arguments", "tool"])
        assert buttons(message) == ["allow", "deny", "scope:arguments", "scope:tool"]
        assert "git push &lt;origin&gt;" in message.blocks[0]["text"]["text"]
        await click(stage, message, OWNER, "scope:tool")
        assert decisions == [("a-7f3k", "tool", f"slack:{stage.dm} ({OWNER})")]
        assert buttons(message) == []
        assert message.text.startswith("May task 3 run")
        assert message.text.endswith("a-7f3k is allowed: shell_exec will be run.")


async def test_nobody_else_decides(play, autojump_clock):
    async with play() as stage:
        message, decisions = await ask(stage)
        stage.slack.members[stage.dm] |= {FRIEND, STRANGER}
        for user in (FRIEND, STRANGER):
            await click(stage, message, user, "allow")
        assert decisions == []
        assert buttons(message) == ["allow", "deny", "scope:arguments"]
        assert [user for _, user, _ in stage.slack.ephemeral] == [FRIEND, STRANGER]


async def test_a_click_that_makes_no_sense_decides_nothing(play, autojump_clock):
    async with play() as stage:
        message, decisions = await ask(stage)
        await click(stage, message, OWNER, "brand_new")
        await click(stage, message, OWNER, "allow", actions=[])
        await click(stage, message, OWNER, "allow", type="view_submission")
        assert decisions == []


async def test_a_click_that_slack_delivers_again_counts_once(play, autojump_clock):
    async with play() as stage:
        message, decisions = await ask(stage)
        event = click_event(stage.slack, OWNER, message.channel, message.ts, "deny", "a-7f3k")
        await stage.emit(event)
        await stage.emit(event)
        assert len(decisions) == 1


async def test_an_answer_that_was_given_elsewhere_takes_the_buttons_away(play, autojump_clock):
    async with play() as stage:
        message, _ = await ask(stage)
        notice = ApprovalNotice("a-7f3k", "shell_exec", {}, "", "owner", 0, "denied", by="web:main")
        await stage.world.root.ref("channels/slack/adapter").tell(notice)
        await stage.settle()
        assert buttons(message) == []
        assert message.text.endswith("a-7f3k (shell_exec) is denied by web:main.")
        assert message.text.startswith("May task 3 run")


async def test_a_task_waits_for_the_click_over_a_restart_and_goes_on(play, autojump_clock):
    touch = Touch()
    settings = attrs.evolve(slack_settings(), policy=PolicySettings(rules=({"tool": "touch", "decision": "ask"},)))
    world = {"task_model": at_work("x"), "tools": (touch.tool,)}
    async with play(ScriptedModel(lambda request: say()), settings=settings, world=world) as stage:
        task_id = await submit(stage.world, ChannelInfo("slack", stage.dm, OWNER))
        await until_waiting(stage.world, task_id)
        await stage.until_posted(1)
        await stage.settle()
        await kill(stage.world)
    again = {"workspace": stage.slack, "disk": stage.world.disk, "settings": settings, "world": world}
    async with play(ScriptedModel(lambda request: say()), **again) as stage:
        [question] = stage.slack.posts
        value = question.blocks[-1]["elements"][0]["value"]
        await click(stage, question, OWNER, "allow", value)
        assert (await outcome(stage.world, task_id)).result == '"touched"'
        assert touch.touched == ["x"]
        assert buttons(question) == []
        assert question.text.endswith("is allowed: touch will be run.")


async def test_one_click_lets_somebody_in(play, autojump_clock):
    async with play() as stage:
        stage.world.tree.services.environment.pairing.owner_channels = stage.owner_places()
        dm = stage.slack.open_dm(STRANGER)
        await stage.say("let me in", STRANGER, dm)
        await stage.until_posted(2)
        [offer] = [found for found in stage.slack.posts if found.channel == stage.dm]
        assert buttons(offer) == ["pair"]
        value = offer.blocks[-1]["elements"][0]["value"]
        stage.slack.members[stage.dm].add(FRIEND)
        await click(stage, offer, FRIEND, "pair", value)
        await stage.say("still not", STRANGER, dm)
        await click(stage, offer, OWNER, "pair", value)
        assert buttons(offer) == []
        await stage.say("thank you", STRANGER, dm)
        assert (await stage.settle())[2:] == ["re: thank you"]
        assert "let me in" not in stage.prompts()
        assert "still not" not in stage.prompts()


def test_a_long_text_is_cut_into_blocks_that_slack_takes_and_code_stays_code():
    code = "\n".join(f"line {n}" for n in range(900))
    blocks = section_blocks(f"Before\n```\n{code}\n```\nafter")
    texts = [block["text"]["text"] for block in blocks]
    assert len(texts) > 2
    assert all(len(text) <= 3000 and text.count("```") % 2 == 0 for text in texts)
    assert all(f"line {n}\n" in "".join(text + "\n" for text in texts) for n in range(900))
    assert all(len(block["text"]["text"]) <= 3000 for block in section_blocks("x" * 20_000))
