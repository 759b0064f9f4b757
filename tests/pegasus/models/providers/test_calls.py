"""Both providers over real HTTP, by the official SDKs: what is asked, what comes back, what is sent again."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from pegasus.models import LanguageModel, ModelError, ModelService, ToolCall, ToolResult, Usage, UserTurn
from pegasus.settings import ModelSettings, ProviderSettings
from pegasus.testing.provider import ProviderServer, open_provider
from pegasus.testing.provider.answers import (
    Call,
    ProviderAnswer,
    cut,
    failing,
    hang,
    page,
    refuse,
    reset,
    sequence,
    silent,
)
from tests.pegasus.models.conftest import KEY, Ask, assistant, opened, request

RICH = ProviderAnswer(
    "Thinking about it",
    (Call("reply", {"text": "Grüße 😀", "channelId": "c"}, "id_1"), Call("reply", {"text": "2"}, "id_2")),
    usage=Usage(90, 9, 40, 0),
    pieces=7,
)


async def error_of(ask: Ask, **fields: Any) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await ask(**fields)
    error = caught.value
    assert "\n" not in str(error)
    assert KEY not in str(error)
    assert len(str(error)) < 500
    return error


def answers(server: ProviderServer, *script: ProviderAnswer) -> None:
    server.script = sequence(script)


# ------------------------------------------------------------------ going well


async def test_text_calls_and_usage_arrive(ask: Ask, server: ProviderServer) -> None:
    answers(server, RICH)
    response = await ask()
    assert response.text == "Thinking about it"
    assert response.calls == (
        ToolCall("id_1", "reply", {"text": "Grüße 😀", "channelId": "c"}),
        ToolCall("id_2", "reply", {"text": "2"}),
    )
    assert response.usage == Usage(90, 9, 40, 0)
    assert response.stop_reason == "tool_calls"


async def test_a_conversation_goes_on(ask: Ask, server: ProviderServer, form: str) -> None:
    answers(server, RICH, ProviderAnswer("Done."))
    first = UserTurn(text="hello")
    response = await ask(first)
    results = tuple(ToolResult(call.id, call.name, "ok") for call in response.calls)
    assert (await ask(first, assistant(response), UserTurn(results, "and?"))).text == "Done."
    assert server.invalid == []
    assert server.requests[-1].format == form
    assert [result.content for result in server.requests[-1].last.results] == ["ok", "ok"]


async def test_the_request_is_authenticated_and_streams(ask: Ask, server: ProviderServer) -> None:
    await ask()
    seen = server.requests[0]
    assert KEY in (seen.headers.get("x-api-key"), seen.headers["authorization"].removeprefix("Bearer "))
    assert seen.stream
    assert seen.headers["content-type"] == "application/json"


async def test_calls_one_after_another_use_one_connection(ask: Ask, server: ProviderServer) -> None:
    for _ in range(5):
        await ask()
    assert server.connections == 1


async def test_a_server_that_does_not_stream_is_understood(ask: Ask, server: ProviderServer, form: str) -> None:
    if form == "anthropic":
        use = {"type": "tool_use", "id": "a", "name": "reply", "input": {"x": 1}}
        content = [{"type": "text", "text": "one piece"}, use]
        whole: Any = {"type": "message", "content": content, "stop_reason": "tool_use", "usage": {"input_tokens": 5}}
    else:
        function = {"name": "reply", "arguments": '{"x":1}'}
        message = {"content": "one piece", "tool_calls": [{"id": "a", "type": "function", "function": function}]}
        whole = {"choices": [{"message": message, "finish_reason": "tool_calls"}], "usage": {"prompt_tokens": 5}}
    answers(server, ProviderAnswer(body=json.dumps(whole).encode(), content_type="application/json"))
    response = await ask()
    assert (response.text, response.calls) == ("one piece", (ToolCall("a", "reply", {"x": 1}),))
    assert response.usage.prompt_tokens == 5


async def test_broken_arguments_are_left_to_the_model(ask: Ask, server: ProviderServer) -> None:
    answers(server, ProviderAnswer(calls=(Call("reply", '{"text": "a'), Call("reply", "[]"))))
    calls = (await ask()).calls
    assert [call.arguments for call in calls] == [{}, {}]
    assert all(call.error for call in calls)


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("status", "kind"), [(400, "request"), (401, "auth"), (403, "auth"), (404, "request"), (413, "overflow")]
)
async def test_what_would_fail_again_is_not_tried_again(
    ask: Ask, server: ProviderServer, status: int, kind: str
) -> None:
    answers(server, refuse(status, f"no, because\n of {KEY}"))
    error = await error_of(ask)
    assert (error.kind, error.status) == (kind, status)
    assert "no, because of …" in str(error)
    assert server.count == 1


@pytest.mark.parametrize("status", [429, 500, 503, 529])
async def test_what_may_pass_is_tried_again(
    ask: Ask, server: ProviderServer, fast_clock: MockClock, status: int
) -> None:
    answers(server, refuse(status), refuse(status), ProviderAnswer("at last"))
    assert (await ask()).text == "at last"
    assert server.count == 3


async def test_retry_after_is_honoured(ask: Ask, server: ProviderServer, fast_clock: MockClock) -> None:
    began = trio.current_time()
    answers(server, refuse(429, retry_after=20), ProviderAnswer("at last"))
    assert (await ask()).text == "at last"
    assert trio.current_time() - began >= 20


async def test_a_retry_after_beyond_the_deadline_fails_at_once(
    ask: Ask, server: ProviderServer, fast_clock: MockClock
) -> None:
    """So that a fallback may answer, instead of a timeout in two minutes."""
    answers(server, refuse(429, "quota", retry_after=100_000))
    error = await error_of(ask)
    assert (error.kind, error.status, server.count) == ("overloaded", 429, 1)


async def test_the_attempts_are_bounded(ask: Ask, server: ProviderServer, fast_clock: MockClock) -> None:
    server.script = lambda _: refuse(529)
    error = await error_of(ask)
    assert (error.kind, error.status, server.count) == ("overloaded", 529, 5)


# ------------------------------------------------------------------ answers that fail in the middle


@pytest.mark.parametrize("after", [0, 1, 3])
async def test_a_stream_that_breaks_off_is_asked_for_again(
    ask: Ask, server: ProviderServer, fast_clock: MockClock, after: int
) -> None:
    answers(server, cut(RICH, after), RICH)
    assert len((await ask()).calls) == 2
    assert server.count == 2


async def test_a_connection_that_is_reset_is_tried_again(
    ask: Ask, server: ProviderServer, fast_clock: MockClock
) -> None:
    answers(server, reset(), ProviderAnswer("at last"))
    assert (await ask()).text == "at last"


async def test_streams_that_always_break_off_end_in_an_error(
    ask: Ask, server: ProviderServer, fast_clock: MockClock
) -> None:
    server.script = lambda _: cut(RICH, 2)
    error = await error_of(ask)
    assert error.kind == "network"
    assert server.count == 5


async def test_refusals_and_broken_streams_share_one_budget(
    ask: Ask, server: ProviderServer, fast_clock: MockClock
) -> None:
    answers(server, refuse(500), refuse(500), cut(RICH, 1), refuse(500), cut(RICH, 1), RICH)
    assert (await error_of(ask)).kind == "network"
    assert server.count == 5


async def test_an_empty_answer_is_asked_for_again(ask: Ask, server: ProviderServer, fast_clock: MockClock) -> None:
    answers(
        server,
        ProviderAnswer(body=b""),
        ProviderAnswer(body=b"", content_type="application/json"),
        ProviderAnswer("at last"),
    )
    assert (await ask()).text == "at last"


async def test_an_error_event_that_may_pass_is_tried_again(
    ask: Ask, server: ProviderServer, fast_clock: MockClock
) -> None:
    answers(server, failing("overloaded_error"), ProviderAnswer("at last"))
    assert (await ask()).text == "at last"


async def test_an_error_event_that_will_not_pass_is_not(ask: Ask, server: ProviderServer) -> None:
    answers(server, failing("invalid_request_error", "prompt is too long"))
    error = await error_of(ask)
    assert (error.kind, error.status, server.count) == ("overflow", 400, 1)
    assert "prompt is too long" in str(error)


async def test_a_web_page_is_no_model(ask: Ask, server: ProviderServer) -> None:
    answers(server, page())
    error = await error_of(ask)
    assert error.kind == "protocol"
    assert "base_url" in str(error)
    assert "<" not in str(error)
    assert server.count == 1


async def test_a_web_page_as_a_refusal_is_told_without_its_tags(ask: Ask, server: ProviderServer) -> None:
    answers(server, page("<html><body><h1>403 Forbidden</h1></body></html>", status=403))
    error = await error_of(ask)
    assert error.kind == "auth"
    assert "403 Forbidden" in str(error)
    assert "<" not in str(error)


@pytest.mark.parametrize("body", [b"plain text", b"{}", b'["x"]', b"data: [1]\n\n", b"\xff\xfe\x00"])
async def test_nonsense_is_an_error_of_the_protocol_or_a_broken_stream(
    ask: Ask, server: ProviderServer, fast_clock: MockClock, body: bytes
) -> None:
    for kind in ("text/plain", "application/json", "text/event-stream"):
        server.script = lambda _, kind=kind: ProviderAnswer(body=body, content_type=kind)
        assert (await error_of(ask)).kind in ("protocol", "network", "server", "request")


# ------------------------------------------------------------------ time, cancelling, concurrency


async def test_retries_are_within_the_time_limit_and_named(
    form: str, server: ProviderServer, fast_clock: MockClock
) -> None:
    answers(server, cut(RICH, 1), hang())
    async with opened(form, server, timeout=20.0) as model:
        error = await error_of(lambda: model.generate(request()))
    assert error.kind == "timeout"
    assert server.count == 2
    assert "before that" in str(error)


@pytest.mark.parametrize("events", [0, 3])
async def test_cancelling_closes_the_connection_at_once(
    model: LanguageModel, server: ProviderServer, events: int
) -> None:
    server.script = lambda _: hang(events)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(model.generate, request())
        await server.until(lambda it: len(it.requests) == 1)
        nursery.cancel_scope.cancel()
    with trio.fail_after(1):
        await server.until(lambda it: it.hung_up == 1)


async def test_a_finished_answer_on_a_connection_that_stays_open_is_taken(
    form: str, server: ProviderServer, fast_clock: MockClock
) -> None:
    """Some servers say that they are done and never end the stream."""
    events = 6 if form == "anthropic" else 3  # up to stop_reason or finish_reason
    server.script = lambda _: ProviderAnswer("all of it", hang_after=events)
    async with opened(form, server) as model:
        assert (await model.generate(request())).text == "all of it"


async def test_only_so_many_calls_run_at_a_time(form: str, server: ProviderServer) -> None:
    gate = trio.Event()

    async def held(_: object) -> ProviderAnswer:
        await gate.wait()
        return ProviderAnswer("x")

    server.script = held
    async with opened(form, server, max_concurrent_calls=2) as model, trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(model.generate, request())
        await server.until(lambda it: it.count >= 2)
        await trio.testing.wait_all_tasks_blocked(0.02)
        assert server.count == 2
        gate.set()
    assert server.count == 5


async def test_calls_are_made_in_the_order_they_were_wanted(form: str, server: ProviderServer) -> None:
    async with opened(form, server, max_concurrent_calls=1) as model, trio.open_nursery() as nursery:
        for n in range(5):
            nursery.start_soon(model.generate, request(text=f"n{n}"))
            await trio.testing.wait_all_tasks_blocked()
    assert [seen.last.text for seen in server.requests] == ["n0", "n1", "n2", "n3", "n4"]


async def test_a_server_that_is_not_there_is_a_network_error(form: str, fast_clock: MockClock) -> None:
    async with open_provider(silent) as server:
        pass
    async with opened(form, server) as model:
        error = await error_of(lambda: model.generate(request()))
    assert error.kind == "network"
    assert "Connection refused" in str(error)
    assert f"base_url of [providers.{form}]" in str(error)


async def test_an_ollama_that_is_not_running_is_named(fast_clock: MockClock) -> None:
    async with open_provider(silent) as server:
        account = ProviderSettings(base_url=server.openai_url)
    service = ModelService(ModelSettings(default="ollama/qwen3:8b"), {"ollama": account}, rng=random.Random(1))
    error = await error_of(lambda: service.client().generate(request()))
    await service.aclose()
    assert "Ollama does not answer at 127.0.0.1:" in str(error)
    assert str(error).endswith("Is it running? (`ollama serve`)")


# ------------------------------------------------------------------ dialects


async def test_a_parameter_that_a_server_refuses_is_left_out_from_then_on(server: ProviderServer) -> None:
    refusal = {"error": {"message": "Unknown parameter: 'stream_options'.", "param": "stream_options"}}
    server.script = sequence(
        [
            ProviderAnswer(status=400, body=json.dumps(refusal).encode(), content_type="application/json"),
            ProviderAnswer("one"),
        ],
        lambda _: ProviderAnswer("two"),
    )
    async with opened("openai", server) as model:
        assert (await model.generate(request())).text == "one"
        assert (await model.generate(request())).text == "two"
    assert ["stream_options" in seen.raw for seen in server.requests] == [True, False, False]


async def test_a_timeout_during_the_sdks_own_retries_names_the_status_that_kept_coming(
    form: str, server: ProviderServer
) -> None:
    server.script = lambda _: refuse(500, "out of order")
    async with opened(form, server, timeout=1.0) as model:
        error = await error_of(lambda: model.generate(request()))
    assert error.kind == "timeout"
    assert "(500)" in str(error)
