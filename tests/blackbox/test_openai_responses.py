"""`/v1/responses` by OpenAI's own client against the real daemon. Each event must be what the client's types say."""

from __future__ import annotations

from functools import partial

import openai
import pytest
import trio
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from tests.blackbox.support import Book
from tests.blackbox.support.model import HANG_IN_THE_MIDDLE
from tests.blackbox.test_openai_chats import PICTURE, client_of, heard, talking

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of the client's generators
EVENT = TypeAdapter(ResponseStreamEvent)


def strictly(model):
    """Return what the client has parsed, checked against its types: it takes over what it gets without a look."""
    return type(model).model_validate_json(model.model_dump_json(), strict=False)


async def respond(client, input, *, stream=False, end="completed", **fields):
    """Return the response, whole or as the stream ends. end: the last event."""
    answer = await client.responses.create(model="pegasus", input=input, stream=stream, **fields)
    if not stream:
        return strictly(answer)
    events = [event async for event in answer]
    for event in events:
        EVENT.validate_json(event.model_dump_json())
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [events[0].type, events[-1].type] == ["response.created", f"response.{end}"]
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == events[-1].response.output_text
    return events[-1].response


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.tried(
    "clients", "OpenAI's responses: streamed or not, previous_response_id", "one conversation, all events parsed"
)
async def test_a_response_follows_the_one_before(tmp_path, stream):
    async with talking(tmp_path, book := Book()) as (_, client):
        first = await respond(client, "I am Anna", stream=stream)
        assert isinstance(first, Response)
        assert (first.status, first.output_text) == ("completed", "echo: I am Anna")
        other = await respond(client, "I am Bob", stream=stream)
        second = await respond(client, "who am I?", stream=stream, previous_response_id=first.id)
        assert heard(book.asked[-1]) == ["I am Anna", "who am I?"]
        assert second.previous_response_id == first.id
        await respond(client, "and I?", stream=stream, previous_response_id=other.id)
        assert heard(book.asked[-1]) == ["I am Bob", "and I?"]
        await respond(client, "from the beginning", stream=stream, previous_response_id=first.id)
        assert heard(book.asked[-1]) == ["I am Anna", "from the beginning"]
        assert first.usage.total_tokens == first.usage.input_tokens + first.usage.output_tokens > 0


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_somebody_stops_is_not_complete(tmp_path, stream):
    async with talking(tmp_path, book := Book()) as (_, client):
        post = partial(client.post, cast_to=dict)

        async def stopped(ask):
            """Return what an answer comes to that is stopped while the model thinks."""
            book.hold()
            results = []

            async def asked():
                results.append(await ask())

            async with trio.open_nursery() as nursery:
                nursery.start_soon(asked)
                await book.waiting()
                channel = {"type": "api", "channelId": "home/me"}
                assert (await post("../api/interrupt", body={"channel": channel}))["interrupted"]
            book.release()
            return results[0]

        response = await stopped(partial(respond, client, "one", stream=stream, user="me", end="incomplete"))
        assert (response.status, response.output_text, response.incomplete_details) == ("incomplete", "", None)
        assert response.output[0].status == "incomplete"

        async def complete():
            ask = partial(client.chat.completions.create, model="pegasus", stream=stream, user="me")
            answer = await ask(messages=[{"role": "user", "content": "two"}])
            return [part async for part in answer][-1] if stream else answer

        assert (await stopped(complete)).choices[0].finish_reason == "length"

        message = {"text": "three", "channel": {"channelId": "home/me"}}
        answer = await stopped(partial(post, "../api/messages?wait=30", body=message))
        assert (answer["done"], answer["stopped"], answer["replies"]) == (True, True, [])
        assert (await respond(client, "four", stream=stream)).status == "completed"


