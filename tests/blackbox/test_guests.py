"""Guests: whoever is not in `agent.owners`. Their commands act on their own conversation, and they get a sentence, not an error."""

from __future__ import annotations

import pytest

from tests.blackbox.support import HANG, Book, serving, until
from tests.blackbox.support.files import session
from tests.blackbox.support.work import Office, under_way, unfinished

ANN_OWNS = {"agent.owners": ["cli:*", "web:*", "slack:ann"]}


def by(user, channel_id="#general", kind="slack"):
    """The channel of a message that this user writes."""
    return {"type": kind, "channelId": channel_id, **({"userId": user} if user else {})}


async def answered(bridge, text, channel):
    """Send a message of somebody in the channel; the text of the next reply there."""
    await bridge.say(text, channel=channel)
    reply = await bridge.reply()
    await bridge.ack(reply)
    return reply["text"]


@pytest.mark.parametrize("place", [("eve", "#general"), (None, "D-eve")])
async def test_the_stop_of_a_guest_does_not_end_a_thought_for_the_owner(stage, name, place):
    async with stage.play(book := Book(), name) as daemon, daemon.client() as owner, daemon.bridge(name) as bridge:
        book.hold()
        await owner.say("a long thought")
        await book.waiting()
        told = await answered(bridge, "/stop", by(*place, kind=name))
        assert told.startswith("Nothing was running.")
        assert "long thought" not in told
        book.release()
        assert (await owner.reply())["text"] == "echo: a long thought"


async def test_the_stop_of_a_guest_does_not_end_a_thought_for_another_guest_of_the_channel(stage, name):
    async with stage.play(book := Book(), name) as daemon, daemon.bridge(name) as bridge:
        book.hold()
        await bridge.say("a long thought", channel=by("eve", kind=name))
        await book.waiting()
        assert (await answered(bridge, "/stop", by("mal", kind=name))).startswith("Nothing of yours was running.")
        book.release()
        assert (await bridge.reply())["text"] == "echo: a long thought"


async def test_the_stop_of_a_guest_ends_what_is_thought_for_that_guest(stage, name):
    book = Book({"a long thought": HANG})
    async with stage.play(book, name) as daemon, daemon.bridge(name) as bridge:
        await bridge.say("a long thought", channel=by("eve", kind=name))
        await book.reached(1)
        assert "a long thought" in await answered(bridge, "/stop", by("eve", kind=name))
        await book.abandoned()
        assert await answered(bridge, "next", by("eve", kind=name)) == "echo: next"


async def test_the_owner_stops_a_thought_for_a_guest(stage, name):
    book = Book({"a long thought": HANG})
    async with stage.play(book, name) as daemon, daemon.client() as owner, daemon.bridge(name) as bridge:
        await bridge.say("a long thought", channel=by("eve", kind=name))
        await book.reached(1)
        assert await owner.ask("/stop") == "Nothing was running.", "the guest's conversation is another one"
        [ended] = (await owner.call("stop"))["ended"]
        assert (ended["kind"], ended["what"]) == ("thought", "a long thought")
        await book.abandoned()


async def test_the_stop_of_a_guest_ends_tasks_of_guests_there_and_spares_those_of_the_owner(tmp_path):
    office = Office({"for eve": HANG, "for ann": HANG, "elsewhere": HANG})
    # One call for each of the tasks that go on, one for the guest who is told, and one that is kept for owners.
    async with (
        serving(tmp_path, office, {**ANN_OWNS, "models.max_concurrent_calls": 4}) as daemon,
        daemon.bridge("slack") as bridge,
        daemon.client("web", "c1") as owner,
    ):
        await bridge.say("do for eve", channel=by("eve"))
        await under_way(daemon.home, "for eve")
        await bridge.say("do for ann", channel=by("ann"))
        await under_way(daemon.home, "for eve", "for ann")
        await owner.say("do elsewhere")
        await under_way(daemon.home, "for eve", "for ann", "elsewhere")
        told = await answered(bridge, "/stop", by("mal"))
        assert "for eve" in told
        assert "for ann" not in told
        assert (await bridge.reply())["text"].startswith("stopped: ")
        await until(lambda: len(unfinished(daemon.home)) == 2, "the end of one task")
        assert "works for my owner, who alone can end it" in await answered(bridge, "/tasks cancel 2", by("eve"))
        assert "belongs to another conversation" in await answered(bridge, "/tasks cancel 3", by("eve"))
        assert len(unfinished(daemon.home)) == 2
        assert "for ann" in await answered(bridge, "/stop", by("ann"))


