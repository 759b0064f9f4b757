"""A model behind HTTP: one call with its time limit and its retries, whatever the wire format.

Who retries what: the SDK repeats a request that got no connection or an error status worth repeating (Retry-After
honoured); this file repeats the whole call when the answer broke off after it had begun. Both draw on one budget of
attempts, which the `x-stainless-retry-count` of the request that was sent makes known, and stand under one deadline.
"""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

import trio

from pegasus.models.base import ModelError, ModelRequest, ModelResponse
from pegasus.models.errors import (
    cut_error,
    event_status,
    network_error,
    one_line,
    protocol_error,
    status_error,
    timeout_error,
)
from pegasus.models.sdk import REFUSALS, Sdk, SdkHandle
from pegasus.models.sse import EventDecoder
from pegasus.models.stops import came_to_nothing
from pegasus.models.telling import Tell, Teller, nobody
from pegasus.observe import get_logger

if TYPE_CHECKING:
    from pegasus.models.tokens import Counter, Exact

_log = get_logger("models")

MAX_RETRIES: Final = 4
"""Attempts after the first, by the SDK and by us together."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 8.0  # seconds, as in both SDKs
_DRAIN = 3.0  # seconds a complete answer may take to close; then its connection is given up
_MOST_BYTES: Final = 16 * 1024 * 1024
_MALFORMED = (KeyError, IndexError, TypeError, AttributeError, ValueError, RecursionError)


class Assembler(Protocol):
    """Puts one answer together. Malformed input may raise KeyError, IndexError, TypeError, AttributeError, ValueError."""

    def feed(self, event: Any) -> object:
        """Take the data of one event. Returns an error object if that is what it is, else None."""

    def whole(self, body: Any) -> object:
        """Take an answer that came in one piece, from a server that does not stream; returns as feed does."""

    def end(self) -> None:
        """`[DONE]` was said."""

    @property
    def complete(self) -> bool:
        """Whether the answer has its end. Little (the usage) may still follow."""

    def response(self) -> ModelResponse:
        """The answer. Only when complete."""


class Wire(Protocol):
    """One provider's wire format, for one model. It may learn from refusals (see adapt)."""

    path: str

    def body(self, request: ModelRequest) -> bytes:
        """The request as JSON."""

    def assembler(self, request: ModelRequest, body: bytes, tell: Tell) -> Assembler:
        """For the answer to this request. tell: told its text as it comes."""

    def exact(self, sdk: Sdk) -> Exact | None:
        """How to count the tokens of a request exactly, if there is a way."""

    def adapt(self, status: int, body: object, request: ModelRequest) -> bool:
        """Whether this refusal taught it to ask otherwise, so that the call is worth another try at once."""


class _Broken(Exception):
    """An answer that failed after it began. retry: whether the same call may go better."""

    def __init__(self, error: ModelError, *, retry: bool) -> None:
        super().__init__(str(error))
        self.error = error
        self.retry = retry


