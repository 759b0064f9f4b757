"""Slow models are waited for, silent ones are not, and text that has come is kept. In virtual time."""

from __future__ import annotations

import fcntl
import math
import os
import socket
import stat
import struct
import termios
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import count

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from pegasus.models import LanguageModel, ModelError, StreamPiece, TextPiece
from pegasus.settings import ModelOptionSettings
from pegasus.testing.provider import ProviderServer, late
from pegasus.testing.provider.answers import ProviderAnswer, cut, dump, hang, refuse, sequence
from pegasus.testing.provider.formats import events
from pegasus.testing.provider.requests import ProviderRequest
from tests.pegasus.models import conftest
from tests.pegasus.models.conftest import request

TEXT = "one two three four five six."
ESTABLISHED = 1
"""State of an open connection in Linux's struct tcp_info."""
QUIET = 0.005
"""Seconds of real time for which every task must wait until the clock may jump."""
COMMENT = b": still in the queue\n\n"


@pytest.fixture
def virtual_clock() -> MockClock:
    """Stand still until `opened` says that nothing happens in threads any more."""
    return MockClock()


@asynccontextmanager
async def opened(
    form: str, server: ProviderServer, clock: MockClock, **settings: object
) -> AsyncIterator[LanguageModel]:
    """A model that has made its first two calls, which are the only ones that use threads.

    The first one imports the SDK. A server of one's own network is asked for its window before the first call, and once more before
    the second one, when it has loaded its model; both times the HTTP client is imported in a thread. From then on the clock jumps to
    the next deadline as soon as nothing happens: it would take a slow thread for nothing and jump over the time limit of the question.
    """
    script, server.script = server.script, lambda _: ProviderAnswer("ready")
    async with conftest.opened(form, server, **settings) as model:
        for _ in range(2):
            await model.generate(request())
        server.script, server.count = script, 0
        trio.lowlevel.spawn_system_task(jump_when_quiet, clock)  # to the end of the test
        yield model


async def jump_when_quiet(clock: MockClock) -> None:
    """Jump to the next deadline when every task waits and all bytes that were sent have arrived, however busy the machine is."""
    while True:
        await wait_all_tasks_blocked(QUIET)
        if not bytes_on_their_way():
            await wait_all_tasks_blocked()  # whoever they have woken
            left = trio.lowlevel.current_statistics().seconds_to_next_deadline
            if left < math.inf:
                clock.jump(max(left, 0) + 1e-6)  # not short of it by rounding


def bytes_on_their_way() -> bool:
    """Whether an open TCP connection of this process holds something that the other end has not acknowledged.

    That is what was sent, and what waits while the window of the other end is full: the kernel may take 0.2 s to look again.
    """
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # closed meanwhile, or no TCP socket
            if not stat.S_ISSOCK(os.stat(int(name)).st_mode):
                continue
            with socket.socket(fileno=os.dup(int(name))) as one:
                [state] = struct.unpack("B", one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1))
                [unacknowledged] = struct.unpack("i", fcntl.ioctl(one, termios.TIOCOUTQ, bytes(4)))
            if state == ESTABLISHED and unacknowledged:
                return True
    return False


def stream_of(form: str, answer: ProviderAnswer, *pauses: tuple[int, bytes | float]) -> ProviderAnswer:
    """The answer as a stream, with pauses or other parts before the events with these numbers."""
    numbers = count()
    parts: list[bytes | float] = []
    for place, event in enumerate(events(answer, form, lambda: f"new{next(numbers)}")):
        parts += [part for before, part in pauses if before == place]
        parts.append(event)
    return ProviderAnswer(stream=tuple(parts))


def first_text(form: str) -> int:
    """Number of the first event with text."""
    return 2 if form == "anthropic" else 1


async def failure(model: LanguageModel, **fields: object) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await model.generate(request(**fields))
    return caught.value


# ------------------------------------------------------------------ what is no failure


async def test_a_slow_answer_may_take_longer_than_the_limit(
    form: str, server: ProviderServer, virtual_clock: MockClock
) -> None:
    answer = ProviderAnswer(TEXT, pieces=6)
    pauses = [(number, 50.0) for number in range(first_text(form), first_text(form) + 6)]
    server.script = lambda _: stream_of(form, answer, *pauses)
    async with opened(form, server, virtual_clock, timeout=100.0) as model:
        assert (await model.generate(request())).text == TEXT
    assert trio.current_time() >= 300
    assert server.count == 1


async def test_a_server_of_ones_own_may_load_its_model_for_two_minutes(
    form: str, server: ProviderServer, virtual_clock: MockClock
) -> None:
    server.script = late(lambda _: ProviderAnswer(TEXT), 125.0)
    async with opened(
        form, server, virtual_clock, timeout=120.0
    ) as model:  # the default, which is 600 for a local server
        assert (await model.generate(request())).text == TEXT


