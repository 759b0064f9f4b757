"""Replies that an owner is asked about: text from outside was read, and they leave the conversation."""

from __future__ import annotations

import base64

import pytest

from tests.blackbox.support import SILENCE, Book, Call, Thought, serving
from tests.blackbox.support.model import reply

OWNERS = {"agent.owners": ["web:*", "cli:*", "slack:ann"], "policy.rules": []}
NOTE = {"name": "note.txt", "mime": "text/plain", "data": base64.b64encode(b"send it").decode()}


def in_slack(user, channel_id="#general"):
    return {"type": "slack", "channelId": channel_id, "userId": user}


def content(frame):
    """The files of a reply frame, by name."""
    return {file["name"]: base64.b64decode(file["data"]) for file in frame.get("media", ())}


async def test_where_guests_have_spoken_a_file_for_an_owner_is_asked_about_and_the_text_goes_out(tmp_path):
    """Killed after the question: a yes sends the file as it was when the agent wanted to send it."""
    sent = Call("reply", {"channelId": "#general", "text": "here it is", "media": ["plan.txt"]})
    book = Book({"the plan, please": [Thought(calls=(sent,)), SILENCE]})
    async with serving(tmp_path, book, OWNERS) as daemon:
        plan = daemon.home / "workspace" / "plan.txt"
        plan.write_text("the plan")
        async with daemon.client() as owner, daemon.bridge("slack") as bridge:
            await bridge.say("hello", channel=in_slack("eve"))
            await bridge.get("reply", text="echo: hello")
            await bridge.say("the plan, please", channel=in_slack("ann"))
            frame = await bridge.reply()
            assert (frame["text"], content(frame)) == ("here it is", {})
            shown = await owner.get("approval", state="open")
            assert (shown["tool"], shown["arguments"]["media"][0]["name"]) == ("reply", "plan.txt")
            await bridge.fence()
        daemon.kill()
        plan.write_text("another plan")
        await daemon.start()
        async with daemon.client(lastSeq=0) as owner, daemon.bridge("slack", lastSeqs={"#general": 9}) as bridge:
            assert (await owner.get("approval", state="open"))["id"] == shown["id"]
            await owner.say(f"/approve {shown['id']}")
            await owner.get("approval", id=shown["id"], state="allowed")
            frame = await bridge.get("reply")
            while not frame.get("media"):
                frame = await bridge.get("reply")
            assert content(frame) == {"plan.txt": b"the plan"}
            assert frame["channel"]["channelId"] == "#general"


@pytest.mark.parametrize("is_allowed", [True, False])
async def test_a_reply_to_another_conversation_is_sent_after_a_yes_only_and_exactly(tmp_path, is_allowed):
    book = Book(
        {"tell them": [Thought(calls=(reply("the news", "#general", "slack"), reply("I have asked you"))), SILENCE]}
    )
    async with serving(tmp_path, book, OWNERS) as daemon, daemon.client() as owner, daemon.bridge("slack") as bridge:
        await bridge.say("hi", channel=in_slack("ann"))
        await bridge.get("reply", text="echo: hi")
        await owner.ask("look at this", media=[NOTE])
        await owner.say("tell them")
        shown = await owner.get("approval", state="open")
        facts = {key: shown["arguments"][key] for key in ("channelType", "channelId", "text")}
        assert facts == {"channelType": "slack", "channelId": "#general", "text": "the news"}
        assert "file" in shown["why"]
        await owner.get("reply", text="I have asked you")
        assert bridge.texts() == ["echo: hi"]
        await owner.say(f"/{'approve' if is_allowed else 'deny'} {shown['id']}")
        await owner.get("approval", id=shown["id"])
        if is_allowed:
            assert (await bridge.reply())["text"] == "the news"
        await bridge.fence()
        assert bridge.texts() == ["echo: hi", *(["the news"] if is_allowed else [])]


async def test_what_the_owner_has_typed_in_full_is_said_without_a_question_once(tmp_path):
    order = 'Say "the boat is in" to #general'
    said = reply("the boat is in", "#general", "slack")
    book = Book({order: [Thought(calls=(said,)), SILENCE], "again": [Thought(calls=(said,)), SILENCE]})
    async with serving(tmp_path, book, OWNERS) as daemon, daemon.client() as owner, daemon.bridge("slack") as bridge:
        await bridge.say("hi", channel=in_slack("ann"))
        await bridge.get("reply", text="echo: hi")
        await owner.ask("look at this", media=[NOTE])
        await owner.say(order)
        assert (await bridge.reply())["text"] == "the boat is in"
        await owner.say("again")
        await owner.get("approval", state="open")
        assert bridge.texts() == ["echo: hi", "the boat is in"]


async def test_one_answer_asks_about_few_replies(tmp_path):
    """Many questions would hide the ones that matter, and keep others from being asked."""
    many = Thought(calls=tuple(reply(f"the news {n}", "#general", "slack") for n in range(20)))
    book = Book({"tell them": [many, SILENCE]})
    async with serving(tmp_path, book, OWNERS) as daemon, daemon.client() as owner, daemon.bridge("slack") as bridge:
        await bridge.say("hi", channel=in_slack("ann"))
        await bridge.get("reply", text="echo: hi")
        await owner.ask("look at this", media=[NOTE])
        await owner.say("tell them")
        await owner.ask("next")
        waiting = (await owner.call("approvals.list"))["approvals"]
        assert [each["arguments"]["text"] for each in waiting] == [f"the news {n}" for n in range(5)]
        assert "5 replies of one answer" in book.about("tell them")[1].results[-1]
        assert bridge.texts() == ["echo: hi"]


async def test_the_same_words_twice_in_one_answer_go_out_once(tmp_path):
    order = 'Say "the boat is in" to #general'
    said = reply("the boat is in", "#general", "slack")
    book = Book({order: [Thought(calls=(said, said)), SILENCE]})
    async with serving(tmp_path, book, OWNERS) as daemon, daemon.client() as owner, daemon.bridge("slack") as bridge:
        await bridge.say("hi", channel=in_slack("ann"))
        await bridge.get("reply", text="echo: hi")
        await owner.ask("look at this", media=[NOTE])
        await owner.say(order)
        await owner.get("approval", state="open")
        await bridge.fence()
        assert bridge.texts() == ["echo: hi", "the boat is in"]
