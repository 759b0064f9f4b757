"""A model behind HTTP: one call with its time limit and its retries, for every wire format.

One call makes up to five attempts. An attempt fails in one of three ways:

* Refused: the server answered with an error status. The wire format may learn from it (`adapt`), and then the same attempt goes on
  with another body. Otherwise statuses that may pass (408, 409, 429, 5xx) are retried; the rest is an error at once.
* Unreachable or broken off: no connection, or the answer ended in the middle. Retried.
* Senseless: an HTML page or something else that is not an answer is an error at once; an answer with a damaged event is retried.

Between attempts there is a pause with exponential backoff, or as long as the server asks for (`Retry-After`). If the server asks for a
longer pause than the call has time left, the call fails at once, so that a fallback model can answer. Everything, pauses included,
happens under one deadline of `models.timeout` seconds.

Text is streamed to `request.on_text` while it arrives. When an attempt fails after it has streamed text, None is sent before the next
one begins.

The SDK does not retry here, although it could. Only this file knows the deadline, can repeat an answer that broke off after its status
line said 200, and counts both kinds of failures together.

Five attempts with pauses of 0.5, 1, 2 and 4 seconds are enough for a short failure or a short limit of the rate. During longer
failures the fallback models answer, which are asked when this call has failed.

A connection is used again only if its response was read to the end. That is why a stream is read on after the answer is complete,
for a few seconds, and why a response that was left early is closed in a shielded scope: closing must also work while the
call is being cancelled.
"""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from typing import Any, Final

import trio

from pegasus.models.base import ModelError, ModelRequest, ModelResponse
from pegasus.models.errors import (
    cut_error,
    event_status,
    is_temporary,
    network_error,
    one_line,
    protocol_error,
    status_error,
    timeout_error,
    unreachable_error,
)
from pegasus.models.sdk import ProviderConnection, SdkClient
from pegasus.models.sse import EventDecoder
from pegasus.models.stop_reasons import is_failure
from pegasus.models.wire_format import AnswerAssembler, WireFormat, ignore_text
from pegasus.observe import get_logger

_log = get_logger("models")