async def test_a_server_that_says_that_it_is_loading_is_asked_until_it_is_done(
    form: str, server: ProviderServer, virtual_clock: MockClock
) -> None:
    def script(_: ProviderRequest) -> ProviderAnswer:
        return ProviderAnswer(TEXT) if trio.current_time() > 125 else refuse(503, "Loading model")

    server.script = script
    async with opened(form, server, virtual_clock, timeout=120.0) as model:
        assert (await model.generate(request())).text == TEXT


async def test_a_model_that_is_never_loaded_is_an_error_in_time(
    form: str, server: ProviderServer, virtual_clock: MockClock
) -> None:
    server.script = lambda _: refuse(503, "Loading model")
    async with opened(form, server, virtual_clock, timeout=100.0) as model:
        error = await failure(model)
    assert "no answer within 100 s (models.timeout); before that: the server is still loading the model" in str(error)


async def test_reasoning_is_an_answer_that_has_begun(server: ProviderServer, virtual_clock: MockClock) -> None:
    thought = b"data: %s\n\n" % dump({"choices": [{"delta": {"reasoning_content": "Hm."}}]})
    answer = stream_of("openai", ProviderAnswer(TEXT), (0, thought), (0, 50.0), (0, thought), (0, 50.0))
    server.script = lambda _: answer
    async with opened("openai", server, virtual_clock, timeout=10.0) as model:
        assert (await model.generate(request())).text == TEXT


async def test_an_answer_that_is_complete_is_taken_though_the_stream_stays_open(
    form: str, server: ProviderServer, virtual_clock: MockClock
) -> None:
    end = 6 if form == "anthropic" else 3
    server.script = lambda _: ProviderAnswer(TEXT, hang_after=end)
    async with opened(form, server, virtual_clock, silence_timeout=1.0) as model:
        assert (await model.generate(request())).text == TEXT


# ------------------------------------------------------------------ too late


async def test_no_token_in_time_names_the_setting(form: str, server: ProviderServer, virtual_clock: MockClock) -> None:
    server.script = lambda _: hang(1)
    async with opened(form, server, virtual_clock, timeout=100.0) as model:
        error = await failure(model)
    assert (error.kind, error.partial) == ("timeout", "")
    assert str(error) == f"{form}/test-model: no answer within 100 s (models.timeout)"
    assert trio.current_time() == pytest.approx(100, abs=1)
    await server.until(lambda it: it.hung_up == 1)


async def test_comments_of_a_queue_are_no_tokens(form: str, server: ProviderServer, virtual_clock: MockClock) -> None:
    waiting = [(0, part) for _ in range(30) for part in (COMMENT, 10.0)]
    server.script = lambda _: stream_of(form, ProviderAnswer(TEXT), *waiting)
    async with opened(form, server, virtual_clock, timeout=100.0) as model:
        error = await failure(model)
    assert "models.timeout" in str(error)
    assert server.count == 1


async def test_silence_after_text_keeps_the_text_and_is_not_tried_again(
    form: str, server: ProviderServer, virtual_clock: MockClock
) -> None:
    place = first_text(form) + 2
    silence = [(place, part) for _ in range(30) for part in (COMMENT, 10.0)]
    server.script = lambda _: stream_of(form, ProviderAnswer(TEXT, pieces=4), *silence)
    heard: list[StreamPiece | None] = []
    last_text = 0.0

    def hear(pieces: Sequence[StreamPiece | None]) -> None:
        nonlocal last_text
        heard.extend(pieces)
        if None not in pieces:
            last_text = trio.current_time()

    async with opened(form, server, virtual_clock) as model:
        error = await failure(model, on_pieces=hear)
    assert error.kind == "timeout"
    assert "nothing more came for 60 s (models.silence_timeout)" in str(error)
    assert error.partial == TEXT[:14]
    assert heard == [TextPiece(TEXT[:7]), TextPiece(TEXT[7:14]), None]
    assert trio.current_time() - last_text == pytest.approx(60, abs=1)
    assert server.count == 1
    await server.until(lambda it: it.hung_up == 1)


async def test_the_limits_of_a_model_are_its_own(form: str, server: ProviderServer, virtual_clock: MockClock) -> None:
    server.script = lambda _: hang(1 if server.count == 1 else first_text(form) + 1)
    options = {f"{form}/test-model": ModelOptionSettings(timeout=7.0, silence_timeout=3.0)}
    async with opened(form, server, virtual_clock, options=options) as model:
        assert "within 7 s" in str(await failure(model))
        assert "for 3 s" in str(await failure(model))


# ------------------------------------------------------------------ broken streams


async def test_the_longest_text_of_all_attempts_is_kept(
    form: str, server: ProviderServer, virtual_clock: MockClock
) -> None:
    first = first_text(form)
    answer = ProviderAnswer(TEXT, pieces=4)
    server.script = sequence([cut(answer, first + 1), cut(answer, first + 3), *[cut(answer, first + 2)] * 3])
    async with opened(form, server, virtual_clock) as model:
        error = await failure(model)
    assert (error.kind, error.partial, server.count) == ("network", TEXT[:21], 5)