async def test_items_instructions_and_pictures(tmp_path):
    async with talking(tmp_path, book := Book()) as (_, client):
        look = [{"type": "input_text", "text": "look"}, {"type": "input_image", "image_url": PICTURE, "detail": "auto"}]
        history = [{"role": "user", "content": look}]
        first = await respond(client, history, instructions="Be brief.")
        assert "Be brief." in book.asked[-1].system
        history += [item.model_dump(exclude_none=True) for item in first.output]
        history.append({"role": "user", "content": [{"type": "input_text", "text": "again"}]})
        await respond(client, history)
        assert (heard(book.asked[-1])[0], book.asked[-1].question.text) == ("look", "again")
        assert "Be brief." not in book.asked[-1].system


async def test_what_a_response_cannot_be_is_refused_with_a_sentence(tmp_path):
    tool = {"type": "function", "name": "lookup", "parameters": {"type": "object"}, "strict": False}
    async with talking(tmp_path, book := Book()) as (_, client):
        for fields, error, words in (
            ({"tools": [tool]}, openai.BadRequestError, "tools of its own"),
            ({"previous_response_id": "resp_gone"}, openai.NotFoundError, "previous_response_id"),
            ({"background": True}, openai.BadRequestError, "background"),
            ({"instructions": ["be brief"]}, openai.BadRequestError, "instructions"),
            ({"safety_identifier": 5}, openai.BadRequestError, "safety_identifier"),
            ({"input": []}, openai.BadRequestError, "role user"),
        ):
            with pytest.raises(error, match=words):
                await client.responses.create(**{"model": "pegasus", "input": "hi", **fields})
            with pytest.raises(error, match=words):
                await client.responses.create(**{"model": "pegasus", "input": "hi", "stream": True, **fields})
        assert book.asked == []
        assert (await respond(client, "hi", tools=[tool], tool_choice="none")).output_text == "echo: hi"


async def test_a_client_that_hangs_up_ends_its_response(tmp_path):
    async with talking(tmp_path, book := Book({"a novel": HANG_IN_THE_MIDDLE})) as (_, client):
        stream = await client.responses.create(model="pegasus", input="a novel", stream=True)
        async for event in stream:
            if event.type == "response.content_part.added":
                break
        await book.reached(1)
        await stream.close()
        await book.abandoned()
        assert (await respond(client, "hello")).output_text == "echo: hello"


async def test_a_response_survives_the_death_of_the_process_and_is_answered_once(tmp_path):
    book = Book()
    async with talking(tmp_path, book) as (daemon, client):
        key = {"extra_headers": {"Idempotency-Key": "r-1"}}
        first = await respond(client, "hello")

        async def ask():
            with pytest.raises(openai.APIConnectionError):
                await respond(client, "again", previous_response_id=first.id, **key)

        book.hold()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await book.waiting()
            daemon.kill()
        book.release()
        await daemon.start()
        async with client_of(daemon) as later:
            for stream in (False, True):
                answer = await respond(later, "again", stream=stream, previous_response_id=first.id, **key)
                assert answer.output_text == "echo: again"
            assert heard(book.asked[-1]) == ["hello", "again"]
            thoughts = len(book.asked)
            assert (await respond(later, "last", previous_response_id=answer.id)).output_text == "echo: last"
            assert heard(book.asked[-1]) == ["hello", "again", "last"]
            assert all(view.question.text == "last" for view in book.asked[thoughts:])


async def test_what_a_front_end_asks_for_about_a_chat_costs_no_turn(tmp_path):
    async with talking(tmp_path, book := Book()) as (_, client):
        said = "I live in Graz and I look for a bicycle"
        first = await respond(client, said)
        thoughts = len(book.asked)
        history = f"user: {said}\nassistant: {first.output_text}"
        for text in (
            f"### Task:\nGenerate a title.\n<chat_history>\n{history}\n</chat_history>",
            f"Write a title of at most five words for this conversation:\n\n{history}",
        ):
            answer = await respond(client, text)
            assert (answer.status, answer.output_text) == ("completed", "")
        assert len(book.asked) == thoughts
        assert (await respond(client, "and now?", previous_response_id=first.id)).output_text == "echo: and now?"