ATTEMPTS: Final = 5
"""Attempts of one call. Requests that are repeated because the wire format has learned something are not counted."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 8.0
"""Seconds before the second attempt, doubled for each further one up to the longest."""
_DRAIN: Final = 3.0
"""Seconds that a complete answer may take to end its stream. Then the connection is given up."""
_LARGEST_ANSWER: Final = 16 * 1024 * 1024
"""Bytes. A longer answer is cut off: it would only fill the memory."""
_MALFORMED: Final = (KeyError, IndexError, TypeError, AttributeError, ValueError, RecursionError)
"""Exceptions that an `AnswerAssembler` or the JSON parser raises for malformed data."""


class _AttemptFailed(Exception):
    """Failure of one attempt."""

    def __init__(self, error: ModelError, *, can_retry: bool, pause: float | None = None) -> None:
        super().__init__(str(error))
        self.error = error
        """The error of the whole call, if this was its last attempt."""
        self.can_retry = can_retry
        """True if the same request may succeed."""
        self.pause = pause
        """Seconds that the server asks to wait before the next attempt; None if it does not say."""


class HttpModel:
    """`LanguageModel` of a provider that is reached over HTTP.

    It keeps nothing between calls except what its wire format has learned, and calls may overlap. The layers, from the outside in:

        generate   the deadline of the call
        _retry     attempts and the pauses between them
        _attempt   one request and its response, which is always closed
        _post      the request, repeated at once while the wire format learns from refusals
        _read      the response: a stream of events, or one JSON object

    provider_type: as in the settings, for error messages. timeout: seconds for one call with all retries; the first import of the
    SDK does not count. rng: randomness of the pauses.

    Example:
        sdk = anthropic_client(api_key, "")
        wire = AnthropicWire("claude-sonnet-5-5")
        model = HttpModel("anthropic/claude-sonnet-5-5", "anthropic", wire, sdk, timeout=120, rng=Random())
        response = await model.generate(request)
    """

    def __init__(
        self, name: str, provider_type: str, wire: WireFormat, sdk: SdkClient, *, timeout: float, rng: random.Random
    ) -> None:
        self._name = name
        self._provider_type = provider_type
        self._wire = wire
        self._sdk = sdk
        self._timeout = timeout
        self._rng = rng

    @property
    def name(self) -> str:
        """`<provider>/<model>` as in the settings."""
        return self._name

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Return the model's answer.

        Raises ModelError: of kind "timeout" when the deadline passes, otherwise the error of the last attempt. Cancelled: the
        connection is closed, also if the provider is still sending.
        """
        client = await self._sdk.get()  # before the deadline begins: an import is not the provider's fault
        failures: list[ModelError] = []
        with trio.move_on_after(self._timeout):
            return await self._retry(client, request, failures)
        raise timeout_error(self._name, self._timeout, failures[-1] if failures else None)

    async def _retry(
        self, client: ProviderConnection, request: ModelRequest, failures: list[ModelError]
    ) -> ModelResponse:
        """Make attempts until one succeeds. Raises the ModelError of the last one.

        failures: receives the errors of the attempts that failed. It belongs to the caller, because it is needed when the deadline
        cancels this method: the timeout error names what went wrong before.
        """
        for attempt in range(ATTEMPTS):
            try:
                return await self._attempt(client, request)
            except _AttemptFailed as failure:
                failures.append(failure.error)
                time_left = trio.current_effective_deadline() - trio.current_time()
                is_pause_too_long = failure.pause is not None and failure.pause >= time_left
                if not failure.can_retry or attempt == ATTEMPTS - 1 or is_pause_too_long:
                    raise failure.error from failure.__cause__
                pause = self._backoff(attempt) if failure.pause is None else failure.pause
                _log.warning(
                    "model call is retried", model=self._name, reason=str(failure.error), pause=round(pause, 2)
                )
            await trio.sleep(pause)
        raise AssertionError("the last attempt returns or raises")

    def _backoff(self, attempt: int) -> float:
        """Return the seconds before the next attempt.

        attempt: number of the one that failed, from 0. Up to a quarter is taken off at random, so that many clients which failed at
        the same time do not all try again at the same time.
        """
        pause: float = min(_FIRST_PAUSE * 2.0**attempt, _LONGEST_PAUSE)
        return pause * (1 - 0.25 * self._rng.random())

    async def _attempt(self, client: ProviderConnection, request: ModelRequest) -> ModelResponse:
        """Send the request once and return the answer. Raises _AttemptFailed.

        On every exit the response is closed: left open, it would hold its connection until the garbage collector comes.
        """
        on_text = request.on_text or ignore_text
        response = await self._post(client, request)
        try:
            return await self._read(client, response, self._wire.assembler(request, on_text))
        except _AttemptFailed:
            if request.on_text is not None:
                request.on_text(None)
            raise
        finally:
            if not response.is_closed:
                with trio.CancelScope(shield=True, deadline=trio.current_time() + _DRAIN):
                    await response.aclose()

    async def _post(self, client: ProviderConnection, request: ModelRequest) -> Any:
        """Send the request; return the httpx response, its body unread. Raises _AttemptFailed.

        While the wire format learns from refusals, the request is repeated at once and without counting: each lesson can be learned
        only once, so this ends.
        """
        while True:
            try:
                return await client.post(self._wire.path, self._wire.body(request))
            except client.status_errors as error:
                body = error.body if error.body is not None else str(getattr(error, "message", ""))
                if self._wire.adapt(error.status_code, body, request):
                    continue
                raise self._refusal(client, error, body) from error
            except client.connection_errors as error:
                failure = self._connection_error(client, error)
                raise _AttemptFailed(failure, can_retry=True) from error

    def _refusal(self, client: ProviderConnection, error: Any, body: object) -> _AttemptFailed:
        """Return the failure for an error status. `x-should-retry` is the header by which a server overrides the rule."""
        failure = status_error(self._name, error.status_code, body, client.secrets)
        headers = error.response.headers
        can_retry = {"true": True, "false": False}.get(headers.get("x-should-retry", ""), is_temporary(failure))
        return _AttemptFailed(failure, can_retry=can_retry, pause=_requested_pause(headers))

    def _connection_error(self, client: ProviderConnection, error: BaseException) -> ModelError:
        """Return the error for a request without a response: the server is not there, or the connection broke.

        The SDK wraps the exception of httpx, which wraps that of Trio. The whole chain is searched, because only a connection that
        was never made gets the advice to check the address.
        """
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, client.unreachable_errors):
                return unreachable_error(self._name, self._provider_type, client.base_url, cause)
            cause = cause.__cause__ or cause.__context__
        return network_error(self._name, error, client.secrets)

    # ------------------------------------------------------------ reading the answer

    async def _read(self, client: ProviderConnection, response: Any, assembler: AnswerAssembler) -> ModelResponse:
        """Return the answer in a response, by its content type. Raises _AttemptFailed.

        Servers that do not stream answer with `application/json`; everything else is read as events, whatever it calls itself.
        """
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == "text/html":
            page = one_line((await self._read_body(client, response)).decode("utf-8", "replace"), client.secrets)
            error = protocol_error(self._name, f"a web page instead of a model ({page}); check base_url")
            raise _AttemptFailed(error, can_retry=False)
        if kind == "application/json":
            await self._read_whole(client, response, assembler)
        else:
            await self._read_events(client, response, assembler)
        if not assembler.complete:
            raise _AttemptFailed(cut_error(self._name), can_retry=True)
        with self._parsing(client):
            answer = assembler.response()
        if is_failure(answer):
            error = protocol_error(self._name, "the provider gave up on it, and nothing came")
            raise _AttemptFailed(error, can_retry=True)
        return answer

    async def _read_events(self, client: ProviderConnection, response: Any, assembler: AnswerAssembler) -> None:
        """Feed every event of a stream to the assembler.

        The stream is read to its end even after a failure or a complete answer, for at most `_DRAIN` seconds more: only then can the
        connection be used again. Some servers send their usage after the end of the answer, others never end the stream. An error that
        occurs after the answer was complete is ignored, since nothing is missing.
        """
        decoder = EventDecoder()
        size = 0
        failure: _AttemptFailed | None = None
        with trio.CancelScope() as scope:
            try:
                async for chunk in _chunks(response):
                    size += len(chunk)
                    if failure is None:
                        failure = self._feed(client, decoder.feed(chunk), assembler)
                    if size > _LARGEST_ANSWER:
                        failure = _AttemptFailed(protocol_error(self._name, "it does not end"), can_retry=False)
                        scope.cancel()
                    elif (failure or assembler.complete) and scope.deadline == float("inf"):
                        scope.deadline = trio.current_time() + _DRAIN
            except client.read_errors as error:
                if failure is None and not assembler.complete:
                    failure = _AttemptFailed(network_error(self._name, error, client.secrets), can_retry=True)
        if failure is None and not assembler.complete:
            failure = self._feed_rest(client, decoder, assembler)
        if failure is not None:
            raise failure

    def _feed_rest(
        self, client: ProviderConnection, decoder: EventDecoder, assembler: AnswerAssembler
    ) -> _AttemptFailed | None:
        """Feed what follows the last complete event: the last event may lack its empty line. Other text is no answer at all."""
        rest = decoder.rest
        failure = self._feed(client, decoder.feed(b"\n\n"), assembler)
        if failure is not None and failure.error.kind != "protocol":
            return failure
        if rest.strip() and not rest.startswith((b"data:", b"event:", b"id:", b":")):
            text = rest[:400].decode("utf-8", "replace")
            return _AttemptFailed(protocol_error(self._name, text, client.secrets), can_retry=False)
        return None

    def _feed(
        self, client: ProviderConnection, events: list[tuple[bytes, bytes]], assembler: AnswerAssembler
    ) -> _AttemptFailed | None:
        """Feed events to the assembler. Return the failure that ends the answer, None while there is none."""
        for _, data in events:
            if data == b"[DONE]":
                assembler.finish()
                continue
            try:
                error = assembler.feed(json.loads(data))
            except _MALFORMED:
                text = data[:200].decode("utf-8", "replace")
                return _AttemptFailed(protocol_error(self._name, text, client.secrets), can_retry=True)
            if error is not None:
                return self._error_event(client, error)
        return None

    async def _read_whole(self, client: ProviderConnection, response: Any, assembler: AnswerAssembler) -> None:
        """Read an answer that is one JSON object: some servers do not stream."""
        data = await self._read_body(client, response)
        if not data.strip():
            raise _AttemptFailed(cut_error(self._name), can_retry=True)
        with self._parsing(client, data):
            error = assembler.feed_whole(json.loads(data))
        if error is not None:
            raise self._error_event(client, error)

    async def _read_body(self, client: ProviderConnection, response: Any) -> bytes:
        """Return the whole body, cut off at `_LARGEST_ANSWER`."""
        body = bytearray()
        with trio.CancelScope() as scope:
            try:
                async for chunk in _chunks(response):
                    body += chunk
                    if len(body) > _LARGEST_ANSWER:
                        scope.cancel()
            except client.read_errors as error:
                raise _AttemptFailed(network_error(self._name, error, client.secrets), can_retry=True) from error
        return bytes(body)

    def _error_event(self, client: ProviderConnection, error: object) -> _AttemptFailed:
        """Return the failure for an error object inside an answer that began with status 200."""
        failure = status_error(self._name, event_status(error), error, client.secrets)
        return _AttemptFailed(failure, can_retry=is_temporary(failure))

    @contextmanager
    def _parsing(self, client: ProviderConnection, data: bytes = b"") -> Iterator[None]:
        """Turn the exceptions of a malformed answer into a failed attempt. data: for the message."""
        try:
            yield
        except _MALFORMED as error:
            text = data[:400].decode("utf-8", "replace") or f"{type(error).__name__} {error}"
            failure = protocol_error(self._name, text, client.secrets)
            raise _AttemptFailed(failure, can_retry=False) from error


def _chunks(response: Any) -> AsyncIterator[bytes]:
    """Return the body of an httpx response as it arrives, decompressed."""
    chunks: AsyncIterator[bytes] = response.aiter_bytes()
    return chunks


def _requested_pause(headers: Any) -> float | None:
    """Return the seconds of a `Retry-After` header; None where there is none or it makes no sense.

    The header may be a number or a date. A date is compared with the server's own `Date`, because the clocks may differ.
    """
    value = headers.get("retry-after", "")
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        seconds = parsedate_to_datetime(value).timestamp() - parsedate_to_datetime(headers.get("date", "")).timestamp()
    except ValueError:
        return None
    return max(0.0, seconds)
