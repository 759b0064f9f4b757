"""Messages, replies, and the chat API of OpenAI: what a turn is, when it ends, and what a client gets."""

import json
from functools import partial

import attrs
import openai
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from pegasus.access import ChannelRules
from pegasus.channels import GrowingText
from pegasus.messages import ChannelInfo, ReplyDraft
from pegasus.models import Usage
from pegasus.storage import Overloaded, StorageError
from pegasus.web.routes.client_turns import ReasoningPieces
from tests.pegasus.web.world import TOKEN, world

C1 = {"type": "api", "channelId": "c1"}


def channel_of(there):
    """The channel of the last message that was accepted."""
    message, _ = there.journal.accepted[-1]
    return message.channel


async def answer(there, *texts, drafts=()):
    """Play the agent for the next message: drafts, replies, the end of the turn."""
    n = len(there.journal.accepted) + 1
    await there.journal.until(lambda: len(there.journal.accepted) >= n)
    await reply(there, *texts, drafts=drafts)


async def reply(there, *texts, drafts=()):
    channel = channel_of(there)
    for draft in drafts:
        sign = draft if isinstance(draft, ReplyDraft) else ReplyDraft(channel, draft)
        await there.supervisor.ref("gateway").tell(attrs.evolve(sign, item=len(there.journal.accepted)))
    for text in texts:
        await there.say(channel, text)
    await there.journal.finish(len(there.journal.accepted))


async def test_a_message_is_accepted_when_it_is_on_disk():
    async with world() as there, there.owner() as client:
        response = await client.post(
            "/api/messages", json={"text": "hi ☃", "id": "m-1", "channel": {"channelId": "c1"}}
        )
        assert (response.status_code, response.json()) == (202, {"id": "m-1"})
        [(message, _)] = there.journal.accepted
        assert (message.text, message.channel.type, message.channel.channel_id) == ("hi ☃", "api", "c1")
        again = await client.post("/api/messages", json={"text": "hi ☃", "id": "m-1", "channel": C1})
        assert (again.status_code, len(there.journal.accepted)) == (202, 1)


async def test_without_a_channel_the_conversation_is_that_of_the_token():
    async with world() as there, there.owner() as client:
        for _ in range(2):
            assert (await client.post("/api/messages", json={"text": "hi"})).status_code == 202
        first, second = (message.channel.channel_id for message, _ in there.journal.accepted)
        assert first == second
        assert TOKEN not in first


async def test_waiting_returns_when_the_turn_has_ended():
    async with world() as there, there.owner() as client, trio.open_nursery() as nursery:
        nursery.start_soon(answer, there, "one", "two")
        response = await client.post("/api/messages?wait=20", json={"text": "hi", "id": "m-1", "channel": C1})
        assert response.status_code == 200
        body = response.json()
        assert (body["id"], [each["text"] for each in body["replies"]], body["done"]) == ("m-1", ["one", "two"], True)
        again = await client.post("/api/messages?wait=20", json={"text": "hi", "id": "m-1", "channel": C1})
        assert again.json() == body  # the response may have been lost
        assert len(there.journal.accepted) == 1


async def ask_at_once(there, client, *ids):
    """Send messages of one conversation, one behind the other; return a dictionary that gets the texts of each response."""
    answers = {}

    async def ask(id):
        response = await client.post("/api/messages?wait=20", json={"text": id, "id": id, "channel": C1})
        answers[id] = [each["text"] for each in response.json()["replies"]]

    for n, id in enumerate(ids, 1):
        there.nursery.start_soon(ask, id)
        await there.journal.until(lambda n=n: len(there.journal.accepted) >= n)
    return answers


async def say_to(there, id, text):
    item = next(n for n, (message, _) in enumerate(there.journal.accepted, 1) if message.id == id)
    await there.say(channel_of(there), text, item=item)


