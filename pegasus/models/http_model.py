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

Only `post()` of an SDK's client is used, with a body that is JSON already. It keeps what the SDKs are good for: authentication,
platform headers, connection pool, error types. The typed `create()` would walk every message in Python, and typed streams would build
a model object for every event; neither understands the servers that only roughly speak the format. The SDK does not retry, although
it could: only this file knows the deadline, can repeat an answer that broke off after its status line said 200, and counts both kinds
of failures together.

Five attempts with pauses of 0.5, 1, 2 and 4 seconds are enough for a short failure or a short limit of the rate. During longer
failures the fallback models answer, which are asked when this call has failed.

A connection is used again only if its response was read to the end. That is why a stream is read on after the answer is complete,
for a few seconds, and why a response that was left early is closed in a shielded scope: closing must also work while the
call is being cancelled.
"""

from __future__ import annotations

import importlib
import json
import random
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
from pegasus.models.wire_format import AnswerAssembler, WireFormat, is_failure
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
_CONNECT_TIMEOUT: Final = 10.0
"""Seconds for TCP and TLS. Everything after that is bounded by the deadline of the call."""
_KEEP_ALIVE: Final = 60.0
"""Seconds that an idle connection is kept, so that a person's pauses do not cost a TLS handshake each."""


# ------------------------------------------------------------------ connections


