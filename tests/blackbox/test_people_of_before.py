"""A home that was written before guests had conversations of their own: what waited there is answered in the guest's conversation."""

from __future__ import annotations

import json

import pytest

from tests.blackbox.support import Book, serving
from tests.blackbox.test_people_apart import ANN, SECRET, by, prompts_with

AT = 1_795_899_628_420


def message(n, text, channel, *, rank=1, **more):
    record = {"text": text, "channel": channel, "id": f"m{n}"}
    return {"type": "message", "n": n, "at": AT + n, **({"rank": rank} if rank else {}), **more, "message": record}


def write_lines(path, *lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.parametrize("scope", ["global", "chat"])
@pytest.mark.parametrize("is_rewritten", [False, True])
async def test_messages_of_guests_that_waited_are_answered_in_conversations_of_their_own(tmp_path, scope, is_rewritten):
    async with serving(tmp_path, book := Book(), {**ANN, "agent.scope": scope}) as daemon:
        async with daemon.client() as owner:
            await owner.ask("a first start")
        daemon.kill()
        book.asked.clear()
        data = daemon.home / "data"
        talk = {"ts": AT, "role": "user", "content": f"[channel: slack | id: D-ann | user: ann]\n{SECRET}"}
        for session in ("main/current.jsonl", "sessions/slack%3AD-ann.jsonl"):
            write_lines(data / session, {**talk, "metadata": {"item": 1, "messageId": "m1", "userId": "ann"}})
        eve, mal, ann, group = by("eve", "D-eve"), by("mal", "C-group"), by("ann", "D-ann"), by("ann", "C-group")
        done = [
            message(1, SECRET, ann, rank=0),
            {"type": "done", "n": 1},
            message(2, "before", mal),
            {"type": "done", "n": 2},
        ]
        rewritten = [{"type": "addresses", "known": [["slack", "C-group"], ["slack", "D-ann"]]}]
        write_lines(
            data / "inbox" / "inbox.jsonl",
            *(rewritten if is_rewritten else done),
            message(3, "first of eve", eve),
            message(4, "of the group", mal),
            message(5, "/status", eve, lane="control"),
            message(6, "mine", ann, rank=0),
            message(7, "mine in a group", group, rank=0),
        )
        (data / "outbox" / "outbox.jsonl").unlink()
        await daemon.start()
        async with daemon.bridge("slack") as bridge:
            replies = [await bridge.reply() for _ in range(5)]
            said = {(reply["channel"]["channelId"], reply["text"]) for reply in replies}
            assert {text for _, text in said} >= {
                "echo: first of eve",
                "echo: of the group",
                "echo: mine",
                "echo: mine in a group",
            }
            assert ("D-eve", "echo: first of eve") in said
            for reply in replies:
                await bridge.ack(reply)
            await bridge.say("and now", channel=eve)
            assert (await bridge.reply())["text"] == "echo: and now"
        assert "test/model-1" not in next(text for _, text in said if not text.startswith("echo"))
    for text in ("first of eve", "of the group", "mine in a group", "and now"):
        [prompt] = prompts_with(book, text)
        assert SECRET not in prompt, text
    [view] = book.about("mine")
    assert SECRET in str(view.body)
    assert "first of eve" not in str(view.body)
    [prompt] = prompts_with(book, "and now")
    assert "first of eve" in prompt