async def test_requests_of_one_conversation_at_the_same_time_get_the_replies_to_their_own_messages():
    async with world() as there, there.owner() as client:
        async with trio.open_nursery() as there.nursery:
            answers = await ask_at_once(there, client, "m-1", "m-2", "m-3")
            await say_to(there, "m-1", "to the first")
            await there.journal.finish(1)
            await wait_all_tasks_blocked()
            await there.journal.finish(2)  # in silence
            await wait_all_tasks_blocked()
            await say_to(there, "m-3", "to the third")
            await there.journal.finish(3)
        assert answers == {"m-1": ["to the first"], "m-2": [], "m-3": ["to the third"]}
        found = await client.get("/api/replies?channelId=c1")
        assert [each["text"] for each in found.json()["replies"]] == ["to the first", "to the third"]


async def test_waiting_returns_when_the_agent_stays_silent():
    async with world() as there, there.owner() as client, trio.open_nursery() as nursery:
        nursery.start_soon(answer, there)
        body = (await client.post("/api/messages?wait=20", json={"text": "hi"})).json()
        assert (body["replies"], body["done"]) == ([], True)


async def test_waiting_ends_when_the_time_is_over():
    async with world() as there, there.owner() as client:
        body = (await client.post("/api/messages?wait=0", json={"text": "hi"})).json()
        assert (body["replies"], body["done"]) == ([], False)


async def test_a_repeated_request_gets_what_came_before_it():
    async with world() as there, there.owner() as client, trio.open_nursery() as nursery:
        message = {"text": "hi", "id": "m-1", "channel": C1}
        assert not (await client.post("/api/messages?wait=0", json=message)).json()["done"]
        await there.say(channel_of(there), "one")
        nursery.start_soon(reply, there, "two")
        body = (await client.post("/api/messages?wait=20", json=message)).json()
        assert [each["text"] for each in body["replies"]] == ["one", "two"]


async def test_replies_that_were_not_pushed_are_read_from_the_journal():
    async def answer_while_the_gateway_is_away(there):
        await there.journal.until(lambda: there.journal.accepted)
        there.journal.post(channel_of(there), "unheard")
        await there.journal.finish(1)

    async with world() as there, there.owner() as client, trio.open_nursery() as nursery:
        nursery.start_soon(answer_while_the_gateway_is_away, there)
        body = (await client.post("/api/messages?wait=20", json={"text": "hi"})).json()
        assert [each["text"] for each in body["replies"]] == ["unheard"]


async def test_replies_by_number_and_by_long_poll():
    async with world() as there, there.owner() as client, trio.open_nursery() as nursery:
        channel = ChannelInfo("api", "c1")
        await there.say(channel, "one")
        await there.say(channel, "two")
        for _ in range(2):  # reading does not acknowledge
            found = (await client.get("/api/replies?channelId=c1")).json()
            assert [each["seq"] for each in found["replies"]] == [1, 2]
        after = (await client.get("/api/replies?channelId=c1&after=1")).json()
        assert [each["text"] for each in after["replies"]] == ["two"]
        assert (await client.get("/api/replies?channelId=c1&after=2")).json() == {"replies": [], "seq": 2}
        nursery.start_soon(there.say, channel, "three")
        polled = (await client.get("/api/replies?channelId=c1&after=2&wait=20")).json()
        assert [each["text"] for each in polled["replies"]] == ["three"]


async def test_replies_that_a_response_has_carried_are_still_shown():
    async with world() as there, there.owner() as client, trio.open_nursery() as nursery:
        nursery.start_soon(answer, there, "one")
        await client.post("/api/messages?wait=20", json={"text": "hi", "channel": C1})
        found = (await client.get("/api/replies?channelId=c1")).json()
        assert [each["text"] for each in found["replies"]] == ["one"]
        await there.journal.until(lambda: there.journal.acks)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"text": 1},
        {"text": "x", "channel": "c1"},
        {"text": "x", "channel": {"channelId": ""}},
        {"text": "x", "channel": {"channelId": "a\u200b"}},
        {"text": "x", "id": "a\nb"},
        {"text": "x", "id": 7},
        {"text": "x", "media": [{"name": "a", "mime": "b", "data": "?"}]},
        {"text": "x", "metadata": {"n": 2**70}},
        {"text": "x", "metadata": []},
    ],
)
async def test_a_message_that_makes_no_sense_is_400(body):
    async with world() as there, there.owner() as client:
        response = await client.post("/api/messages", json=body)
        assert (response.status_code, response.json()["error"]["code"]) == (400, "bad_request"), response.text
        assert there.journal.accepted == []


