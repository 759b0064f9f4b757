"""Requests as strangers and clients of many kinds send them: each is carried out or refused with a fitting status and the reason."""

import json
from functools import partial
from hashlib import sha256

import openai
import pytest
import trio

from pegasus.messages import StoredFile
from pegasus.storage import OpenReplies, Overloaded, ReadFiles, StorageError, Unacknowledged
from tests.pegasus.web.world import TOKEN, Journal, ask, world


def complete(content="hi", **fields):
    return {"model": "pegasus", "messages": [{"role": "user", "content": content}], **fields}


async def answer(there, text, **fields):
    """Play the agent for the next message."""
    await there.journal.until(lambda: there.journal.waiting_for)
    await there.say(there.journal.accepted[-1][0].channel, text, **fields)
    await there.journal.finish(len(there.journal.accepted))


# ------------------------------------------------------------------ bodies


async def test_a_number_beyond_all_floats_is_400():
    async with world() as there, there.owner() as client:
        for number in (b"1e999", b"-1E+400", b"9" * 400 + b".0"):
            body = b'{"text": "x", "metadata": {"n": [%s]}}' % number
            response = await client.post("/api/messages", content=body)
            assert (response.status_code, response.json()["error"]["code"]) == (400, "bad_request"), response.text
        async with there.socket((b"authorization", f"Bearer {TOKEN}".encode())) as socket:
            hello = {"channel": {"type": "api", "channelId": "c1"}, "lastSeq": 0, "token": TOKEN}
            assert (await ask(socket, type="hello", **hello))["type"] == "welcome"
            await socket.send_message('{"type": "message", "id": "1", "text": "x", "metadata": {"n": 1e999}}')
            with trio.fail_after(20):
                assert json.loads(await socket.get_message())["code"] == "bad_frame"
        assert there.journal.accepted == []


@pytest.mark.parametrize(
    ("content", "mime", "name"),
    [
        ([{"type": "image_url", "image_url": {"url": "DATA:image/png;base64,eA=="}}], "image/png", "image-1"),
        ([{"type": "input_audio", "input_audio": {"data": "eA==", "format": "mp3"}}], "audio/mp3", "recording-1.mp3"),
    ],
)
async def test_what_may_be_attached(content, mime, name):
    async with world() as there, there.owner() as client, trio.open_nursery() as nursery:
        nursery.start_soon(answer, there, "I see")
        assert (await client.post("/v1/chat/completions", json=complete(content))).status_code == 200
        [(message, _)] = there.journal.accepted
        assert (message.text, message.media[0].mime, message.media[0].name) == ("", mime, name)


@pytest.mark.parametrize(
    ("fields", "headers", "name"),
    [({"user": "a\nb"}, {}, "user: "), ({}, {"idempotency-key": "k" * 300}, "Idempotency-Key: ")],
)
async def test_a_refusal_names_the_field_as_the_client_knows_it(fields, headers, name):
    async with world() as there, there.owner() as client:
        response = await client.post("/v1/chat/completions", json=complete(**fields), headers=headers)
        assert response.status_code == 400
        assert response.json()["error"]["message"].startswith(name)


# ------------------------------------------------------------------ what front ends ask for beside the chat


CHORES = {
    "face": "Your task is to reflect the speaker's likely facial expression through a fitting emoji. Interpret "
    "emotions from the message.\n\nMessage: ```hi```",
    "tools": 'Query: History:\nUSER: """hi"""\nQuery: hi',
    "follow-ups": "### Task:\nSuggest 3-5 relevant follow-up questions.\n### Chat History:\n<chat_history>\nUSER: hi\n</chat_history>",
    "tags": "### Task:\nGenerate 1-3 broad tags.\n### Chat History:\n<chat_history>\nUSER: hi\n</chat_history>",
}


async def test_what_open_webui_asks_for_during_a_chat_is_neither_in_it_nor_mixed_up_with_it():
    answers = {}
    async with world() as there, there.owner() as client, trio.open_nursery() as nursery:

        async def post(name, content):
            answers[name] = await client.post("/v1/chat/completions", json=complete(content, stream=False))

        nursery.start_soon(post, "chat", "hi")
        await there.journal.until(lambda: there.journal.waiting_for)
        async with trio.open_nursery() as chores:
            for name, content in CHORES.items():
                chores.start_soon(post, name, content)
        assert {
            name: each.json()["choices"][0]["message"]["content"] for name, each in answers.items()
        } == dict.fromkeys(CHORES, "")
        await answer(there, "hello")
        with trio.fail_after(20):
            while "chat" not in answers:
                await trio.lowlevel.checkpoint()
        assert answers["chat"].json()["choices"][0]["message"]["content"] == "hello"
        assert [message.text for message, _ in there.journal.accepted] == ["hi"]


def text_of(response):
    """The text of an answer, streamed or not."""
    assert response.status_code == 200, response.text
    if response.headers["content-type"].startswith("application/json"):
        [choice] = response.json()["choices"]
        assert choice["finish_reason"] == "stop"
        return choice["message"]["content"]
    *events, end = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line.startswith("data: ")]
    choices = [choice for event in events for choice in json.loads(event)["choices"]]
    assert (end, choices[-1]["finish_reason"]) == ("[DONE]", "stop")
    return "".join(choice["delta"].get("content", "") for choice in choices)


