"""A provider that fails in every way: the sender hears an honest sentence, once; the daemon stays up; the next message works."""

from __future__ import annotations

import time
from contextlib import asynccontextmanager

import pytest
import trio

from tests.blackbox.support import (
    HANG,
    SILENCE,
    Book,
    Call,
    Thought,
    cut,
    failing,
    open_calls,
    page,
    refuse,
    reset,
    say,
    serving,
    session,
    until,
)
from tests.blackbox.support.model import HANG_IN_THE_MIDDLE

pytestmark = pytest.mark.usefixtures("own_programs")  # its memory is measured

SECRET = "sk-test-0123456789"


def after(fault, times=1):
    """This fault for so many requests, then a reply."""
    left = [fault] * times

    def page_of_the_book(view):
        return left.pop() if left else say("it worked")

    return page_of_the_book


@asynccontextmanager
async def patience(daemon, client):
    """Give calls a minute, so that a busy machine does not make a good answer late; then as long as before."""
    before = daemon.settings.get("models.timeout", 120.0)
    daemon.configure(models__timeout=60.0)
    await client.call("config.reload")
    yield
    daemon.configure(models__timeout=before)
    await client.call("config.reload")


async def assert_told_and_well(daemon, book, *words):
    """The question is answered with one sentence that has these words; the next one works; the session is well-formed."""
    async with daemon.client() as client, daemon.client("web", "bystander") as bystander:
        told = await client.ask("hello")
        for word in words:
            assert word in told, told
        assert SECRET not in told
        assert len(told) < 600
        assert "Traceback" not in told
        book.pages.clear()
        async with patience(daemon, client):
            assert await client.ask("next") == "echo: next"
        await bystander.fence()
        assert bystander.texts() == []
    await until(lambda: open_calls(session(daemon.home)) == [], "a well-formed session")
    assert SECRET not in daemon.stderr
    assert len({view.request.n for view in book.about("next")}) == 1


LASTING = {
    "400": (refuse(400, "max_tokens is too large for this model"), ["400", "max_tokens is too large"]),
    "401": (refuse(401, f"Incorrect API key provided: {SECRET}"), ["401", "key"]),
    "403": (refuse(403, "country not supported"), ["403", "country not supported"]),
    "404": (refuse(404, "The model `model-1` does not exist"), ["404", "model"]),
    "a web page": (page(), ["base_url"]),
    "429 for an hour": (refuse(429, "quota used up", retry_after=3600), ["429", "quota used up"]),
    "a web page with an error status": (page("<html><h1>Bad gateway key</h1></html>", 401), ["401"]),
}


@pytest.mark.parametrize(("fault", "words"), LASTING.values(), ids=LASTING)
async def test_a_fault_that_will_last_is_told_at_once(stage, name, fault, words):
    async with stage.play(book := Book({"hello": fault}), name) as daemon:
        with trio.fail_after(8):
            await assert_told_and_well(daemon, book, *words)


LIMITED = {
    "500": (refuse(500, "internal"), ["500"]),
    "529": (refuse(529, "Overloaded"), ["529"]),
    "429": (refuse(429, "slow down"), ["429"]),
    "hangs": (HANG, ["0.4 s (models.timeout)"]),
    "hangs in the middle": (HANG_IN_THE_MIDDLE, ["0.4 s (models.silence_timeout)"]),
    "reset": (reset(), []),
    "cut": (cut(say("never seen"), 2), []),
    "error in the stream": (failing("server_error", "something broke"), []),
}


@pytest.mark.parametrize(("fault", "words"), LIMITED.values(), ids=LIMITED)
async def test_a_fault_that_might_pass_is_told_after_the_timeout_at_latest(hasty_stage, name, fault, words):
    async with hasty_stage.play(book := Book({"hello": fault}), name) as daemon:
        with trio.fail_after(10):
            await assert_told_and_well(daemon, book, *words)


async def test_an_answer_that_trickles_for_longer_than_the_limit_is_taken(hasty_stage, name):
    trickle = Thought("drop " * 30, say("it worked").calls, pieces=30, pause=0.05)
    async with hasty_stage.play(Book({"hello": trickle}), name) as daemon, daemon.client() as client:
        assert await client.ask("hello") == "it worked"


PASSING = {
    "500": (refuse(500), "500"),
    "429": (refuse(429), "429"),
    "reset": (reset(), "network"),
    "cut in the middle": (cut(say("never seen"), 2), "network"),
    "overloaded in the stream": (failing("overloaded_error"), "529"),
}


@pytest.mark.parametrize(("fault", "word"), PASSING.values(), ids=PASSING)
async def test_of_a_fault_that_passes_only_the_wait_is_told(stage, name, fault, word):
    async with stage.play(book := Book({"hello": after(fault)}), name) as daemon, daemon.client() as client:
        assert await client.ask("hello") == "it worked"
        told = [frame["activity"] for frame in client.seen if frame["type"] == "progress" and frame.get("activity")]
        assert told == [f"retrying ({word}), attempt 2"]
        await client.ask("next")
        assert client.texts() == ["it worked", "echo: next"]
        assert len(book.about("hello")) == 2
        assert "never seen" not in str(session(daemon.home))


async def test_retry_after_is_honoured(stage, name):
    times = []

    def note(view):
        times.append(time.monotonic())
        return refuse(429, retry_after=2) if len(times) == 1 else say("it worked")

    async with stage.play(Book({"hello": note}), name) as daemon, daemon.client() as client:
        assert await client.ask("hello") == "it worked"
    assert 1.9 < times[1] - times[0] < 6