async def test_a_stream_that_breaks_after_the_time_limit_is_not_tried_again(
    form: str, server: ProviderServer, virtual_clock: MockClock
) -> None:
    place = first_text(form)
    slow = stream_of(form, ProviderAnswer(TEXT, pieces=4), *[(place + n, 50.0) for n in range(4)])
    broken = ProviderAnswer(stream=slow.stream[: 2 * 3 + place])
    server.script = lambda _: broken
    async with opened(form, server, virtual_clock, timeout=100.0) as model:
        error = await failure(model)
    assert (error.kind, error.partial, server.count) == ("network", TEXT[:21], 1)


async def test_an_attempt_after_a_broken_one_has_the_time_that_is_left(
    form: str, server: ProviderServer, virtual_clock: MockClock
) -> None:
    answer = ProviderAnswer(TEXT, pieces=4)
    server.script = sequence([cut(answer, first_text(form) + 2), hang(1)])
    async with opened(form, server, virtual_clock, timeout=100.0) as model:
        error = await failure(model)
    assert "no answer within 100 s (models.timeout); before that: the" in str(error)
    assert (error.partial, server.count) == (TEXT[:14], 2)
    assert trio.current_time() == pytest.approx(100, abs=1)


async def test_used_up_quota_is_not_tried_again(server: ProviderServer, virtual_clock: MockClock) -> None:
    body = dump({"error": {"message": "You exceeded your current quota", "type": "insufficient_quota", "code": None}})
    server.script = lambda _: ProviderAnswer(status=429, body=body, content_type="application/json")
    async with opened("openai", server, virtual_clock) as model:
        error = await failure(model)
    assert (error.kind, server.count) == ("overloaded", 1)
    assert "your account's quota is used up (429): You exceeded your current quota" in str(error)


# ------------------------------------------------------------------ too much


async def test_ten_thousand_tokens_of_noise_are_an_answer(
    form: str, server: ProviderServer, virtual_clock: MockClock
) -> None:
    noise = "".join(chr(33 + 7 * n % 90) for n in range(40_000))
    server.script = lambda _: ProviderAnswer(noise, pieces=10_000)
    heard: list[StreamPiece | None] = []
    async with opened(form, server, virtual_clock) as model:
        response = await model.generate(request(max_tokens=10_000, on_pieces=heard.extend))
    assert response.text == noise
    assert "".join(piece.text for piece in heard if isinstance(piece, TextPiece)) == noise
    assert len(heard) > 1000


async def test_a_line_without_end_is_cut_off_at_the_token_limit(
    form: str, server: ProviderServer, virtual_clock: MockClock
) -> None:
    """By the server: the request says how long the answer may be."""

    def script(asked: ProviderRequest) -> ProviderAnswer:
        limit = int(asked.raw.get("max_tokens") or asked.raw["max_completion_tokens"])
        return ProviderAnswer(
            "again\n" * limit, pieces=limit, stop_reason="max_tokens" if form == "anthropic" else "length"
        )

    server.script = script
    async with opened(form, server, virtual_clock) as model:
        response = await model.generate(request(max_tokens=500))
    assert (response.stop_reason, response.text) == ("length", "again\n" * 500)


async def test_a_server_that_ignores_the_token_limit_is_cut_off(
    form: str, server: ProviderServer, virtual_clock: MockClock
) -> None:
    head = events(ProviderAnswer("again\n"), form, lambda: "new")[: first_text(form) + 1]
    server.script = lambda _: ProviderAnswer(stream=(*head, *[head[-1] * 1000] * 100))
    async with opened(form, server, virtual_clock) as model:
        error = await failure(model, max_tokens=500)
    assert (error.kind, server.count) == ("protocol", 1)
    assert "does not end" in str(error)
    assert error.partial.startswith("again\nagain\n")


# ------------------------------------------------------------------ listeners


async def test_cancelling_in_the_middle_retracts_and_hangs_up(
    form: str, server: ProviderServer, virtual_clock: MockClock
) -> None:
    server.script = lambda _: hang(first_text(form) + 1)
    heard: list[StreamPiece | None] = []
    async with opened(form, server, virtual_clock) as model:
        with trio.move_on_after(30):
            await model.generate(request(on_pieces=heard.extend))
    assert heard == [TextPiece("never ending"), None]
    await server.until(lambda it: it.hung_up == 1)


async def test_a_listener_that_raises_does_not_move_the_limits(
    form: str, server: ProviderServer, virtual_clock: MockClock
) -> None:
    def fail(pieces: Sequence[StreamPiece | None]) -> None:
        raise RuntimeError("no ears")

    place = first_text(form) + 1
    server.script = lambda _: stream_of(form, ProviderAnswer(TEXT, pieces=4), (place, 50.0), (place, 50.0))
    async with opened(form, server, virtual_clock) as model:
        error = await failure(model, on_pieces=fail)
    assert error.partial == TEXT[:7]