class ProviderClient:
    """HTTP client of one provider, by its official SDK, which is imported at the first use. All models of a provider share it.

    Importing an SDK takes one to three seconds of CPU. So it happens in a thread, either soon after the daemon is ready (`warm_up` of
    the service) or at the first call, which then waits for it.

    package, client_class: of the SDK. api_key: "" for a server that needs none; the SDK wants a word all the same. options: further
    arguments of the client.

        client = ProviderClient("openai", "AsyncOpenAI", api_key, "https://api.openai.com/v1")
        await client.load()
        response = await client.post("/chat/completions", body)
        try:
            data = await response.aread()
        finally:
            await response.aclose()
    """

    status_errors: type[Any]
    """Raised for a response with an error status."""
    connection_errors: tuple[type[BaseException], ...]
    """Raised when there is no response at all."""
    unreachable_errors: tuple[type[BaseException], ...]
    """Causes of connection errors that mean: nobody answers at this address."""
    read_errors: tuple[type[BaseException], ...]
    """Raised while the body of a response is read."""

    def __init__(self, package: str, client_class: str, api_key: str, base_url: str, **options: object) -> None:
        self.base_url = base_url
        self.secrets = (api_key,)
        """Strings that must not appear in any message."""
        self._package = package
        self._client_class = client_class
        self._options = {"api_key": api_key or "none", "base_url": base_url, **options}
        self._lock = trio.Lock()
        self._client: Any = None

    async def load(self) -> None:
        """Get ready for `post`; wait while the SDK is being imported. Raises ModelError if it cannot be used; may be tried again."""
        if self._client is not None:
            return
        async with self._lock:
            if self._client is None:
                try:
                    self._client = await trio.to_thread.run_sync(self._import, abandon_on_cancel=True)
                except Exception as error:
                    text = f"the package {self._package} cannot be used: {error}"
                    raise ModelError(text, kind="request") from error

    def _import(self) -> Any:
        """Import the SDK and return its client. Blocking; the only place that loads a heavy package."""
        module: Any = importlib.import_module(self._package)
        httpx: Any = importlib.import_module("httpx2")
        self.status_errors = module.APIStatusError
        self.connection_errors = (module.APIError, httpx.HTTPError, httpx.InvalidURL)
        self.unreachable_errors = (httpx.ConnectError, httpx.ConnectTimeout)
        self.read_errors = (httpx.HTTPError, httpx.StreamError)
        self._response_types = {"cast_to": httpx.Response, "stream_cls": module.AsyncStream}
        timeout = httpx.Timeout(None, connect=_CONNECT_TIMEOUT)
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=_KEEP_ALIVE)
        http_client = module.DefaultAsyncHttpxClient(timeout=timeout, limits=limits)
        return getattr(module, self._client_class)(timeout=timeout, http_client=http_client, **self._options)

    async def post(self, path: str, body: bytes) -> Any:
        """Send one request; return the httpx response with its body unread. The caller closes it. Only after `load`.

        Raises one of `status_errors` or `connection_errors`. On cancellation the connection is closed.
        """
        no_retries = {"max_retries": 0}
        return await self._client.post(path, content=body, options=no_retries, stream=True, **self._response_types)

    async def aclose(self) -> None:
        """Close all connections; calls under way fail. The next `load` creates a new client."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()


class EventDecoder:
    r"""Decoder of server-sent events that arrive in chunks, which may be cut anywhere.

    Only what model providers use is implemented (https://html.spec.whatwg.org/multipage/server-sent-events.html): the data of
    events. Names, ids, retry times and comments are skipped; some servers send comments (": keep-alive") while the model thinks.

        decoder = EventDecoder()
        for chunk in (b"event: delta\ndata: {", b"}\n\n"):
            for data in decoder.feed(chunk):
                …  # b"{}"
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        """Bytes of the incomplete event, all line ends as newlines."""
        self._ends_in_return = False
        """True if the chunk before ended in CR: the LF of a CRLF may follow."""

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take a chunk; return the data of the events that are complete now, in order. An event ends with an empty line."""
        if not chunk:
            return []
        if self._ends_in_return:
            chunk = chunk.removeprefix(b"\n")
        self._ends_in_return = chunk.endswith(b"\r")
        searched = max(0, len(self._buffer) - 1)  # the empty line may be cut in two
        self._buffer += chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        end = self._buffer.rfind(b"\n\n", searched)
        if end < 0:
            return []
        blocks = bytes(self._buffer[:end]).split(b"\n\n")
        del self._buffer[: end + 2]
        lines = ([line for line in block.split(b"\n") if line.startswith(b"data:")] for block in blocks)
        return [b"\n".join(line[5:].removeprefix(b" ") for line in data) for data in lines if data]

    @property
    def rest(self) -> bytes:
        """Bytes after the last complete event."""
        return bytes(self._buffer)


# ------------------------------------------------------------------ calls


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
        client = ProviderClient("anthropic", "AsyncAnthropic", api_key, "https://api.anthropic.com")
        wire = AnthropicWire("claude-sonnet-5-5")
        model = HttpModel("anthropic/claude-sonnet-5-5", "anthropic", wire, client, timeout=120, rng=Random())
        response = await model.generate(request)
    """

    def __init__(
        self,
        name: str,
        provider_type: str,
        wire: WireFormat,
        client: ProviderClient,
        *,
        timeout: float,
        rng: random.Random,
    ) -> None:
        self.name = name
        """`<provider>/<model>` as in the settings."""
        self._provider_type = provider_type
        self._wire = wire
        self._client = client
        self._timeout = timeout
        self._rng = rng

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Return the model's answer.

        Raises ModelError: of kind "timeout" when the deadline passes, otherwise the error of the last attempt. Cancelled: the
        connection is closed, also if the provider is still sending.
        """
        await self._client.load()  # before the deadline begins: an import is not the provider's fault
        failures: list[ModelError] = []
        with trio.move_on_after(self._timeout):
            return await self._retry(request, failures)
        raise timeout_error(self.name, self._timeout, failures[-1] if failures else None)

    async def _retry(self, request: ModelRequest, failures: list[ModelError]) -> ModelResponse:
        """Make attempts until one succeeds. Raises the ModelError of the last one.

        failures: receives the errors of the attempts that failed. It belongs to the caller, because it is needed when the deadline
        cancels this method: the timeout error names what went wrong before.

        The pauses without the server's wish lose up to a quarter at random, so that many clients which failed at the same time do
        not all try again at the same time.
        """
        for attempt in range(ATTEMPTS):
            try:
                return await self._attempt(request)
            except _AttemptFailed as failure:
                failures.append(failure.error)
                time_left = trio.current_effective_deadline() - trio.current_time()
                is_pause_too_long = failure.pause is not None and failure.pause >= time_left
                if not failure.can_retry or attempt == ATTEMPTS - 1 or is_pause_too_long:
                    raise failure.error from failure.__cause__
                pause = failure.pause
                if pause is None:
                    pause = min(_FIRST_PAUSE * 2.0**attempt, _LONGEST_PAUSE) * (1 - 0.25 * self._rng.random())
                _log.warning("model call is retried", model=self.name, reason=str(failure.error), pause=round(pause, 2))
            await trio.sleep(pause)
        raise AssertionError("the last attempt returns or raises")

    async def _attempt(self, request: ModelRequest) -> ModelResponse:
        """Send the request once and return the answer. Raises _AttemptFailed.

        On every exit the response is closed: left open, it would hold its connection until the garbage collector comes.
        """
        response = await self._post(request)
        try:
            return await self._read(response, self._wire.assembler(request))
        except _AttemptFailed:
            if request.on_text is not None:
                request.on_text(None)
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
                return await client.post(self._wire.path, self._wire.body(request))
            except client.status_errors as error:
                body = error.body if error.body is not None else str(getattr(error, "message", ""))
                if self._wire.adapt(error.status_code, body, request):
                    continue
                failure = status_error(self.name, error.status_code, body, client.secrets)
                headers = error.response.headers
                overrides = {"true": True, "false": False}
                can_retry = overrides.get(headers.get("x-should-retry", ""), is_temporary(failure))
                raise _AttemptFailed(failure, can_retry=can_retry, pause=_requested_pause(headers)) from error
            except client.connection_errors as error:
                raise _AttemptFailed(self._connection_error(error), can_retry=True) from error

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

    async def _read(self, response: Any, assembler: AnswerAssembler) -> ModelResponse:
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
            if (failure := self._feed(events, assembler, is_stream=False)) is not None:
                raise failure
        else:
            await self._read_events(response, assembler)
        if not assembler.complete:
            raise _AttemptFailed(cut_error(self.name), can_retry=True)
        try:
            answer = assembler.response()
        except _MALFORMED as error:
            raise self._senseless(f"{type(error).__name__} {error}") from error
        if is_failure(answer):
            raise self._senseless("the provider gave up on it, and nothing came", can_retry=True)
        return answer

    async def _read_events(self, response: Any, assembler: AnswerAssembler) -> None:
        """Feed every event of a stream to the assembler. Raises _AttemptFailed.

        The stream is read to its end even after a failure or a complete answer, for at most `_DRAIN` seconds more: only then can the
        connection be used again. Some servers send their usage after the end of the answer, others never end the stream. An error that
        occurs after the answer was complete is ignored, since nothing is missing.
        """
        decoder = EventDecoder()
        size = 0
        failure: _AttemptFailed | None = None
        with trio.CancelScope() as scope:
            try:
                async for chunk in response.aiter_bytes():
                    size += len(chunk)
                    if failure is None:
                        failure = self._feed(decoder.feed(chunk), assembler)
                    if size > _LARGEST_ANSWER:
                        failure = self._senseless("it does not end")
                        scope.cancel()
                    elif (failure or assembler.complete) and scope.deadline == float("inf"):
                        scope.deadline = trio.current_time() + _DRAIN
            except self._client.read_errors as error:
                if failure is None and not assembler.complete:
                    failure = _AttemptFailed(network_error(self.name, error, self._client.secrets), can_retry=True)
        if failure is None and not assembler.complete:
            failure = self._feed_rest(decoder, assembler)
        if failure is not None:
            raise failure

    def _feed_rest(self, decoder: EventDecoder, assembler: AnswerAssembler) -> _AttemptFailed | None:
        """Feed what follows the last complete event: the last event may lack its empty line. Other text is no answer at all."""
        rest = decoder.rest
        failure = self._feed(decoder.feed(b"\n\n"), assembler)
        if failure is not None and failure.error.kind != "protocol":
            return failure
        if rest.strip() and not rest.startswith((b"data:", b"event:", b"id:", b":")):
            return self._senseless(rest[:400].decode("utf-8", "replace"))
        return None

    def _feed(
        self, events: list[bytes], assembler: AnswerAssembler, *, is_stream: bool = True
    ) -> _AttemptFailed | None:
        """Feed events to the assembler. Return the failure that ends the answer, None while there is none.

        is_stream: False for an answer in one piece. Data that cannot be understood may be damaged in a stream, so that is worth
        another attempt.
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
                failure = status_error(self.name, event_status(error), error, self._client.secrets)
                return _AttemptFailed(failure, can_retry=is_temporary(failure))
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