class RemoteModel:
    """A LanguageModel. permits: shared by all models of the process, one is held for each call, first come first served.

    timeout: seconds for one call, retries included, not counting the wait for a permit or for the SDK's import.
    twin: the same model in another lane, whose counter is this one's too.
    """

    def __init__(
        self,
        name: str,
        wire: Wire,
        sdk: Sdk,
        *,
        permits: trio.Semaphore,
        timeout: float,
        rng: random.Random,
        twin: RemoteModel | None = None,
    ) -> None:
        self._name = name
        self._wire = wire
        self._sdk = sdk
        self._permits = permits
        self._timeout = timeout
        self._rng = rng
        self._twin = twin
        self._counter: Counter | None = None

    @property
    def counter(self) -> Counter:
        """Counts tokens as this model's provider does, and learns from what it reports."""
        if self._counter is None:
            self._counter = self._twin.counter if self._twin is not None else self._new_counter()
        return self._counter

    def _new_counter(self) -> Counter:
        from pegasus.models.tokens import Counter, Gauge  # patterns to compile, not before the first call

        return Counter(Gauge(), self._wire.exact(self._sdk))

    @property
    def name(self) -> str:
        """`<provider>/<model>` as in the settings."""
        return self._name

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Ask once, retries included. Raises ModelError. Cancelling ends the call and closes its connection."""
        await self._permit()
        try:
            call = _Call(self._name, self._wire, await self._sdk.get(), self._rng)
            with trio.move_on_after(self._timeout):
                response = await call.run(request)
                self.counter.learn(request, response.usage)
                return response
            raise timeout_error(self._name, self._timeout, call.last_failure())
        finally:
            self._permits.release()

    async def _permit(self) -> None:
        """Wait for one, without a turn of the event loop if there is one; none is free while somebody waits."""
        try:
            self._permits.acquire_nowait()
        except trio.WouldBlock:
            await self._permits.acquire()


class _Call:
    """One call and its attempts. failed: what the last broken attempt failed with."""

    def __init__(self, model: str, wire: Wire, sdk: SdkHandle, rng: random.Random) -> None:
        self._model = model
        self._wire = wire
        self._sdk = sdk
        self._rng = rng
        self._left = MAX_RETRIES
        self.failed: ModelError | None = None
        self._refusals: list[int] = []

    def last_failure(self) -> ModelError | None:
        """What the last attempt that ended failed with, also if it was the SDK's own."""
        if self.failed is None and self._refusals:
            return status_error(self._model, self._refusals[-1], None, self._sdk.secrets)
        return self.failed

    async def run(self, request: ModelRequest) -> ModelResponse:
        REFUSALS.set(self._refusals)
        for attempt in range(MAX_RETRIES + 1):
            try:
                return await self._attempt(request)
            except _Broken as broken:
                self.failed = broken.error
                if not broken.retry or self._left <= 0:
                    raise broken.error from broken.__cause__
                self._left -= 1
                _log.warning("model asked again", model=self._model, why=str(broken.error))
            await trio.sleep(self._pause(attempt))
        raise AssertionError("the budget of attempts ends the loop")

    def _pause(self, attempt: int) -> float:
        """Exponential backoff, up to a quarter of it taken off at random."""
        pause: float = min(_FIRST_PAUSE * 2.0**attempt, _LONGEST_PAUSE)
        return pause * (1 - 0.25 * self._rng.random())

    async def _attempt(self, request: ModelRequest) -> ModelResponse:
        body = self._wire.body(request)
        response = await self._post(request, body)
        teller = Teller(request.on_text) if request.on_text is not None else None
        try:
            answer = await self._read(response, self._wire.assembler(request, body, teller.piece if teller else nobody))
        except BaseException:
            if teller is not None:
                teller.void()
            raise
        finally:
            if not response.is_closed:  # it is, when all of it was read
                with trio.CancelScope(shield=True, deadline=trio.current_time() + _DRAIN):
                    await response.aclose()
        if teller is not None:
            teller.end()
        return answer

    async def _post(self, request: ModelRequest, body: bytes) -> Any:
        """The httpx response, its body not read yet."""
        sdk = self._sdk
        for _ in range(MAX_RETRIES + 1):
            try:
                response = await sdk.post(self._wire.path, body, max_retries=self._left)
            except sdk.status_errors as error:
                self._spend(error.response)
                if self._wire.adapt(error.status_code, error.body, request):
                    body = self._wire.body(request)
                    continue
                raise status_error(self._model, error.status_code, _body_of(error), sdk.secrets) from error
            except sdk.connection_errors as error:
                raise network_error(self._model, error, sdk.secrets) from error
            self._spend(response)
            return response
        raise AssertionError("a wire format adapts only so often")

    def _spend(self, response: Any) -> None:
        """Count the attempts that the SDK has made."""
        count = response.request.headers.get("x-stainless-retry-count", "0")
        self._left -= int(count) if count.isdigit() else 0

    # ------------------------------------------------------------ the answer

    async def _read(self, response: Any, assembler: Assembler) -> ModelResponse:
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == "text/html":
            page = one_line((await self._all(response)).decode("utf-8", "replace"), self._sdk.secrets)
            raise protocol_error(self._model, f"a web page instead of a model ({page}); check base_url")
        if kind == "application/json":
            await self._read_whole(response, assembler)
        else:
            await self._read_events(response, assembler)
        if not assembler.complete:
            raise _Broken(cut_error(self._model), retry=True)
        with self._sense():
            answer = assembler.response()
        if came_to_nothing(answer):
            raise _Broken(protocol_error(self._model, "the provider gave up on it, and nothing came"), retry=True)
        return answer

    async def _read_events(self, response: Any, assembler: Assembler) -> None:
        """Feed every event. The body is always read to its end, or cancelled: a generator left half-way would linger."""
        decoder = EventDecoder()
        size = 0
        problem: _Broken | None = None
        with trio.CancelScope() as scope:
            try:
                async for chunk in _chunks(response):
                    size += len(chunk)
                    if problem is None:
                        problem = self._take(decoder.feed(chunk), assembler)
                    if size > _MOST_BYTES:
                        problem = _Broken(protocol_error(self._model, "it does not end"), retry=False)
                        scope.cancel()
                    elif (problem or assembler.complete) and scope.deadline == float("inf"):
                        scope.deadline = trio.current_time() + _DRAIN
            except self._sdk.read_errors as error:
                if problem is None and not assembler.complete:
                    problem = _Broken(network_error(self._model, error, self._sdk.secrets), retry=True)
        if problem is None and not assembler.complete:
            problem = self._end(decoder, assembler)
        if problem is not None:
            raise problem

    def _end(self, decoder: EventDecoder, assembler: Assembler) -> _Broken | None:
        """The stream ended. Its last event may lack its empty line; what is no event at all is no model's answer."""
        rest = decoder.rest
        problem = self._take(decoder.feed(b"\n\n"), assembler)
        if problem is not None and problem.error.kind != "protocol":
            return problem
        if rest.strip() and not rest.startswith((b"data:", b"event:", b"id:", b":")):
            text = rest[:400].decode("utf-8", "replace")
            return _Broken(protocol_error(self._model, text, self._sdk.secrets), retry=False)
        return None

    def _take(self, events: list[tuple[bytes, bytes]], assembler: Assembler) -> _Broken | None:
        for _, data in events:
            if data == b"[DONE]":
                assembler.end()
                continue
            try:
                error = assembler.feed(json.loads(data))
            except _MALFORMED:
                text = data[:200].decode("utf-8", "replace")
                return _Broken(protocol_error(self._model, text, self._sdk.secrets), retry=True)
            if error is not None:
                return self._refusal(error)
        return None

    async def _read_whole(self, response: Any, assembler: Assembler) -> None:
        data = await self._all(response)
        if not data.strip():
            raise _Broken(cut_error(self._model), retry=True)
        with self._sense(data):
            error = assembler.whole(json.loads(data))
        if error is not None:
            raise self._refusal(error)

    async def _all(self, response: Any) -> bytes:
        body = bytearray()
        with trio.CancelScope() as scope:
            try:
                async for chunk in _chunks(response):
                    body += chunk
                    if len(body) > _MOST_BYTES:
                        scope.cancel()
            except self._sdk.read_errors as error:
                raise _Broken(network_error(self._model, error, self._sdk.secrets), retry=True) from error
        return bytes(body)

    def _refusal(self, error: object) -> _Broken:
        """An error object inside an answer that began as a success."""
        status = event_status(error)
        failure = status_error(self._model, status, error, self._sdk.secrets)
        retry = failure.kind != "overflow" and (status >= 500 or status in (408, 409, 429))
        return _Broken(failure, retry=retry)

    @contextmanager
    def _sense(self, data: bytes = b"") -> Iterator[None]:
        """Turn what a malformed answer raises into a ModelError."""
        try:
            yield
        except _MALFORMED as error:
            text = data[:400].decode("utf-8", "replace") or f"{type(error).__name__} {error}"
            raise protocol_error(self._model, text, self._sdk.secrets) from error


def _chunks(response: Any) -> AsyncIterator[bytes]:
    """The body as it comes; without the layer that decodes it where nothing is encoded."""
    chunks: AsyncIterator[bytes] = (
        response.aiter_bytes() if "content-encoding" in response.headers else response.aiter_raw()
    )
    return chunks


def _body_of(error: Any) -> object:
    """What a refusal said. Where it was not JSON, the SDKs keep the text only in the message."""
    return error.body if error.body is not None else str(getattr(error, "message", ""))