@pytest.mark.parametrize(("verdict", "status"), [(Overloaded(9), 429), (StorageError("full"), 503)])
async def test_a_message_that_cannot_be_taken(verdict, status):
    async with world() as there, there.owner() as client:
        there.journal.verdict = verdict
        assert (await client.post("/api/messages", json={"text": "x"})).status_code == status


async def test_a_token_is_bound_to_its_conversation():
    async with world() as there:
        token = await there.tokens.add("bot", type="api", channel_id="bot-1")
        async with there.client(token) as client:
            assert (await client.post("/api/messages", json={"text": "x"})).status_code == 202
            assert channel_of(there).channel_id == "bot-1"
            other = {"text": "x", "channel": {"channelId": "c2"}}
            assert (await client.post("/api/messages", json=other)).status_code == 403
            assert (await client.get("/api/replies?channelId=c2")).status_code == 403
        reader = await there.tokens.add("reader", scopes=("read",))
        async with there.client(reader) as client:
            assert (await client.post("/api/messages", json={"text": "x"})).status_code == 403
            assert (await client.get("/api/replies")).status_code == 200
            assert (await client.get("/api/replies?channelId=c2")).status_code == 403


async def test_access_rules_hold_for_http_too():
    async with (
        world(access={"api": ChannelRules("allow_list", ["friend"])}, owners=()) as there,
        there.owner() as client,
    ):
        assert (await client.post("/api/messages", json={"text": "x", "channel": C1})).status_code == 403
        friend = {"text": "x", "channel": {"channelId": "c1", "userId": "friend"}}
        assert (await client.post("/api/messages", json=friend)).status_code == 202


# ------------------------------------------------------------------ the chat API


@pytest.mark.parametrize(
    ("steps", "pieces"),
    [
        ([("reply", "all")], ["all"]),
        ([("draft", "He"), ("draft", "Hello"), ("reply", "Hello!")], ["He", "llo", "!"]),
        ([("reply", "one"), ("draft", "tw"), ("reply", "two")], ["one", "\n\ntw", "o"]),
        ([("draft", "Hel"), ("draft", ""), ("draft", "Other"), ("reply", "Other")], ["Hel", "", "", "\n\nOther"]),
        ([("reply", "one"), ("reply", "two")], ["one", "\n\ntwo"]),
        ([("reply", "")], [""]),
    ],
)
def test_a_text_that_was_sent_only_grows(steps, pieces):
    text = GrowingText()
    assert [getattr(text, kind)(content) for kind, content in steps] == pieces


def test_reasoning_comes_in_pieces_also_when_its_beginning_is_left_out():
    whole = "".join(f"thought {n}, " for n in range(500))
    pieces = ReasoningPieces()
    windows = [whole[max(0, end - 2000) : end] for end in range(100, len(whole), 100)]
    assert "".join(pieces.piece(window) for window in windows) == whole[: len(windows) * 100]
    assert pieces.piece("") == ""


async def test_reasoning_is_streamed_apart_from_the_text():
    async with world() as there, there.owner() as client, trio.open_nursery() as nursery:
        drafts = [
            ReplyDraft(ChannelInfo("api", "home/c1"), text, thought) for text, thought in (("", "Hm"), ("Yes", "Hm!"))
        ]
        nursery.start_soon(partial(answer, there, "Yes, it is", drafts=drafts))
        response = await ask(there, client, stream=True, user="c1")
        chunks = [json.loads(line[6:]) for line in response.text.split("\n\n") if line.startswith("data: {")]
        deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
        assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "Hm!"
        assert "".join(delta.get("content") or "" for delta in deltas) == "Yes, it is"