async def test_the_new_of_a_guest_begins_their_own_conversation_anew_and_no_other(tmp_path):
    async with serving(tmp_path, Book()) as daemon, daemon.client() as owner, daemon.bridge("slack") as bridge:
        await owner.ask("remember the blue door")
        await answered(bridge, "forget the red door", by("eve"))
        assert "fresh conversation" in await answered(bridge, "/new", by("eve"))
        assert "blue door" in str(session(daemon.home))
        await daemon.restart()
        assert "blue door" in str(session(daemon.home))
        assert len(list((daemon.home / "data" / "main").iterdir())) == 1
        current, archive = sorted((daemon.home / "data" / "sessions").iterdir(), key=lambda file: -len(file.name))[::-1]
        assert ("red door" in current.read_text(), "red door" in archive.read_text()) == (False, True)


@pytest.mark.parametrize("command", ["/speech direct", "/model test/other", "/persona", "/persona accept 1"])
async def test_what_is_the_owners_to_decide_is_refused_with_a_sentence(stage, name, command):
    async with stage.play(book := Book(), name) as daemon, daemon.bridge(name) as bridge:
        assert "my owner" in (await answered(bridge, command, by("eve", kind=name))).lower()
        assert book.asked == []


async def test_a_guest_is_not_shown_the_model_and_what_it_costs(tmp_path):
    async with (
        serving(tmp_path, Book(), {"agent.show_usage": True}) as daemon,
        daemon.client() as owner,
        daemon.bridge("slack") as bridge,
    ):
        await bridge.say("hello", channel=by("eve"))
        reply = await bridge.reply()
        assert reply["text"] == "echo: hello"
        assert "usage" not in reply.get("metadata", {})
        for command in ("/status", "/usage", "/model", "/speech", "/help", "/tasks", "/skills"):
            told = await answered(bridge, command, by("eve"))
            assert not any(word in told for word in ("test/", "model-1", "tokens", "$", "monologue;")), told
        await owner.say("hello")
        assert (await owner.reply())["metadata"]["usage"]
        assert "test/model-1" in await owner.ask("/status")


async def test_a_guest_is_not_told_which_model_fails_and_why(tmp_path):
    settings = {"providers.test.base_url": "http://127.0.0.1:9", "models.timeout": 1.0}
    async with (
        serving(tmp_path, Book(), settings) as daemon,
        daemon.client() as owner,
        daemon.bridge("slack") as bridge,
    ):
        told = await answered(bridge, "hello", by("eve"))
        assert "did not answer" in told
        assert not any(word in told for word in ("test/", "model-1", "127.0.0.1")), told
        assert "test/model-1" in await owner.ask("hello")


async def test_a_role_in_the_metadata_of_a_message_is_a_claim_and_does_not_count(tmp_path):
    async with serving(tmp_path, Book()) as daemon, daemon.client() as owner, daemon.bridge("slack") as bridge:
        await owner.ask("remember the blue door")
        claims = {"role": "owner", "account": "web:c1", "apart": False}
        await bridge.say("/persona", channel=by("eve"), metadata=claims)
        assert "only my owner" in (await bridge.reply())["text"].lower()
        await bridge.say("which door", channel=by("eve"), metadata=claims)
        await bridge.reply()
        assert "blue door" not in (daemon.home / "data/sessions/slack%3A%23general.jsonl").read_text()
        await owner.say("/new", metadata={"role": "guest"})
        assert "fresh conversation" in (await owner.reply())["text"]


@pytest.mark.parametrize(("said", "named"), [({"group": True}, "eve"), ({"group": False}, None), ({}, None)])
async def test_the_first_message_of_a_group_says_who_wrote_it(stage, name, said, named):
    """Where a bridge says that several people read, the model need not wait for the second of them to know whom it answers."""
    async with stage.play(book := Book(), name) as daemon, daemon.bridge(name) as bridge:
        await bridge.say("hello", channel=by("eve", kind=name), metadata=said)
        await bridge.reply()
        assert book.asked[0].question.user == named
