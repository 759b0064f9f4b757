"""People apart: a guest has a conversation of their own, and nothing of the owner's stands in it."""

from __future__ import annotations

import json

import pytest

from pegasus.testing.provider.answers import Call
from tests.blackbox.support import Book, serving
from tests.blackbox.support.model import SILENCE, Thought, say

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


# ------------------------------------------------------------------ memory


def remembering(view):
    """A model that looks into all of memory, or writes there, as the message says."""
    name, _, rest = view.question.text.partition(" ")
    if view.results or not name.startswith("memory_"):
        return SILENCE if view.replied else say("\n".join(view.results) or f"echo: {view.question.text}")
    return Thought(calls=(Call(name, json.loads(rest or "{}")),))


FACTS = {
    "facts/user.md": "# User\n\n- The safe opens with 7781\n",
    "facts/shop.md": "# Shop\n> Summary: opening hours\nshared: true\n\n- The shop opens at nine\n",
}


@pytest.mark.parametrize("scope", ["global", "chat"])
async def test_the_owners_memory_answers_no_guest_but_for_what_is_shared(tmp_path, scope):
    book = Book(otherwise=remembering)
    async with serving(tmp_path, book, {**ANN, "agent.scope": scope}) as daemon:
        for path, text in FACTS.items():
            file = daemon.home / "data" / "memory" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        async with daemon.client() as owner, daemon.bridge("slack") as bridge:
            assert "7781" in await owner.ask('memory_search {"query": "opens"}')
            for n, channel in enumerate([by("eve", "D-eve"), by("eve", "C-group"), by("ann", "C-group")]):
                found = await said(bridge, 'memory_search {"query": "safe opens"}', channel)
                assert "opens at nine" in found, channel
                assert "7781" not in found, channel
                assert "facts/user.md" not in await said(bridge, f'memory_read {{"path": "facts/user{n}.md"}}', channel)
                assert "facts/shop.md" in await said(bridge, "memory_list", channel)
                assert "7781" not in await said(bridge, 'memory_read {"path": "facts/user.md"}', channel)
    for view in book.asked:
        if view.question.id != "c1":
            assert "7781" not in str(view.body)


async def test_a_guests_notes_are_that_guests_and_bounded(tmp_path):
    book = Book(otherwise=remembering)
    note = 'memory_append {"path": "facts/me.md", "entry": "- Likes: chess", "summary": "what Eve likes"}'
    async with serving(tmp_path, book, {**ANN, "limits.guest_memory_kb": 1}) as daemon:
        async with daemon.client() as owner, daemon.bridge("slack") as bridge:
            await said(bridge, note, by("eve", "D-eve"))
            assert "chess" in await said(bridge, 'memory_search {"query": "chess"}', by("eve", "D-eve"))
            assert "chess" not in await said(bridge, 'memory_read {"path": "facts/me.md"}', by("mal", "D-mal"))
            assert "chess" not in await owner.ask('memory_read {"path": "facts/me.md"}')
            long = json.dumps({"path": "facts/more.md", "entry": "x" * 1500})
            assert "allowed: 1,024" in await said(bridge, f"memory_append {long}", by("eve", "D-eve"))
            await daemon.restart()
        async with daemon.bridge("slack") as bridge:
            await bridge.say('memory_search {"query": "chess"}', channel=by("eve", "D-eve"))
            while "Likes: chess" not in (await bridge.reply())["text"]:
                pass
    assert (daemon.home / "data/guests/slack%3Aeve/memory/facts/me.md").exists()