def complete(there, **fields):
    return {
        "model": "pegasus",
        "messages": [{"role": "system", "content": "x"}, {"role": "user", "content": "hi"}],
        **fields,
    }


async def ask(there, client, **fields):
    return await client.post("/v1/chat/completions", json=complete(there, **fields))


async def test_only_the_last_user_message_is_new_input():
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,eA=="}}
    history = [
        {"role": "system", "content": "be rude"},
        {"role": "user", "content": "old"},
        {"role": "assistant", "content": "older"},
        {"role": "user", "content": [{"type": "text", "text": "look"}, picture]},
    ]
    async with world() as there, there.owner() as client, trio.open_nursery() as nursery:
        nursery.start_soon(answer, there, "one", "two")
        body = (await ask(there, client, messages=history, user="c1", temperature=1, tools=[], unknown={})).json()
        assert body["choices"][0]["message"]["content"] == "one\n\ntwo"
        assert body["choices"][0]["finish_reason"] == "stop"
        [(message, _)] = there.journal.accepted
        assert (message.text, message.channel.channel_id, message.media[0].mime) == ("look", "home/c1", "image/png")
        await there.journal.until(lambda: there.journal.acks)  # nobody will ask for these again


async def test_silence_is_an_answer_with_empty_content():
    async with world() as there, there.owner() as client, trio.open_nursery() as nursery:
        nursery.start_soon(answer, there)
        assert (await ask(there, client)).json()["choices"][0]["message"]["content"] == ""


@pytest.mark.parametrize(
    "fields",
    [
        {"messages": []},
        {"messages": "x"},
        {"messages": [{"role": "assistant", "content": "x"}]},
        {"messages": [{"role": "user"}]},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:x"}}]}]},
        {"messages": [{"role": "user", "content": [{"type": "video"}]}]},
        {"messages": [None, 1, {"role": "user", "content": [7]}]},
        {"user": 7},
        {"user": "a\nb"},
    ],
)
async def test_a_request_for_a_completion_that_makes_no_sense_is_400(fields):
    async with world() as there, there.owner() as client:
        response = await ask(there, client, **fields)
        assert (response.status_code, response.json()["error"]["code"]) == (400, "bad_request"), response.text


@pytest.fixture
async def openai_client():
    """A function that makes the official client for a world."""
    clients = []

    def make(there):
        http = openai.DefaultAsyncHttpxClient() if hasattr(openai, "DefaultAsyncHttpxClient") else None
        client = openai.AsyncOpenAI(api_key=TOKEN, base_url=f"{there.url}/v1", max_retries=0, http_client=http)
        clients.append(client)
        return client

    yield make
    for client in clients:
        await client.close()


async def test_the_official_client_lists_models_and_gets_an_answer(openai_client):
    async with world() as there, trio.open_nursery() as nursery:
        client = openai_client(there)
        models = await client.models.list()
        assert [model.id for model in models.data] == ["pegasus"]
        assert (await client.models.retrieve("pegasus")).id == "pegasus"
        nursery.start_soon(answer, there, "hello ☃")
        completion = await client.chat.completions.create(**complete(there))
        assert completion.choices[0].message.content == "hello ☃"
        assert completion.choices[0].message.tool_calls is None


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the client leaves its generators open
async def test_the_official_client_streams_drafts_and_replies(openai_client):
    async with world() as there, trio.open_nursery() as nursery:
        client = openai_client(there)

        async def play():
            await answer(there, "Hello there", "And more", drafts=["He", "Hello"])

        nursery.start_soon(play)
        pieces, reasons, usage = [], [], None
        options = {"include_usage": True}
        stream = await client.chat.completions.create(**complete(there, stream=True, stream_options=options))
        async for chunk in stream:
            usage = chunk.usage or usage
            for choice in chunk.choices:
                pieces.append(choice.delta.content or "")
                reasons.append(choice.finish_reason)
        assert "".join(pieces) == "Hello there\n\nAnd more"
        assert reasons[-1] == "stop"
        assert usage.total_tokens == 0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the client leaves its generators open
