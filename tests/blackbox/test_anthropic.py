"""The same stories over Anthropic's wire format (its SDK costs a second to import, so they are few)."""

from __future__ import annotations

import json

from tests.blackbox.support import Book, Call, Thought, refuse, reply, say, serving

THINKING = {"type": "thinking", "thinking": "They want the time. I have a clock.", "signature": "c2lnbmF0dXJl"}


async def test_a_day_with_claude(tmp_path):
    """Thinking blocks, tools, several replies, an overloaded moment, a wrong key, a kill: every request is valid."""
    overloaded = [refuse(529)]
    book = Book(
        {
            "time?": [Thought("let me look", (Call("current_time"),), thinking=(THINKING,)), say("late", "very late")],
            "again?": lambda view: overloaded.pop() if overloaded else say("there you are"),
            "broken": [Thought(calls=(Call("reply", '{"text": '), reply("half of it"))), say("the rest")],
            "key": refuse(401, "invalid x-api-key"),
        }
    )
    async with serving(tmp_path, book, wire="anthropic") as daemon:
        async with daemon.client() as client:
            await client.say("time?")
            assert [frame["text"] for frame in await client.replies(2)] == ["late", "very late"]
            assert THINKING in book.about("time?")[1].messages[-2]["content"], "thinking must come back unchanged"
            assert await client.ask("again?") == "there you are"
            await client.say("broken")
            assert [frame["text"] for frame in await client.replies(2)] == ["half of it", "the rest"]
            told = await client.ask("key")
            assert "401" in told
            await client.say("unanswered")
            daemon.kill()
        before = len(book.asked)
        await daemon.start()
        async with daemon.client(lastSeq=6) as client:
            assert (await client.reply())["text"] == "echo: unanswered"
            assert await client.ask("bye") == "echo: bye"
    assert THINKING in book.asked[-1].messages[1]["content"], "thinking must come back unchanged after a restart"
    for run in (book.asked[:before], book.asked[before:]):
        assert len({json.dumps(view.body["system"]) for view in run}) == 1
    assert "cache_control" in json.dumps(book.asked[-1].body["system"]), "the stable prefix is not cached"


async def test_the_provider_changes_in_the_middle_of_a_conversation(tmp_path):
    """What Claude thought in private stays with Claude; everything else is valid for either."""
    book = Book({"time?": [Thought("let me look", (Call("current_time"),), thinking=(THINKING,)), say("late")]})
    async with serving(tmp_path, book, wire="anthropic") as daemon:
        async with daemon.client() as client:
            assert await client.ask("time?") == "late"
        for wire, url in (("openai", book.server.openai_url), ("anthropic", book.server.url)):
            await daemon.stop()
            daemon.configure(providers__test__type=wire, providers__test__base_url=url)
            await daemon.start()
            async with daemon.client() as client:
                assert await client.ask(f"hello {wire}") == f"echo: hello {wire}"
                assert await client.ask("time?") == "late"
    assert "signature" not in json.dumps([view.body for view in book.asked if view.request.format == "openai"])
    assert THINKING in book.asked[-1].messages[1]["content"]


async def test_the_key_in_the_environment_is_enough(tmp_path):
    settings = {"models.default": "anthropic/claude-test", "providers.test.type": "offline"}
    async with serving(tmp_path, book := Book(), settings, wire="anthropic", start=False) as daemon:
        daemon.env |= {"ANTHROPIC_API_KEY": "sk-ant-test", "ANTHROPIC_BASE_URL": book.server.url}
        await daemon.start()
        async with daemon.client() as client:
            assert await client.ask("next") == "echo: next"
            assert book.asked[0].request.headers["x-api-key"] == "sk-ant-test"
            assert book.asked[0].body["model"] == "claude-test"
