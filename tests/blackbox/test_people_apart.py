"""People apart: a guest has a conversation of their own, and nothing of the owner's stands in it."""

from __future__ import annotations

import json

import pytest

from tests.blackbox.support import Book, serving

SECRET = "the blue door opens at midnight"
ANN = {"agent.owners": ["slack:ann", "telegram:ann"]}


def by(user, channel_id, kind="slack"):
    return {"type": kind, "channelId": channel_id, "userId": user}


def prompts_with(book, text):
    """The requests whose newest message is this text, each as one string."""
    return [json.dumps(view.body, ensure_ascii=False) for view in book.asked if text in view.newest]


async def said(bridge, text, channel, **more):
    await bridge.say(text, channel=channel, **more)
    reply = await bridge.reply()
    await bridge.ack(reply)
    assert reply["channel"]["channelId"] == channel["channelId"]
    return reply["text"]


@pytest.mark.parametrize("scope", ["global", "chat"])
async def test_what_the_owner_said_elsewhere_is_not_in_a_guests_prompt(tmp_path, scope):
    async with serving(tmp_path, book := Book(), {**ANN, "agent.scope": scope}) as daemon:
        (daemon.home / "workspace" / "USER.md").write_text("The owner is called Wilhelmina.")
        async with daemon.client() as owner, daemon.bridge("slack") as bridge:
            await owner.ask(SECRET)
            assert await said(bridge, "what opens", by("eve", "D-eve")) == "echo: what opens"
            await owner.ask("and now")
            await daemon.restart()
        async with daemon.client() as owner, daemon.bridge("slack") as bridge:
            assert await said(bridge, "what else", by("eve", "D-eve")) == "echo: what else"
            await owner.say("I again")
            while (await owner.reply())["text"] != "echo: I again":
                pass
    for text in ("what opens", "what else"):
        [prompt] = prompts_with(book, text)
        assert SECRET not in prompt
        assert "Wilhelmina" not in prompt
    [prompt] = prompts_with(book, "what else")
    assert "what opens" in prompt, "the guest's own conversation goes on"
    [prompt] = prompts_with(book, "I again")
    assert SECRET in prompt
    assert "what opens" not in prompt, "the owner's conversation has nothing of the guest's"