async def test_streams_of_one_conversation_at_the_same_time_show_their_own_drafts(openai_client):
    async with world() as there:
        client, shown = openai_client(there), {}

        async def ask(name):
            stream = await client.chat.completions.create(**complete(there, stream=True, user="c1"))
            pieces = [choice.delta.content or "" async for chunk in stream for choice in chunk.choices]
            shown[name] = "".join(pieces)

        async with trio.open_nursery() as nursery:
            for n, name in enumerate(("first", "second"), 1):
                nursery.start_soon(ask, name)
                await there.journal.until(lambda n=n: len(there.journal.accepted) >= n)
            for n, (message, _) in enumerate(there.journal.accepted, 1):
                draft = ReplyDraft(message.channel, f"draft {n}", item=n)
                await there.supervisor.ref("gateway").tell(draft)
                await say_to(there, message.id, f"draft {n}, finished")
                await there.journal.finish(n)
                await wait_all_tasks_blocked()
        assert shown == {"first": "draft 1, finished", "second": "draft 2, finished"}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the client leaves its generators open
async def test_the_official_client_is_told_what_the_turn_has_used(openai_client):
    async with world(used={1: Usage(1200, 34, cache_read_tokens=1000), 2: Usage(7, 8)}) as there:
        client = openai_client(there)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(answer, there, "hello")
            whole = await client.chat.completions.create(**complete(there))
        assert (whole.usage.prompt_tokens, whole.usage.completion_tokens, whole.usage.total_tokens) == (1200, 34, 1234)
        for options, expected in [({"include_usage": True}, [15]), ({"include_usage": False}, [])]:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(answer, there, "hello")
                stream = await client.chat.completions.create(**complete(there, stream=True, stream_options=options))
                chunks = [chunk async for chunk in stream]
            assert [chunk.usage.total_tokens for chunk in chunks if chunk.usage is not None] == expected
            assert all(chunk.choices or chunk is chunks[-1] for chunk in chunks)


TITLE = """### Task:
Generate a concise, 3-5 word title with an emoji summarizing the chat history.
### Output:
JSON format: { "title": "your concise title here" }
### Chat History:
<chat_history>
USER: hi
ASSISTANT: hello
</chat_history>"""


async def test_open_webui_gets_answers_and_its_chores_are_kept_from_the_agent():
    forwarded = {"x-openwebui-chat-id": "b1c2", "x-openwebui-user-name": "Ada", "x-openwebui-user-role": "user"}
    async with world() as there, there.owner(**forwarded) as client, trio.open_nursery() as nursery:
        assert (await client.get("/v1/models")).json()["data"][0]["id"] == "pegasus"
        nursery.start_soon(answer, there, "hello")
        options = {"include_usage": True}
        extras = {"chat_id": "b1c2", "session_id": "s", "metadata": {"chat_id": "b1c2"}, "params": {}, "features": {}}
        answered = await ask(there, client, stream=True, stream_options=options, **extras)
        assert (answered.status_code, '"content":"hello"' in answered.text.replace(" ", "")) == (200, True)
        chore = [{"role": "user", "content": TITLE}]
        titled = await ask(
            there, client, messages=chore, stream=False, max_completion_tokens=1000, metadata={"task": "title"}
        )
        assert titled.status_code == 200
        [choice] = titled.json()["choices"]
        assert (choice["message"]["content"], choice["finish_reason"]) == ("", "stop")
        assert [message.text for message, _ in there.journal.accepted] == ["hi"]


