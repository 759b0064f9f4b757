"""A model behind HTTP: one call with its time limit and its retries, for every wire format.

One call makes up to five attempts. An attempt fails in one of three ways:

* Refused: the server answered with an error status. The wire format may learn from it (`adapt`), and then the same attempt goes on
  with another body. Otherwise statuses that may pass (408, 409, 429, 5xx) are retried; the rest is an error at once.
* Unreachable or broken off: no connection, or the answer ended in the middle. Retried.
* Senseless: an HTML page or something else that is not an answer is an error at once; an answer with a damaged event is retried.

Between attempts there is a pause with exponential backoff, or as long as the server asks for (`Retry-After`). If the server asks for a
longer pause than the call has time left, the call fails at once, so that a fallback model can answer. A server that is loading its
model is asked again until the time is over.

All attempts and pauses until the first token happen within `models.timeout` seconds. From then on the answer may take as long as it
wants, as long as no pause in it is longer than `models.silence_timeout` (see `AnswerDeadline`). A longer one ends the call: the model
would probably stall again, and the text that has come is in the error (`ModelError.partial`). An answer that breaks off is asked for
again only while the first limit has not passed.

The answer is streamed to `request.on_piece` while it arrives. When an attempt fails, None is sent before the next one begins.

Five attempts with pauses of 0.5, 1, 2 and 4 seconds are enough for a short failure or a short limit of the rate. During longer
failures the fallback models answer, which are asked when this call has failed.

A connection is used again only if its response was read to the end. That is why a stream is read on after the answer is complete,
for a few seconds, and why a response that was left early is closed in a shielded scope: closing must also work while the
call is being cancelled.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from email.utils import parsedate_to_datetime
from typing import Any, Final

import attrs
import trio

from pegasus.models.base import ModelError, ModelRequest, ModelResponse, OnPiece, StreamPiece
from pegasus.models.errors import (
    cut_error,
    event_status,
    is_loading,
    is_out_of_quota,
    is_temporary,
    network_error,
    one_line,
    protocol_error,
    silence_error,
    status_error,
    timeout_error,
    unreachable_error,
)
from pegasus.models.formats import AnswerAssembler, StreamDecoder, WireFormat, is_failure
from pegasus.models.providers.connections import ProviderClient
from pegasus.observe import get_logger

_log = get_logger("models")

ATTEMPTS: Final = 5
"""Attempts of one call. Requests that are repeated because the wire format has learned something are not counted."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 8.0
"""Seconds before the second attempt, doubled for each further one up to the longest."""
_LOADING_PAUSE: Final = 2.0
"""Seconds before a server that is loading its model is asked again."""
_DRAIN: Final = 3.0
"""Seconds that a complete answer may take to end its stream. Then the connection is given up."""
_LARGEST_ANSWER: Final = 16 * 1024 * 1024
"""Bytes. A longer answer is cut off: it would only fill the memory."""
_UNCOUNTED: Final = 32_000
"""Pieces above the request's `max_tokens` that are accepted: some servers do not count reasoning."""
_MALFORMED: Final = (KeyError, IndexError, TypeError, AttributeError, ValueError, RecursionError)
"""Exceptions that an `AnswerAssembler` or the JSON parser raises for malformed data."""


# ------------------------------------------------------------------ calls


class _AttemptFailed(Exception):
    """Failure of one attempt."""

    def __init__(
        self, error: ModelError, *, can_retry: bool, pause: float | None = None, is_loading: bool = False
    ) -> None:
        super().__init__(str(error))
        self.error = error
        """The error of the whole call, if this was its last attempt."""
        self.can_retry = can_retry
        """True if the same request may succeed."""
        self.pause = pause
        """Seconds that the server asks to wait before the next attempt; None if it does not say."""
        self.is_loading = is_loading
        """True for a server that is loading its model. Such an attempt is not counted."""