async def test_a_hanging_call_is_given_up_and_its_connection_closed(hasty_stage, name):
    async with hasty_stage.play(book := Book({"hello": HANG}), name) as daemon, daemon.client() as client:
        await client.ask("hello")
        await book.abandoned()


async def test_an_error_from_one_thought_to_the_next_keeps_what_was_said(stage, name):
    book = Book(
        {"hello": [Thought("a plan", (say("working on it").calls[0], Call("current_time"))), refuse(402, "no")]}
    )
    async with stage.play(book, name) as daemon, daemon.client() as client:
        await client.say("hello")
        first, second = await client.replies(2)
        assert first["text"] == "working on it"
        assert "402" in second["text"]
        assert await client.ask("next") == "echo: next"
        assert "a plan" in book.asked[-1].said("assistant")


async def test_a_provider_that_is_down(tmp_path):
    settings = {"models.timeout": 0.4, "providers.test.base_url": "http://127.0.0.1:9/v1"}
    async with serving(tmp_path, Book(), settings) as daemon, daemon.client() as client:
        told = await client.ask("hello")
        assert "connect" in told.lower() or "0.4 s (models.timeout)" in told
        assert "/stop" in await client.ask("/help")


async def test_a_provider_that_comes_back(stage, name):
    """Messages wait in order while it fails, and those after its return are answered."""
    async with stage.play(Book({"one": refuse(402)}), name) as daemon, daemon.client() as client:
        for text in ("one", "two", "three"):
            await client.say(text)
        replies = await client.replies(3)
        assert [frame["text"] for frame in replies[1:]] == ["echo: two", "echo: three"]


async def test_a_whole_answer_instead_of_a_stream(stage, name):
    """Servers that do not stream answer with one JSON object."""
    body = (
        b'{"id":"x","object":"chat.completion","created":0,"model":"m","choices":[{"index":0,"finish_reason":"tool_calls",'
        b'"message":{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"reply",'
        b'"arguments":"{\\"text\\":\\"in one piece\\",\\"channelId\\":\\"NAME\\"}"}}]}}]}'
    )
    whole = Thought(body=body.replace(b"NAME", name.encode()), content_type="application/json")
    async with stage.play(Book({"hello": whole}), name) as daemon, daemon.client() as client:
        assert await client.ask("hello") == "in one piece"


NONSENSE = {
    "empty body": Thought(body=b"", content_type="application/json"),
    "empty stream": Thought(body=b""),
    "JSON of something else": Thought(body=b'{"hello":"world"}', content_type="application/json"),
    "null": Thought(body=b"null", content_type="application/json"),
    "events of no JSON": Thought(body=b"data: hello\n\ndata: [DONE]\n\n"),
    "events of something else": Thought(body=b'data: {"a":1}\n\ndata: [DONE]\n\n'),
    "deep": Thought(body=b"data: " + b"[" * 100_000 + b"\n\n"),
    "zeros": Thought(body=b"\0" * 100_000),
    "not UTF-8": Thought(body=b'data: {"choices":[{"delta":{"content":"\xff\xfe"}}]}\n\n'),
}


@pytest.mark.parametrize("fault", NONSENSE.values(), ids=NONSENSE)
async def test_an_answer_that_makes_no_sense(hasty_stage, name, fault):
    async with hasty_stage.play(book := Book({"hello": fault}), name) as daemon:
        await assert_told_and_well(daemon, book)


async def test_an_answer_without_end_is_cut_off(stage, name):
    """Forty megabytes of monologue: memory stays bounded."""
    flood = (b'data: {"choices":[{"index":0,"delta":{"content":"' + b"x" * 50_000 + b'"}}]}\n\n') * 800
    async with stage.play(book := Book({"hello": Thought(body=flood)}), name) as daemon:
        await assert_told_and_well(daemon, book)
        assert daemon.peak_memory() < 200_000_000


async def test_surrogates_and_control_characters_in_an_answer(stage, name):
    """A pair cut in two pieces by the stream is one character again; a lone half harms nothing."""
    body = b""
    for piece in ("\\ud83d", "\\udc08", " \\ud800 \\u0000"):
        body += b'data: {"choices":[{"index":0,"delta":{"content":"' + piece.encode() + b'"}}]}\n\n'
    body += b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    async with stage.play(book := Book({"hello": Thought(body=body)}), name) as daemon, daemon.client() as client:
        assert (
            await client.ask("before") == "echo: before"
        )  # a model that has called a tool may write text that nobody hears
        await client.say("hello")
        assert await client.ask("next") == "echo: next"
        assert "🐈" in book.asked[-1].said("assistant")[-1]


async def test_an_apology_is_given_once_over_restarts(stage, name):
    async with stage.play(Book({"hello": refuse(401)}), name) as daemon:
        async with daemon.client() as client:
            await client.say("hello")
            first = await client.reply()
            daemon.kill()
        await daemon.start()
        async with daemon.client(lastSeq=0) as client:
            assert await client.reply() == first
            assert await client.ask("next") == "echo: next"
            assert len(client.texts()) == 2


async def test_silence_after_an_error_result_is_legal(stage, name):
    book = Book({"hello": [Thought(calls=(Call("nonsense"),)), SILENCE]})
    async with stage.play(book, name) as daemon, daemon.client() as client:
        await client.say("hello")
        assert await client.ask("next") == "echo: next"
        assert client.texts() == ["echo: next"]
