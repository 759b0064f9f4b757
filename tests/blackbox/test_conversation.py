"""What one person sees: replies only where the model calls reply, in order, and never what it thinks."""

from __future__ import annotations

import json
import time

from tests.blackbox.support import SILENCE, Book, Call, Thought, reply, say, serving


async def test_greeting_is_one_thought_and_one_reply(stage, name):
    book = Book({"hello": say("Hello! What can I do for you?")})
    async with stage.play(book, name) as daemon, daemon.client() as client:
        assert await client.ask("hello") == "Hello! What can I do for you?"
        await client.fence()
        assert len(book.asked) == 1
        assert client.texts() == ["Hello! What can I do for you?"]


async def test_time_question_reads_the_clock_then_replies(stage, name):
    def tell(view):
        stamp = json.loads(view.results[-1])["timestamp"]
        return say(f"now: {stamp}")

    book = Book({"time?": [Thought(calls=(Call("current_time", {"timezone": "Asia/Shanghai"}),)), tell]})
    async with stage.play(book, name) as daemon, daemon.client() as client:
        before = time.time() * 1000
        told = float((await client.ask("time?")).removeprefix("now: "))
        assert before - 1 <= told <= time.time() * 1000
        assert json.loads(book.asked[1].results[0])["timezone"] == "Asia/Shanghai"


async def test_silence_is_legal_and_the_queue_goes_on(stage, name):
    book = Book({"👍": SILENCE})
    async with stage.play(book, name) as daemon, daemon.client() as client:
        await client.say("👍")
        assert await client.ask("still there?") == "echo: still there?"
        assert len(book.about("👍")) == 1, "silence was thought about twice"
        assert [frame["type"] for frame in client.seen if frame["type"] in ("reply", "error")] == ["reply"]


async def test_an_empty_answer_is_silence_too(stage, name):
    book = Book({"hm": Thought()})
    async with stage.play(book, name) as daemon, daemon.client() as client:
        await client.say("hm")
        assert await client.ask("and now?") == "echo: and now?"


async def test_n_replies_arrive_in_call_order(stage, name):
    texts = [f"part {n}" for n in range(1, 6)]
    async with stage.play(Book({"tell me": say(*texts)}), name) as daemon, daemon.client() as client:
        await client.say("tell me")
        replies = await client.replies(5)
        assert [frame["text"] for frame in replies] == texts
        assert [frame["seq"] for frame in replies] == [1, 2, 3, 4, 5]


async def test_monologue_reaches_nobody_and_the_next_thought_sees_it(stage, name):
    secret = "SECRET: this user sounds tired"
    book = Book({"hi": [Thought(secret, (Call("current_time"),)), say("good evening")]})
    async with stage.play(book, name) as daemon:
        async with (
            daemon.client("web", f"{name}-asker") as asker,
            daemon.client("web", f"{name}-b") as other,
            daemon.bridge() as bridge,
        ):
            assert await asker.ask("hi") == "good evening"
            for peer in (asker, other, bridge):
                await peer.fence()
                assert secret not in json.dumps(peer.seen)
        assert secret in book.asked[1].said("assistant")
        assert secret in [line.get("content") for line in stage.session()]


async def test_information_and_reply_in_one_thought_lead_to_another(stage, name):
    """The reply acts, the tool's result comes back, and the model may speak again."""
    both = Thought(calls=(reply("one moment"), Call("current_time")))
    book = Book({"time?": [both, say("it is late")]})
    async with stage.play(book, name) as daemon, daemon.client() as client:
        await client.say("time?")
        assert [frame["text"] for frame in await client.replies(2)] == ["one moment", "it is late"]
        assert len(book.asked[1].results) == 2


async def test_a_reply_alone_leads_to_no_further_thought(stage, name):
    book = Book({"hello": say("hi")})
    async with stage.play(book, name) as daemon, daemon.client() as client:
        await client.ask("hello")
        await client.ask("next")
        assert len(book.about("hello")) == 1


