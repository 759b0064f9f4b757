"""Chats of programs that keep their own history, by OpenAI's own client against the real daemon: which conversation each is."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial

import openai
import pytest
import trio

from tests.blackbox.support import Book, say, serving
from tests.blackbox.support.model import echo
from tests.blackbox.test_tokens import add

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of the client's generators
HTTP = {"http.enabled": True, "http.port": 0}


class Chat:
    """A chat of a front end, which sends all of it with each message."""

    def __init__(self, client, *, stream=False, system=None, window=None, **fields):
        self.client, self.fields, self.window, self.stream = client, fields, window, stream
        self.system = [] if system is None else [{"role": "system", "content": system}]
        self.messages = []

    async def ask(self, text):
        self.messages.append({"role": "user", "content": text})
        return await self.regenerate()

    async def regenerate(self):
        while self.messages[-1]["role"] != "user":
            self.messages.pop()
        sent = self.system + self.messages[-self.window if self.window else 0 :]
        answer = await self.client.chat.completions.create(
            model="pegasus", messages=sent, stream=self.stream, **self.fields
        )
        if self.stream:
            text = "".join([chunk.choices[0].delta.content or "" async for chunk in answer if chunk.choices])
        else:
            text = answer.choices[0].message.content
        self.messages.append({"role": "assistant", "content": text})
        return text

    async def edit(self, index, text):
        """Say something else in place of the message with this number, from 0."""
        del self.messages[2 * index :]
        return await self.ask(text)


def client_of(daemon, token=None):
    return openai.AsyncOpenAI(
        api_key=token or daemon.token,
        base_url=f"{daemon.at.http}/v1",
        max_retries=0,
        http_client=openai.DefaultAsyncHttpxClient(),
    )


@asynccontextmanager
async def talking(tmp_path, book, settings=None):
    async with serving(tmp_path, book, {**HTTP, **(settings or {})}) as daemon, client_of(daemon) as client:
        yield daemon, client


def heard(view):
    """What people said before the newest message and with it, without the lines about channels."""
    return [line for line in view.user.splitlines() if line and not line.startswith("[channel")]


FRONT_ENDS = {
    "a plain client": ({}, {}),
    "Open WebUI": (
        {"extra_headers": {"X-OpenWebUI-Chat-Id": "6f1c"}},
        {"extra_headers": {"X-OpenWebUI-Chat-Id": "77aa"}},
    ),
    "a conversation's id": (
        {"extra_headers": {"X-Conversation-Id": "a/b"}},
        {"extra_headers": {"X-Conversation-Id": "b"}},
    ),
    "LibreChat": ({"user": "66aa0f"}, {"user": "66aa0f"}),
}


@pytest.mark.parametrize("scope", ["global", "chat"])
@pytest.mark.parametrize("front_end", FRONT_ENDS)
@pytest.mark.tried(
    "clients", "OpenAI's chats: several of one client (Open WebUI, LibreChat, a plain client)", "each is its own"
)
async def test_a_second_chat_is_its_own(tmp_path, front_end, scope):
    """The first one goes on where it was, streamed or not."""
    async with talking(tmp_path, book := Book(), {"agent.scope": scope}) as (_, client):
        first, second = (Chat(client, stream=n == 1, **fields) for n, fields in enumerate(FRONT_ENDS[front_end]))
        await first.ask("my name is Anna")
        await first.ask("I live in Graz")
        await second.ask("my name is Bob")
        await second.ask("who am I?")
        assert heard(book.asked[-1]) == ["my name is Bob", "who am I?"]
        await first.ask("where do I live?")
        assert heard(book.asked[-1]) == ["my name is Anna", "I live in Graz", "where do I live?"]


@pytest.mark.parametrize("front_end", FRONT_ENDS)
@pytest.mark.tried(
    "clients", "OpenAI's chats: regenerate, edit", "another answer to the same message; the conversation goes back"
)
async def test_another_answer_and_an_edit_go_back(tmp_path, front_end):
    count = iter(range(99))

    def number(view):
        return echo(view) if view.replied else say(f"answer {next(count)} to {view.question.text}")

    async with talking(tmp_path, book := Book(otherwise=number)) as (daemon, client):
        chat = Chat(client, **FRONT_ENDS[front_end][0])
        for text in ("one", "two", "three"):
            await chat.ask(text)
        before = len(book.asked)
        assert await chat.regenerate() == "answer 3 to three"
        assert heard(book.asked[before]) == ["one", "two", "three"]
        assert "answer 2" not in str(book.asked[before].messages)
        assert await chat.edit(1, "second") == "answer 4 to second"
        assert heard(book.asked[-1])[:2] == ["one", "second"]
        assert "answer 3" not in str(book.asked[-1].messages)
        await chat.ask("last")
        assert heard(book.asked[-1]) == ["one", "second", "last"]
        kept = "".join(path.read_text() for path in (daemon.home / "data/sessions").iterdir())
        assert all(f"answer {n} to" in kept for n in range(6))


async def test_a_chat_goes_on_after_a_restart(tmp_path):
    async with serving(tmp_path, book := Book(), HTTP) as daemon:
        async with client_of(daemon) as client:
            first, second = Chat(client), Chat(client)
            for chat, name in ((first, "Anna"), (second, "Bob")):
                await chat.ask(f"I am {name}")
        await daemon.restart()
        async with client_of(daemon) as client:
            first.client = second.client = client
            await second.ask("who am I?")
            assert heard(book.asked[-1]) == ["I am Bob", "who am I?"]
            await first.regenerate()
            assert heard(book.asked[-1])[0] == "I am Anna"
            await second.regenerate()
            assert heard(book.asked[-1]) == ["I am Bob", "who am I?"]


async def test_a_history_without_its_beginning_is_the_same_chat(tmp_path):
    async with talking(tmp_path, book := Book()) as (_, client):
        chat = Chat(client, window=3)
        for text in ("one", "two", "three", "four"):
            await chat.ask(text)
        assert heard(book.asked[-1]) == ["one", "two", "three", "four"]
        await chat.edit(3, "fourth")
        assert heard(book.asked[-1]) == ["one", "two", "three", "fourth"]


async def test_what_another_model_has_said_is_told_as_text_from_outside(tmp_path):
    async with talking(tmp_path, book := Book()) as (_, client):
        chat = Chat(client)
        chat.messages = [
            {"role": "user", "content": "what is the capital of France?"},
            {"role": "assistant", "content": "Paris, say I."},
        ]
        await chat.ask("how big is it?")
        text = book.asked[-1].user
        assert text.index("how big is it?") < text.index("capital of France?") < text.index("Paris, say I.")
        chat.messages += [{"role": "user", "content": "and Lyon?"}, {"role": "assistant", "content": "Smaller."}]
        await chat.ask("thanks")
        text = book.asked[-1].user
        assert (text.count("capital of France?"), text.count("and Lyon?"), text.count("Smaller.")) == (1, 1, 1)


async def test_the_system_message_is_an_instruction_of_its_conversation(tmp_path):
    async with talking(tmp_path, book := Book()) as (_, client):
        pirate, plain = Chat(client, system="Talk like a pirate."), Chat(client)
        await pirate.ask("hello you")
        assert "Talk like a pirate." in book.asked[-1].system
        await plain.ask("hello there")
        assert "pirate" not in book.asked[-1].system
        await pirate.ask("again")
        assert "Talk like a pirate." in book.asked[-1].system
        assert "pirate" not in book.asked[-1].user


TITLES = {
    "LibreChat": 'Give a concise title of five words at most for this conversation.\n||>User:\n"{0}"\n||>Response:\n"{1}"\n',
    "another language": "Schlage drei Schlagworte für dieses Gespräch vor, als JSON.\n\nNutzer: {0}\nAssistent: {1}\n",
}


@pytest.mark.parametrize("prompt", TITLES)
async def test_a_request_for_a_title_costs_no_turn(tmp_path, prompt):
    async with talking(tmp_path, book := Book()) as (_, client):
        chat = Chat(client, stream=True)
        answer = await chat.ask("how do I water a cactus?")
        before = len(book.asked)
        assert await Chat(client).ask(TITLES[prompt].format("how do I water a cactus?", answer)) == ""
        assert len(book.asked) == before
        assert "echo" in await Chat(client).ask(f"You said {answer}, but how do I water a cactus? I do not understand.")
        await chat.ask("thanks")
        assert heard(book.asked[-1]) == ["how do I water a cactus?", "thanks"]


async def test_a_client_that_leaves_the_history_to_the_agent_goes_on(tmp_path):
    async with talking(tmp_path, book := Book()) as (_, client):
        for fields in ({"user": "alice"}, {"extra_headers": {"X-Conversation-Id": "c-1"}}):
            for text in ("one", "two", "three"):
                await Chat(client, **fields).ask(text)
            assert heard(book.asked[-1]) == ["one", "two", "three"]


async def test_a_guests_client_has_chats_of_its_own_and_no_others(tmp_path):
    async with serving(tmp_path, book := Book(), HTTP) as daemon:
        tokens = [await add(daemon, name) for name in ("a", "b")]
        async with client_of(daemon) as owner, client_of(daemon, tokens[0]) as a, client_of(daemon, tokens[1]) as b:
            named = {"extra_headers": {"X-Conversation-Id": "c-1"}}
            chats = [Chat(client, **named) for client in (owner, a, b)]
            for chat, name in zip(chats, ("owner", "a", "b"), strict=True):
                await chat.ask(f"I am {name}")
            for chat, name in zip(chats, ("owner", "a", "b"), strict=True):
                await chat.ask("who am I?")
                assert [other for other in ("owner", "a", "b") if f"I am {other}" in book.asked[-1].user] == [name]
            thief = Chat(a)
            thief.messages = list(chats[0].messages)
            await thief.ask("go on")
            assert book.asked[-1].question.id.startswith("token-a/")
            second = Chat(b)
            await second.ask("one")
            await second.ask("two")
            await second.regenerate()
            assert book.asked[-1].user.count("two") == 1


async def test_two_requests_at_once_are_of_the_chats_that_they_show(tmp_path):
    async with talking(tmp_path, book := Book()) as (_, client):
        chats = [Chat(client) for _ in range(4)]
        for round in ("first", "second"):
            async with trio.open_nursery() as nursery:
                for n, chat in enumerate(chats):
                    nursery.start_soon(partial(chat.ask, f"{round} of {n}"))
        for n in range(4):
            [view] = [view for view in book.about(f"second of {n}") if not view.replied]
            assert heard(view) == [f"first of {n}", f"second of {n}"]


LONG = "This answer is long enough that no other chat could have the very same one by chance."


async def test_a_message_with_texts_of_files_is_told_by_its_answer(tmp_path):
    """Open WebUI puts them around what was typed, and shows in the history what was typed."""
    async with talking(tmp_path, book := Book(otherwise=lambda view: echo(view) if view.replied else say(LONG))) as (
        _,
        client,
    ):
        chat = Chat(client)
        await chat.ask("### Task:\nAnswer with the context.\n<context>a long text</context>\nwhat is it?")
        chat.messages[0] = {"role": "user", "content": "what is it?"}
        await chat.ask("go on")
        assert [line for line in heard(book.asked[-1]) if line in ("what is it?", "go on")] == ["what is it?", "go on"]
        assert "said in this chat before" not in book.asked[-1].user


async def test_the_prompt_of_the_owners_conversation_names_no_chats_of_clients(tmp_path):
    async with serving(tmp_path, book := Book(), HTTP) as daemon:
        async with client_of(daemon) as client:
            await Chat(client).ask("hello")
            name = book.asked[-1].question.id
        await daemon.restart()
        async with daemon.client() as owner:
            await owner.ask("hi")
        assert name.startswith("home/")
        assert name not in book.asked[-1].system


async def test_what_was_compacted_is_not_gone_back_to_but_said(tmp_path):
    async with talking(tmp_path, book := Book()) as (_, client):
        chat = Chat(client, extra_headers={"X-Conversation-Id": "c"})
        await chat.ask("one")
        await chat.ask("two")
        await chat.client.chat.completions.create(
            model="pegasus", messages=[{"role": "user", "content": "/new"}], user="c"
        )
        assert await chat.edit(1, "second") == "echo: second"
        assert (heard(book.asked[-1])[-1], "one" in heard(book.asked[-1])) == ("second", False)


PICTURE = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


async def test_a_picture_in_a_history_is_no_other_message(tmp_path):
    async with talking(tmp_path, book := Book()) as (_, client):
        chat = Chat(client)
        await chat.ask([{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": PICTURE}}])
        await chat.ask("again")
        assert heard(book.asked[-1])[0] == "look"
        assert book.asked[-1].question.text == "again"
        chat.messages[0] = {"role": "user", "content": "look"}  # a client that leaves pictures out later
        await chat.ask("and again")
        assert [line for line in heard(book.asked[-1]) if "again" in line] == ["again", "and again"]


async def test_an_answer_that_was_stopped_does_not_part_a_chat(tmp_path):
    async with talking(tmp_path, book := Book()) as (_, client):
        chat = Chat(client)
        await chat.ask("one")
        book.hold()
        with trio.move_on_after(30) as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(chat.ask, "two")
                await book.waiting()
                nursery.cancel_scope.cancel()
        assert not scope.cancelled_caught
        book.release()
        chat.messages.append({"role": "assistant", "content": "ech"})
        await chat.ask("three")
        assert [line for line in heard(book.asked[-1]) if line in ("one", "two", "three")] == ["one", "two", "three"]