MERGE = (
    'You have been provided with a set of responses from various models to the latest user query: "hi"\n\nYour task '
    'is to synthesize these responses.\n\nResponses from models: """hello"""\n\n"""good day"""'
)


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_button_of_open_webui_that_merges_answers_says_nothing_to_the_agent(is_streamed):
    async with world() as there, there.owner() as client:
        response = await client.post("/v1/chat/completions", json=complete(MERGE, stream=is_streamed))
        assert "does not merge" in text_of(response)
        assert there.journal.accepted == []


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("answered", ["hello", [{"type": "text", "text": "hello"}]])
async def test_a_button_that_continues_an_answer_does_not_send_its_question_again(is_streamed, answered):
    """Open WebUI sends the chat up to the answer. The agent has carried out the question; doing so twice could do harm."""
    history = [{"role": "user", "content": "book a table"}, {"role": "assistant", "content": answered}]
    async with world() as there, there.owner() as client:
        body = complete(messages=history, stream=is_streamed, stream_options={"include_usage": True})
        response = await client.post("/v1/chat/completions", json=body)
        assert text_of(response) == ""
        assert there.journal.accepted == []


async def test_an_empty_answer_behind_a_question_is_the_place_for_the_agents_own():
    history = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": ""}]
    async with world() as there, there.owner() as client, trio.open_nursery() as nursery:
        nursery.start_soon(answer, there, "hello")
        assert text_of(await client.post("/v1/chat/completions", json=complete(messages=history))) == "hello"


# ------------------------------------------------------------------ how a turn ends


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_refusal_has_its_status_in_a_stream_too(is_streamed):
    async with world() as there:
        there.journal.verdict = Overloaded(9)
        http = openai.DefaultAsyncHttpxClient() if hasattr(openai, "DefaultAsyncHttpxClient") else None
        async with openai.AsyncOpenAI(
            api_key=TOKEN, base_url=f"{there.url}/v1", max_retries=0, http_client=http
        ) as client:
            with pytest.raises(openai.RateLimitError):
                await client.chat.completions.create(**complete(stream=is_streamed))


CHART = StoredFile("chart.png", "image/png", f"media/{sha256(b'abc').hexdigest()}.png", 3)


class Restarting(Journal):
    """A journal that does not answer some questions while it is being restarted."""

    def __init__(self, fails):
        super().__init__()
        self.fails = fails

    def handle(self, message):
        if self.fails(message):
            message.reply.fail(StorageError("not now"))
        elif isinstance(message, ReadFiles):
            message.reply.send((b"abc",))
        else:
            super().handle(message)


async def test_an_error_in_a_stream_that_has_begun_is_its_last_event():
    failing = []
    journal = Restarting(lambda message: isinstance(message, ReadFiles) and failing)
    headers = {"idempotency-key": "k-1"}
    async with world(journal=journal) as there, there.owner(**headers) as client, trio.open_nursery() as nursery:
        nursery.start_soon(partial(answer, there, "look", files=(CHART,)))
        assert "chart.png" in (await client.post("/v1/chat/completions", json=complete(stream=True))).text
        failing.append(True)
        response = await client.post("/v1/chat/completions", json=complete(stream=True))
        events = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line.startswith("data:")]
        assert response.status_code == 200
        assert json.loads(events[-2])["error"]["message"].startswith("disk: ")
        assert events[-1] == "[DONE]"


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/api/messages?wait=20"])
@pytest.mark.parametrize("question", [ReadFiles, OpenReplies, Unacknowledged])
async def test_a_restart_of_the_journal_costs_no_answer(path, question):
    """Clients of OpenAI's API send the message again after an error, which would be a second one."""
    left = [1]
    journal = Restarting(lambda message: isinstance(message, question) and left and left.pop())
    async with world(journal=journal) as there, there.owner() as client, trio.open_nursery() as nursery:

        async def play():
            await there.journal.until(lambda: there.journal.waiting_for)
            there.journal.post(there.journal.accepted[-1][0].channel, "look", files=(CHART,))  # not pushed
            await there.journal.finish(1)

        nursery.start_soon(play)
        response = await client.post(path, json=complete(text="hi", channel={"channelId": "c1"}, user="c1"))
        assert response.status_code == 200, response.text
        assert "look" in response.text


async def test_an_answer_does_not_fail_because_it_cannot_be_acknowledged():
    journal = Restarting(lambda message: isinstance(message, OpenReplies) and message.limit < 100)
    async with world(journal=journal) as there, there.owner() as client, trio.open_nursery() as nursery:
        nursery.start_soon(answer, there, "hello")
        response = await client.post("/v1/chat/completions", json=complete())
        assert (response.status_code, response.json()["choices"][0]["message"]["content"]) == (200, "hello")


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_an_answer_that_is_not_complete_says_so(monkeypatch, is_streamed):
    monkeypatch.setattr("pegasus.web.routes.client_turns.LONGEST_WAIT", 0)
    async with world() as there, there.owner() as client:
        response = await client.post("/v1/chat/completions", json=complete(stream=is_streamed))
        assert '"finish_reason":"length"' in response.text


# ------------------------------------------------------------------ methods


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PATCH", "/api/cron", "GET, POST"),
        ("GET", "/v1/chat/completions", "POST"),
        ("POST", "/healthz", "GET, HEAD"),
        ("POST", "/api/memory/facts/a.md", "GET, PUT"),
        ("PUT", "/api/memory/log", "GET"),
        ("GET", "/api/memory/undo", "POST"),
        ("POST", "/api/approvals/granted", "GET"),
    ],
)
async def test_a_wrong_method_is_told_which_are_right(method, path, allowed):
    async with world() as there, there.owner() as client:
        response = await client.request(method, path)
        assert (response.status_code, response.headers["allow"]) == (405, allowed)