class HttpModel:
    """`LanguageModel` of a provider that is reached over HTTP.

    It keeps nothing between calls except what its wire format has learned, and calls may overlap. The layers, from the outside in:

        generate   the deadline of the call
        _retry     attempts and the pauses between them
        _attempt   one request and its response, which is always closed
        _post      the request, repeated at once while the wire format learns from refusals
        _read      the response: a stream of events, or one JSON object

    provider_type, key_name: type of the provider, and environment variable of its key ("" if it has none), for error messages.
    rng: randomness of the pauses.

    Example:
        client = SdkClient(api_key, "https://api.anthropic.com", {})
        wire = AnthropicWire("claude-sonnet-5-5")
        model = HttpModel("anthropic/claude-sonnet-5-5", "anthropic", wire, client, rng=Random())
        response = await model.generate(request)
    """

    def __init__(
        self,
        name: str,
        provider_type: str,
        wire: WireFormat,
        client: ProviderClient,
        *,
        key_name: str = "",
        rng: random.Random,
    ) -> None:
        self.name = name
        """`<provider>/<model>` as in the settings."""
        self._provider_type = provider_type
        self._wire = wire
        self._client = client
        self._key_name = key_name
        self._rng = rng

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Return the model's answer.

        Raises ModelError: of kind "timeout" when a time limit passes, otherwise the error of the last attempt. Cancelled: the
        connection is closed, also if the provider is still sending.
        """
        if not self._client.is_ready:
            await self._client.load()  # before the deadline begins: an import is not the provider's fault
        options = request.options
        deadline = AnswerDeadline(request)
        failures: list[ModelError] = []
        with deadline.scope:
            response = await self._retry(request, deadline, failures)
            return attrs.evolve(response, model=self.name)
        if deadline.pieces:
            raise silence_error(self.name, options.silence_timeout)
        raise timeout_error(self.name, options.timeout, failures[-1] if failures else None)

    async def _retry(
        self, request: ModelRequest, deadline: AnswerDeadline, failures: list[ModelError]
    ) -> ModelResponse:
        """Make attempts until one succeeds. Raises the ModelError of the last one.

        failures: receives the errors of the attempts that failed. It belongs to the caller, because it is needed when the deadline
        cancels this method: the timeout error names what went wrong before.

        The pauses without the server's wish lose up to a quarter at random, so that many clients which failed at the same time do
        not all try again at the same time.
        """
        attempts = 0
        while True:
            try:
                return await self._attempt(request, deadline)
            except _AttemptFailed as failure:
                failures.append(failure.error)
                attempts += not failure.is_loading
                is_too_late = deadline.seconds_left <= (failure.pause or 0)
                if not failure.can_retry or attempts == ATTEMPTS or is_too_late:
                    raise failure.error from failure.__cause__
                pause = failure.pause
                if failure.is_loading:
                    pause = max(pause or 0, _LOADING_PAUSE)
                    _log.debug("the server is loading the model", model=self.name)
                else:
                    if pause is None:
                        pause = min(_FIRST_PAUSE * 2.0 ** (attempts - 1), _LONGEST_PAUSE)
                        pause *= 1 - 0.25 * self._rng.random()
                    _log.warning(
                        "model call is retried", model=self.name, reason=str(failure.error), pause=round(pause, 2)
                    )
            await trio.sleep(pause)

    async def _attempt(self, request: ModelRequest, deadline: AnswerDeadline) -> ModelResponse:
        """Send the request once and return the answer. Raises _AttemptFailed.

        On every exit the response is closed: left open, it would hold its connection until the garbage collector comes.
        """
        response = await self._post(request)
        try:
            return await self._read(response, self._wire.assembler(request), deadline)
        except _AttemptFailed:
            deadline.retract()
            raise
        finally:
            if not response.is_closed:
                with trio.CancelScope(shield=True, deadline=trio.current_time() + _DRAIN):
                    await response.aclose()

    async def _post(self, request: ModelRequest) -> Any:
        """Send the request; return the httpx response, its body unread. Raises _AttemptFailed.

        While the wire format learns from refusals, the request is repeated at once and without counting: each lesson can be learned
        only once, so this ends. `x-should-retry` is the header by which a server overrides the rule for retries.
        """
        client = self._client
        while True:
            try:
                return await client.post(
                    self._wire.path,
                    self._wire.body(request),
                    headers={**self._wire.headers(request), **request.options.headers},
                    query=request.options.query,
                )
            except client.status_errors as error:
                body = error.body if error.body is not None else str(getattr(error, "message", ""))
                if self._wire.adapt(error.status_code, body, request):
                    continue
                failure = self._refusal(error.status_code, body)
                headers = error.response.headers
                override = headers.get("x-should-retry")
                if override == "false" or (override == "true" and not is_out_of_quota(body)):
                    failure.can_retry = override == "true"
                failure.pause = _requested_pause(headers)
                raise failure from error
            except client.connection_errors as error:
                raise _AttemptFailed(self._connection_error(error), can_retry=True) from error

    def _refusal(self, status: int, body: object) -> _AttemptFailed:
        """Return the failure for a refusal: a response with an error status, or an error event that stands for one."""
        error = status_error(self.name, status, body, self._client.secrets, key_name=self._key_name)
        can_retry = is_temporary(error) and not is_out_of_quota(body)
        return _AttemptFailed(error, can_retry=can_retry, is_loading=is_loading(status, body))

    def _connection_error(self, error: BaseException) -> ModelError:
        """Return the error for a request without a response: the server is not there, or the connection broke.

        The SDK wraps the exception of httpx, which wraps that of Trio. The whole chain is searched, because only a connection that
        was never made gets the advice to check the address.
        """
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, self._client.unreachable_errors):
                return unreachable_error(self.name, self._provider_type, self._client.base_url, cause)
            cause = cause.__cause__ or cause.__context__
        return network_error(self.name, error, self._client.secrets)

    # ------------------------------------------------------------ reading the answer

    async def _read(self, response: Any, assembler: AnswerAssembler, deadline: AnswerDeadline) -> ModelResponse:
        """Return the answer in a response, by its content type. Raises _AttemptFailed.

        Servers that do not stream answer with `application/json`; everything else is read as events, whatever it calls itself.
        """
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == "text/html":
            page = one_line((await self._read_body(response)).decode("utf-8", "replace"), self._client.secrets)
            raise self._senseless(f"a web page instead of a model ({page}); check base_url")
        if kind == "application/json":
            data = await self._read_body(response)
            events = [data] if data.strip() else []
            if (failure := self._feed(events, assembler, deadline, is_stream=False)) is not None:
                raise failure
        else:
            await self._read_events(response, assembler, deadline)
        if not assembler.complete:
            raise _AttemptFailed(cut_error(self.name), can_retry=True)
        try:
            answer = assembler.response()
        except _MALFORMED as error:
            raise self._senseless(f"{type(error).__name__} {error}") from error
        if is_failure(answer):
            raise self._senseless("the provider gave up on it, and nothing came", can_retry=True)
        return answer

    async def _read_events(self, response: Any, assembler: AnswerAssembler, deadline: AnswerDeadline) -> None:
        """Feed every event of a stream to the assembler. Raises _AttemptFailed.

        The stream is read to its end even after a failure or a complete answer, for at most `_DRAIN` seconds more: only then can the
        connection be used again. Some servers send their usage after the end of the answer, others never end the stream. An error that
        occurs after the answer was complete is ignored, since nothing is missing.
        """
        decoder = self._wire.decoder()
        size = 0
        failure: _AttemptFailed | None = None
        with trio.CancelScope() as scope:
            try:
                async for chunk in response.aiter_bytes():
                    size += len(chunk)
                    if failure is None:
                        failure = self._feed(decoder.feed(chunk), assembler, deadline)
                    if size > _LARGEST_ANSWER or deadline.is_endless:
                        failure = self._senseless("it does not end")
                        scope.cancel()
                    elif (failure or assembler.complete) and scope.deadline == float("inf"):
                        scope.deadline = trio.current_time() + _DRAIN
                        deadline.scope.deadline = math.inf  # only the rest of the stream is left
            except self._client.read_errors as error:
                if failure is None and not assembler.complete:
                    failure = _AttemptFailed(network_error(self.name, error, self._client.secrets), can_retry=True)
        if failure is None and not assembler.complete:
            failure = self._feed_rest(decoder, assembler, deadline)
        if failure is not None:
            raise failure

    def _feed_rest(
        self, decoder: StreamDecoder, assembler: AnswerAssembler, deadline: AnswerDeadline
    ) -> _AttemptFailed | None:
        """Feed what follows the last complete event: only the mark of its end may be missing. Other text is no answer at all."""
        rest = decoder.rest
        failure = self._feed(decoder.end(), assembler, deadline)
        if failure is not None and failure.error.kind != "protocol":
            return failure
        if rest.strip() and not decoder.is_framed(rest):
            return self._senseless(rest[:400].decode("utf-8", "replace"))
        return None

    def _feed(
        self, events: list[bytes], assembler: AnswerAssembler, deadline: AnswerDeadline, *, is_stream: bool = True
    ) -> _AttemptFailed | None:
        """Feed events to the assembler, and pass on the pieces of the answer in them, those before a failure as well.

        Return the failure that ends the answer, None while there is none. is_stream: False for an answer in one piece.
        """
        failure = self._understand(events, assembler, is_stream=is_stream)
        if assembler.pieces:
            deadline.pass_on(assembler.pieces)
            assembler.pieces.clear()
        return failure

    def _understand(self, events: list[bytes], assembler: AnswerAssembler, *, is_stream: bool) -> _AttemptFailed | None:
        """Feed events to the assembler until one is a failure, and return that.

        Data that cannot be understood may be damaged in a stream, so that is worth another attempt.
        """
        feed = assembler.feed if is_stream else assembler.feed_whole
        for data in events:
            if data == b"[DONE]":
                assembler.finish()
                continue
            try:
                error = feed(json.loads(data))
            except _MALFORMED:
                return self._senseless(data[:400].decode("utf-8", "replace"), can_retry=is_stream)
            if error is not None:
                return self._refusal(event_status(error), error)
        return None

    async def _read_body(self, response: Any) -> bytes:
        """Return the whole body, cut off at `_LARGEST_ANSWER`."""
        body = bytearray()
        with trio.CancelScope() as scope:
            try:
                async for chunk in response.aiter_bytes():
                    body += chunk
                    if len(body) > _LARGEST_ANSWER:
                        scope.cancel()
            except self._client.read_errors as error:
                failure = network_error(self.name, error, self._client.secrets)
                raise _AttemptFailed(failure, can_retry=True) from error
        return bytes(body)

    def _senseless(self, detail: str, *, can_retry: bool = False) -> _AttemptFailed:
        """Return the failure for an answer that cannot be understood. detail: what was found."""
        return _AttemptFailed(protocol_error(self.name, detail, self._client.secrets), can_retry=can_retry)


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
    except (ValueError, OverflowError):  # a date that no calendar has
        return None
    return max(0.0, seconds)


class AnswerDeadline:
    """Deadline of one call, moved on by the pieces of its answer, which it passes on to the listener of the request.

    A slow model is no failure as long as it writes, so a whole answer has no limit. The request's `options.timeout` limits the
    time until the first token, over all attempts. Then `options.silence_timeout` limits each pause. If an attempt fails, the first
    limit holds again, counted from the begin of the call. So attempts that break off one after another end as well.

    Only pieces count: text, reasoning, calls. Comments and other events that a server sends to keep a connection open do not.

        deadline = AnswerDeadline(request)
        with deadline.scope:
            …  # for each chunk: deadline.pass_on(pieces)
        …  # too late; with `pieces` it was the limit of silence
    """

    def __init__(self, request: ModelRequest) -> None:
        self._until = trio.current_time() + request.options.timeout
        """Trio time at which an answer must have begun."""
        self._silence = request.options.silence_timeout
        self._listener: OnPiece = request.on_piece or (lambda piece: None)
        self._most_pieces = request.max_tokens + _UNCOUNTED
        self.scope = trio.CancelScope(deadline=self._until)
        """Scope for the call. It is cancelled when a limit has passed."""
        self.pieces = 0
        """Pieces of the present attempt that have come. Each is at least one token."""
        self.is_endless = False
        """True for an answer of more pieces than it may have tokens: the server does not keep the limit of its length."""

    def pass_on(self, pieces: Sequence[StreamPiece]) -> None:
        """Pass on pieces that have come: the next one may take as long as the limit of silence."""
        self.pieces += len(pieces)
        self.is_endless = self.pieces > self._most_pieces
        self.scope.deadline = trio.current_time() + self._silence
        for piece in pieces:
            self._listener(piece)

    def retract(self) -> None:
        """Note that the attempt has failed: its pieces are void, and the first limit holds again."""
        self.pieces, self.is_endless = 0, False
        self.scope.deadline = self._until
        self._listener(None)

    @property
    def seconds_left(self) -> float:
        """Seconds in which another attempt may begin to answer; 0 or less if it is too late for one."""
        return self._until - trio.current_time()
