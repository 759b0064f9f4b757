"""Requests of one conversation at the same time, by OpenAI's own client and by HTTP, against the real daemon."""

from __future__ import annotations

from functools import partial

import httpx
import openai
import pytest
import trio

from tests.blackbox.support import Book, serving, until

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of the client's generators

HTTP = {"http.enabled": True, "http.port": 0}
BUSY = {
    "followup": {"agent.when_busy": "followup"},
    "steer": {"agent.when_busy": "steer", "agent.burst_cap": 10},
    "interrupt": {"agent.when_busy": "interrupt", "agent.burst_cap": 10},
}


def client_of(daemon):
    http = openai.DefaultAsyncHttpxClient() if hasattr(openai, "DefaultAsyncHttpxClient") else None
    return openai.AsyncOpenAI(api_key=daemon.token, base_url=f"{daemon.at.http}/v1", max_retries=0, http_client=http)


async def ask(client, text, *, stream=False, key=None, user="me"):
    headers = {"Idempotency-Key": key} if key else {}
    answer = await client.chat.completions.create(
        model="pegasus", user=user, messages=[{"role": "user", "content": text}], stream=stream, extra_headers=headers
    )
    if not stream:
        return answer.choices[0].message.content
    return "".join([chunk.choices[0].delta.content or "" async for chunk in answer])


async def ask_by_rest(daemon, text):
    async with httpx.AsyncClient(headers={"authorization": f"Bearer {daemon.token}"}, timeout=20) as client:
        body = {"text": text, "channel": {"channelId": "me"}}
        answer = (await client.post(f"{daemon.at.http}/api/messages?wait=20", json=body)).json()
        return "\n\n".join(reply["text"] for reply in answer["replies"])


@pytest.mark.parametrize("busy", BUSY)
async def test_each_request_gets_its_own_answer(tmp_path, busy):
    answers = {}

    async def note(text, ask):
        answers[text] = await ask()

    async with serving(tmp_path, book := Book(), {**HTTP, **BUSY[busy]}) as daemon, client_of(daemon) as client:
        book.hold()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(note, "first", partial(ask, client, "first"))
            await book.reached(1)
            leaving = trio.CancelScope()

            async def leave():
                with leaving:
                    await ask(client, "never mind")

            nursery.start_soon(leave)
            for n in range(3):
                nursery.start_soon(note, f"whole {n}", partial(ask, client, f"whole {n}"))
                nursery.start_soon(note, f"streamed {n}", partial(ask, client, f"streamed {n}", stream=True))
                nursery.start_soon(note, f"by rest {n}", partial(ask_by_rest, daemon, f"by rest {n}"))
            nursery.start_soon(note, "/status", partial(ask, client, "/status"))
            await until(lambda: "/status" in answers, "the answer to the command", 20)
            async with daemon.client() as other:
                while (await other.call("status"))["waiting"] < 11:
                    await other.fence()
            leaving.cancel()
            book.release()
    status = answers.pop("/status")
    assert "waiting" in status.lower()
    assert "echo" not in status
    assert len(answers) == 10
    assert answers == {text: f"echo: {text}" for text in answers}


async def test_a_stop_ends_the_request_that_is_worked_on_and_no_other(tmp_path):
    answers = {}

    async def note(client, text):
        answers[text] = await ask(client, text, stream=text == "long")

    async with serving(tmp_path, book := Book(), HTTP) as daemon, client_of(daemon) as client:
        book.hold(only=lambda view: view.question.text == "long")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(note, client, "long")
            await book.waiting()
            nursery.start_soon(note, client, "short")
            async with daemon.client() as other:
                while (await other.call("status"))["waiting"] < 2:
                    await other.fence()
            nursery.start_soon(note, client, "/stop")
        book.release()
    assert (answers["long"], answers["short"]) == ("", "echo: short")
    assert "long" in answers["/stop"]
    assert "echo" not in answers["/stop"]


async def test_requests_that_are_made_again_after_a_kill_9_get_their_own_answers(tmp_path):
    texts, answers = ("one", "two", "three"), {}

    async def break_off(daemon, text):
        async with client_of(daemon) as client:
            with pytest.raises(openai.APIConnectionError):
                await ask(client, text, key=f"k-{text}")

    async def note(client, text):
        answers[text] = await ask(client, text, key=f"k-{text}")

    async with serving(tmp_path, book := Book(), HTTP) as daemon:
        book.hold()
        async with trio.open_nursery() as nursery:
            for text in texts:
                nursery.start_soon(break_off, daemon, text)
            async with daemon.client() as other:
                while (await other.call("status"))["waiting"] < 3:
                    await other.fence()
            daemon.kill()
        await daemon.start()
        book.release()
        async with client_of(daemon) as client, trio.open_nursery() as nursery:
            for text in reversed(texts):
                nursery.start_soon(note, client, text)
    assert answers == {text: f"echo: {text}" for text in texts}