async def test_a_person_may_begin_a_message_like_a_front_end():
    async with world() as there, there.owner() as client, trio.open_nursery() as nursery:
        for n, fields in enumerate(({"content": "### Task:\nwater the plants"}, {"content": TITLE, "stream": True}), 1):
            nursery.start_soon(answer, there, "done")
            message = [{"role": "user", "content": fields["content"]}]
            assert "done" in (await ask(there, client, messages=message, stream=fields.get("stream", False))).text
            assert len(there.journal.accepted) == n


async def test_the_official_client_tells_errors_apart(openai_client):
    async with world() as there:
        client = openai_client(there)
        with pytest.raises(openai.BadRequestError):
            await client.chat.completions.create(model="x", messages=[])
        client.api_key = "wrong"
        with pytest.raises(openai.AuthenticationError):
            await client.models.list()


async def hang_up(there, begin):
    """Begin a request, and hang up when its message is on disk."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(begin)
        await there.journal.until(lambda: there.journal.waiting_for)
        nursery.cancel_scope.cancel()


async def withdrawn(there):
    """The first message whose sender the server has found to be gone."""
    with trio.fail_after(20):
        while not there.withdrawn:
            await trio.lowlevel.checkpoint()
    return there.withdrawn[0]


@pytest.mark.parametrize(
    ("path", "headers"),
    [("/v1/chat/completions", {"idempotency-key": "k-1"}), ("/api/messages?wait=20", {})],  # these may come again
)
async def test_a_client_that_leaves_does_not_take_its_message_back(path, headers):
    async with world() as there, there.owner() as client:
        body = complete(there, text="hi")
        await hang_up(there, partial(client.post, path, json=body, headers=headers))
        [(message, _)] = there.journal.accepted
        assert message.text == "hi"
        await client.get("/healthz")
        await wait_all_tasks_blocked()
        assert there.withdrawn == []


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_the_turn_of_a_client_that_hangs_up_is_stopped(openai_client, is_streamed):
    async with world() as there:
        client = openai_client(there)

        async def begin():
            answer = await client.chat.completions.create(**complete(there, stream=is_streamed))
            async for _ in answer:
                pass

        await hang_up(there, begin)
        [(message, _)] = there.journal.accepted
        found = await withdrawn(there)
        assert (found.id, found.channel.address) == (message.id, message.channel.address)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the client leaves its generators open
async def test_the_official_client_stops_the_turn_by_closing_its_stream(openai_client):
    async with world() as there, trio.open_nursery() as nursery:
        client = openai_client(there)

        async def play():
            await there.journal.until(lambda: there.journal.waiting_for)
            await there.supervisor.ref("gateway").tell(ReplyDraft(channel_of(there), "Hel", item=1))

        nursery.start_soon(play)
        stream = await client.chat.completions.create(**complete(there, stream=True))
        async for chunk in stream:
            if chunk.choices[0].delta.content:
                break
        await stream.close()
        assert (await withdrawn(there)).text == "hi"


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_turn_is_not_stopped_with_the_server_and_its_client_is_told(is_streamed):
    async with trio.open_nursery() as nursery, world(stop_time=0.1) as there:

        async def begin():
            async with there.owner() as client:
                body = complete(there, stream=is_streamed)
                answers.append(await client.post("/v1/chat/completions", json=body))

        answers = []
        nursery.start_soon(begin)
        await there.journal.until(lambda: there.journal.waiting_for)
    [answer] = answers
    assert "the agent is being stopped" in answer.text
    if not is_streamed:
        assert (answer.status_code, answer.headers["connection"]) == (503, "close")
        assert int(answer.headers["retry-after"]) > 0
    assert there.withdrawn == []


async def test_an_answer_that_is_read_whole_stops_nothing():
    async with world() as there:
        async with there.owner() as client, trio.open_nursery() as nursery:
            nursery.start_soon(answer, there, "one")
            await ask(there, client, stream=True)
        async with there.owner() as client:
            await client.get("/healthz")
        assert there.withdrawn == []
