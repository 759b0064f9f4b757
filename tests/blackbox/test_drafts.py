"""A reply is seen while the model writes it: over the real gateway, with both wire formats."""

from __future__ import annotations

import json

import attrs
import pytest
import trio

from pegasus.main_agent.drafts import DRAFT_EVERY
from tests.blackbox.support import Book, Call, Thought, serving

LONG = "It is a long story 📖, and it is told word by word,\nso that one can read along while it is being told."
PRIVATE = "nobody is to see this"
WITHIN = 25
"""Events of an answer after which it is in the middle of the reply, in both formats."""


def written(text: str) -> Thought:
    """A thought whose reply comes in twenty pieces, 40 ms apart; the address comes first."""
    return Thought(PRIVATE, (Call("reply", {"channelId": "c1", "text": text}),), pieces=20, pause=0.04)


def drafts(client):
    return [frame["text"] for frame in client.seen if frame["type"] == "progress"]


def shown(client):
    """The draft that a client shows after all frames so far."""
    draft = ""
    for frame in client.seen:
        is_end = frame["type"] == "reply" or (frame["type"] == "typing" and not frame["active"])
        is_draft = frame["type"] == "progress" and not frame.get("cut")
        draft = frame["text"] if is_draft else "" if is_end else draft
    return draft


@pytest.mark.parametrize("wire", ["openai", "anthropic"])
async def test_a_reply_is_shown_while_it_is_written_and_withdrawn_when_it_breaks_off(tmp_path, wire):
    wrong = f"the wrong {LONG}"
    attempts = iter([attrs.evolve(written(wrong), cut_after=WITHIN), written(LONG)])
    pages = {
        "tell": written(LONG),
        "break": lambda view: next(attempts),
        "hang": attrs.evolve(written(LONG), hang_after=WITHIN),
    }
    async with serving(tmp_path, Book(pages), wire=wire) as daemon, daemon.client() as client, daemon.client() as other:
        assert await client.ask("tell") == LONG
        assert len(drafts(client)) >= 2
        assert all(draft and LONG.startswith(draft) for draft in drafts(client))
        assert drafts(client) == sorted(drafts(client), key=len)
        await other.reply()
        assert drafts(other) == drafts(client), "every client of the conversation sees it"

        del client.seen[:]
        assert await client.ask("break") == LONG
        withdrawn = drafts(client).index("")
        assert withdrawn > 0
        assert all(wrong.startswith(draft) for draft in drafts(client)[:withdrawn])
        assert all(LONG.startswith(draft) for draft in drafts(client)[withdrawn:])

        del client.seen[:]
        await client.say("hang")
        while not shown(client):
            await client.get("progress")
        began = trio.current_time()
        await client.say("/stop")
        await client.reply()
        assert trio.current_time() - began < 5
        await client.get("progress", cut=True)
        await trio.sleep(2 * DRAFT_EVERY)
        await client.fence()
        assert shown(client) == "", "no draft is left behind"
        await other.fence()
        assert PRIVATE not in json.dumps([client.seen, other.seen])