async def test_messages_are_thought_about_one_after_another_in_order(stage, name):
    async with stage.play(book := Book(), name) as daemon, daemon.client() as client:
        ids = [await client.post(f"m{n}") for n in range(20)]
        for id in ids:
            await client.accepted(id)
        replies = await client.replies(20)
        assert [frame["text"] for frame in replies] == [f"echo: m{n}" for n in range(20)]
        assert [view.question.text for view in book.asked] == [f"m{n}" for n in range(20)]


async def test_a_model_that_takes_its_time_keeps_nobody_from_being_accepted(stage, name):
    """send() returns at once."""
    async with stage.play(book := Book(), name) as daemon, daemon.client() as client:
        book.hold()
        await client.say("first")
        await client.say("second")
        await book.waiting()
        assert client.texts() == []
        book.release()
        assert [frame["text"] for frame in await client.replies(2)] == ["echo: first", "echo: second"]


async def test_typing_is_shown_while_the_agent_thinks_and_ends_with_it(stage, name):
    async with stage.play(book := Book(), name) as daemon, daemon.client("web", f"{name}-t1") as client:
        book.hold()
        await client.say("hello")
        began = await client.get("typing")
        assert began == {"type": "typing", "channel": began["channel"], "active": True}
        assert (began["channel"]["type"], began["channel"]["channelId"]) == ("web", f"{name}-t1")
        book.release()
        await client.reply()
        assert (await client.get("typing"))["active"] is False


async def test_typing_is_not_shown_to_others(stage, name):
    async with (
        stage.play(book := Book(), name) as daemon,
        daemon.client("web", f"{name}-asker") as asker,
        daemon.client("web", f"{name}-other") as other,
    ):
        book.hold()
        await asker.say("hello")
        await asker.get("typing")
        await other.fence()
        seen = [
            frame for frame in other.seen[1:] if frame["type"] != "said"
        ]  # what an owner says, his other doors show
        assert seen == other.seen[-1:], "only the answer to the fence is expected"
        book.release()


async def test_two_owners_share_one_mind_and_a_guest_has_none_of_it(tmp_path):
    """Scope "global": what one owner says, the agent remembers when another asks; each is answered where he asked."""
    async with (
        serving(tmp_path, book := Book(), {"agent.owners": ["web", "sms:+8613800138000"]}) as daemon,
        daemon.client("web", "anna") as anna,
        daemon.client("sms", "+8613800138000") as bo,
        daemon.client("sms", "+8613800138001") as guest,
    ):
        assert await anna.ask("my cat is called Minka") == "echo: my cat is called Minka"
        assert await bo.ask("what is the cat called?") == "echo: what is the cat called?"
        assert anna.texts() == ["echo: my cat is called Minka"]
        assert "my cat is called Minka" in book.asked[-1].user
        assert await guest.ask("whose cat?") == "echo: whose cat?"
        assert "Minka" not in str(book.asked[-1].body)
        assert await anna.ask("and now?") == "echo: and now?"
        assert "my cat is called Minka" in book.asked[-1].user
        assert "whose cat?" not in str(book.asked[-1].body), "a guest's conversation is no part of the owners'"


async def test_seq_counts_per_address(stage, name):
    async with stage.play(Book(), name) as daemon:
        async with daemon.client("web", f"{name}-a") as a, daemon.client("web", f"{name}-b") as b:
            for n in (1, 2, 3):
                await a.say(f"{n}")
                assert (await a.reply())["seq"] == n
            await b.say("hello")
            assert (await b.reply())["seq"] == 1
        async with daemon.client("web", f"{name}-a") as again:
            assert again.welcome["seq"] == 3


async def test_every_request_is_what_the_provider_accepts(stage, name):
    """A conversation with all kinds of turns: silence, tools, several replies, failures."""
    book = Book(
        {
            "👍": Thought(),
            "time?": [Thought("let me see", (Call("current_time"), Call("current_time"))), say("late")],
            "lost": [Thought(calls=(reply("to nobody", "#nowhere"),)), SILENCE],
            "two": say("a", "b"),
        }
    )
    async with stage.play(book, name) as daemon, daemon.client() as client:
        for text in ("👍", "👍", "time?", "lost", "lost", "two", "👍"):
            await client.say(text)
        assert await client.get("reply", text="b")
        assert await client.say("bye")
        assert await client.get("reply", text="echo: bye")
