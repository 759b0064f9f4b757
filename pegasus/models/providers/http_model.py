"""A model behind HTTP: one call with its time limit and its retries, and the reading of its answer, for every wire format.

One call makes up to five attempts. An attempt fails in one of three ways:

* Refused: the server answered with an error status. The wire format may learn from it (`adapt`), and then the same attempt goes on
  with another body. Otherwise statuses that may pass (408, 409, 429, 5xx) are retried; the rest is an error at once.
* Unreachable or broken off: no connection, or the answer ended in the middle. Retried.
* Senseless: an HTML page or something else that is not an answer is an error at once; an answer with a damaged event is retried.

Between attempts there is a pause with exponential backoff, or as long as the server asks for (`Retry-After`). If the server asks for a
longer pause than the call has time left, the call fails at once, so that a fallback model can answer. A server that is loading its
model is asked again until the time is over.

All attempts and pauses until the first token happen within `models.timeout` seconds. From then on the answer may take as long as it
wants, as long as no pause in it is longer than `models.silence_timeout` (see `AnswerReader`). A longer one ends the call: the model
would probably stall again, and the text that has come is in the error (`ModelError.partial`). An answer that breaks off is asked for
again only while the first limit has not passed.

The answer is streamed to `request.on_pieces` while it arrives. When an attempt fails, None is sent, and then
an `AnotherAttempt` before the next one begins.

Five attempts with pauses of 0.5, 1, 2 and 4 seconds are enough for a short failure or a short limit of the rate. During longer
failures the fallback models answer, which are asked when this call has failed.

A response that was left early is closed in a shielded scope: closing must also work while the call is being cancelled.

**The answer** goes from the bytes of a response, through the events in them, to a `ModelResponse`:

* A decoder finds the JSON texts in the bytes. Two framings are in use. Most services send server-sent events (`EventDecoder`);
  Ollama sends a JSON object in each line (`LineDecoder`), as its wire format says. Chunks of a response may be cut anywhere.
* The `AnswerAssembler` of the wire format understands the texts.
* `AnswerReader` passes the pieces of the answer on to the listener, and moves the time limit of the call.

A connection is used again only if its response was read to the end. That is why a stream is read on after the answer is complete,
for a few seconds. An answer that cannot be used is an `AttemptFailed`, which says whether the same request may succeed another time.
"""

from __future__ import annotations

import codecs
import json
import math
import random
from typing import Any, Final, TypeAlias

import attrs
import trio

from pegasus.models.base import AnotherAttempt, ModelError, ModelRequest, ModelResponse
from pegasus.models.errors import (
    cut_error,
    is_temporary,
    network_error,
    one_line,
    protocol_error,
    silence_error,
    status_error,
    timeout_error,
    unreachable_error,
)
from pegasus.models.formats import AnswerAssembler, WireFormat
from pegasus.models.providers.connections import ProviderClient, RefusedByServer, close_response, read_at_most
from pegasus.models.refusals import event_status, is_loading, is_out_of_quota
from pegasus.observe import get_logger
from pegasus.retry import Pauses, requested_pause

_log = get_logger("models")

ATTEMPTS: Final = 5
"""Attempts of one call. Requests that are repeated because the wire format has learned something are not counted."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 8.0
"""Seconds before the second attempt, doubled for each further one up to the longest."""
_LOADING_PAUSE: Final = 2.0
"""Seconds before a server that is loading its model is asked again."""
DRAIN: Final = 3.0
"""Seconds that a complete answer may take to end its stream. Then the connection is given up."""
_LARGEST_ANSWER: Final = 16 * 1024 * 1024
"""Bytes. A longer answer is cut off: it would only fill the memory."""
_UNCOUNTED: Final = 32_000
"""Pieces above the request's `max_tokens` that are accepted: some servers do not count reasoning."""
_MALFORMED: Final = (KeyError, IndexError, TypeError, AttributeError, ValueError, RecursionError)
"""Exceptions that an `AnswerAssembler` or the JSON parser raises for malformed data."""


class AttemptFailed(Exception):
    """Failure of one attempt.

    Example: `raise AttemptFailed(ModelError("no connection", kind="network"), can_retry=True)`. `HttpModel`
    makes another attempt, or raises `error`.
    """

    def __init__(self, error: ModelError, *, can_retry: bool, is_loading: bool = False) -> None:
        super().__init__(str(error))
        self.error = error
        """The error of the whole call, if this was its last attempt."""
        self.can_retry = can_retry
        """True if the same request may succeed."""
        self.pause: float | None = None
        """Seconds that the server asks to wait before the next attempt; None if it does not say."""
        self.is_loading = is_loading
        """True for a server that is loading its model. Such an attempt is not counted."""


# ------------------------------------------------------------------ framing


class EventDecoder:
    r"""Decoder of server-sent events.

    The standard is https://html.spec.whatwg.org/multipage/server-sent-events.html. Of an event only its data is used: names, ids,
    retry times and comments are skipped, and so are events without data, by which some servers keep the connection open while the
    model thinks. A byte order mark may come first.

    Example: `EventDecoder().feed(b'data: {"n": 1}\n\ndata: {"n"')` is `[b'{"n": 1}']`.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        """Bytes of the incomplete event, all line ends as newlines."""
        self._ends_in_return = False
        """True if the chunk before ended in CR: the LF of a CRLF may follow."""
        self._has_begun = False
        """True once an event has come: a byte order mark may only stand before the first one."""

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
        complete = bytes(self._buffer[:end])
        del self._buffer[: end + 2]
        if not self._has_begun:
            self._has_begun, complete = True, complete.removeprefix(codecs.BOM_UTF8)
        lines = (
            [line for line in block.split(b"\n") if line.startswith(b"data:")] for block in complete.split(b"\n\n")
        )
        events = (b"\n".join(line[5:].removeprefix(b" ") for line in data) for data in lines)
        return [data for data in events if data.strip()]

    def end(self) -> list[bytes]:
        """Return the data of the last event when the response has ended: it may lack its empty line."""
        return self.feed(b"\n\n")

    @property
    def rest(self) -> bytes:
        """Bytes after the last complete event."""
        return bytes(self._buffer)

    def is_framed(self, rest: bytes) -> bool:
        """Return True for the beginning of an event's line; anything else is something else than an answer."""
        return rest.removeprefix(codecs.BOM_UTF8).startswith((b"data", b"event", b"id", b"retry", b":"))


class LineDecoder:
    r"""Decoder of JSON objects that stand in a line each (https://github.com/ndjson/ndjson-spec).

    Example: `LineDecoder().feed(b'{"done": false}\n{"do')` is `[b'{"done": false}']`.
    """

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        """Pieces of the incomplete line. They are joined only when it ends, so that a long line is not copied for each chunk."""

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take a chunk; return the lines that are complete now, in order, without empty ones."""
        head, newline, rest = chunk.rpartition(b"\n")
        if not newline:
            self._pieces.append(chunk)
            return []
        lines = b"".join((*self._pieces, head)).split(b"\n")
        self._pieces = [rest]
        return [line for line in lines if line.strip()]

    def end(self) -> list[bytes]:
        """Return the last line, which may lack its newline."""
        return self.feed(b"\n")

    @property
    def rest(self) -> bytes:
        """Bytes after the last complete line."""
        return b"".join(self._pieces)

    def is_framed(self, rest: bytes) -> bool:
        """Return True for the beginning of an object."""
        return rest.lstrip().startswith(b"{")


StreamDecoder: TypeAlias = EventDecoder | LineDecoder
"""Decoder of one response."""


# ------------------------------------------------------------------ the answer


@attrs.define(eq=False, repr=False)
class AnswerReader:
    """Reader of the answer to one call, over all its attempts. Each piece that comes moves the time limit of the call.

    A slow model is no failure as long as it writes, so a whole answer has no limit. The request's `options.timeout` limits the
    time until the first token, over all attempts. Then `options.silence_timeout` limits each pause. If an attempt fails, the first
    limit holds again, counted from the beginning of the call. So attempts that break off one after another end as well.

    Only pieces count: text, reasoning, calls. Comments and other events that a server sends to keep a connection open do not.
    """

    _model: HttpModel
    """Model that answers. Its client knows the exceptions and the secrets."""
    _request: ModelRequest
    """The request that is answered."""
    until: float
    """Trio time at which an answer must have begun."""
    scope: trio.CancelScope
    """Scope for the call, with this deadline at first. It is cancelled when a limit has passed."""
    pieces: int = attrs.field(default=0, init=False)
    """Pieces of the present attempt that have come. Each is at least one token."""
    _stray: bytes = attrs.field(default=b"", init=False)
    """The last event of the present attempt whose data was no JSON at all."""
    _activity: str = attrs.field(default="", init=False)
    """Last words to the listener about another attempt."""

    async def read(self, response: Any, assembler: AnswerAssembler) -> ModelResponse:
        """Return the answer in a response of httpx, by its content type. Raises AttemptFailed.

        Servers that do not stream answer with `application/json`; everything else is read as events, whatever it calls itself.
        """
        self.announce("")
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == "text/html":
            page = one_line((await self._read_body(response)).decode("utf-8", "replace"), self._model.client.secrets)
            raise self._senseless(f"a web page instead of a model ({page}); check base_url")
        if kind == "application/json":
            data = await self._read_body(response)
            events = [data] if data.strip() else []
            failure = self._feed(events, assembler, is_stream=False)
        else:
            failure = await self._read_events(response, assembler)
        if failure is not None:
            raise failure
        if not assembler.complete and self._stray:
            raise self._senseless(self._stray[:400].decode("utf-8", "replace"), can_retry=True)
        if not assembler.complete:
            raise AttemptFailed(cut_error(self._model.name), can_retry=True)
        try:
            answer = assembler.response()
        except _MALFORMED as error:
            raise self._senseless(f"{type(error).__name__} {error}") from error
        if answer.stop_reason == "error" and not answer.text.strip() and not answer.calls:
            raise self._senseless("the provider gave up on it, and nothing came", can_retry=True)
        return answer

    async def _read_events(self, response: Any, assembler: AnswerAssembler) -> AttemptFailed | None:
        """Feed every event of a stream to the assembler. Return the failure that ended it.

        The stream is read to its end even after a failure or a complete answer, for at most `DRAIN` seconds more: only then can the
        connection be used again. Some servers send their usage after the end of the answer, others never end the stream. An error that
        occurs after the answer was complete is ignored, since nothing is missing.
        """
        decoder = self._model.decoder()
        size = 0
        failure: AttemptFailed | None = None
        with trio.CancelScope() as scope:
            try:
                async for chunk in response.aiter_bytes():
                    size += len(chunk)
                    if failure is None:
                        failure = self._feed(decoder.feed(chunk), assembler)
                    if size > _LARGEST_ANSWER or self.pieces > self._request.max_tokens + _UNCOUNTED:
                        failure = self._senseless("it does not end")
                        scope.cancel()
                    elif (failure or assembler.complete) and scope.deadline == math.inf:
                        scope.deadline = trio.current_time() + DRAIN
                        self.scope.deadline = math.inf  # only the rest of the stream is left
            except self._model.client.read_errors as error:
                if failure is None and not assembler.complete:
                    failure = AttemptFailed(
                        network_error(self._model.name, error, self._model.client.secrets), can_retry=True
                    )
        if failure is None and not assembler.complete:
            failure = self._feed_rest(decoder, assembler)
        return failure

    def _feed_rest(self, decoder: StreamDecoder, assembler: AnswerAssembler) -> AttemptFailed | None:
        """Feed what follows the last complete event: only the mark of its end may be missing. Other text is no answer at all."""
        rest = decoder.rest
        failure = self._feed(decoder.end(), assembler)
        if failure is not None and failure.error.kind != "protocol":
            return failure
        if rest.strip() and not decoder.is_framed(rest):
            return self._senseless(rest[:400].decode("utf-8", "replace"))
        return None

    def _feed(self, events: list[bytes], assembler: AnswerAssembler, *, is_stream: bool = True) -> AttemptFailed | None:
        """Feed events to the assembler until one is a failure, and return that.

        The pieces of the answer in them go to the listener, those before a failure as well, and the next one may take as long as the
        limit of silence. Data that cannot be understood may be damaged
        in a stream, so that is worth another attempt. An event of a stream that is no object (null, a word) says nothing and is
        skipped. is_stream: False for an answer in one piece.
        """
        feed = assembler.feed if is_stream else assembler.feed_whole
        failure: AttemptFailed | None = None
        for data in events:
            if data.strip() == b"[DONE]":
                assembler.finish()
                continue
            if is_stream and not data.lstrip().startswith((b"{", b"[")):
                self._stray = b"" if data.strip() == b"null" else data
                continue
            try:
                value = json.loads(data.removeprefix(codecs.BOM_UTF8))
                parts = value if is_stream and isinstance(value, list) else [value]
                error = next(filter(None, map(feed, parts)), None)
            except _MALFORMED:
                failure = self._senseless(data[:400].decode("utf-8", "replace"), can_retry=is_stream)
                break
            if error is not None:
                failure = self.refusal(event_status(error), error)
                break
        if pieces := assembler.pieces:
            self.pieces += len(pieces)
            self.scope.deadline = trio.current_time() + self._request.options.silence_timeout
            if (listener := self._request.on_pieces) is not None:
                listener(pieces)
            pieces.clear()
        return failure

    async def _read_body(self, response: Any) -> bytes:
        """Return the whole body, cut off at `_LARGEST_ANSWER`."""
        try:
            return await read_at_most(response, _LARGEST_ANSWER)
        except self._model.client.read_errors as error:
            failure = network_error(self._model.name, error, self._model.client.secrets)
            raise AttemptFailed(failure, can_retry=True) from error

    # ------------------------------------------------------------ failures

    def retract(self) -> None:
        """Note that the attempt has failed: its pieces are void, and the first limit holds again."""
        self.pieces, self.scope.deadline, self._stray = 0, self.until, b""
        self._activity = ""
        if self._request.on_pieces is not None:
            self._request.on_pieces([None])

    def announce(self, activity: str) -> None:
        """Tell the listener that the call is made again; "": that the server answers now."""
        if self._request.on_pieces is not None and activity != self._activity:
            self._activity = activity
            self._request.on_pieces([AnotherAttempt(activity)])

    def refusal(self, status: int, body: object) -> AttemptFailed:
        """Return the failure for a refusal: a response with an error status, or an error event that stands for one."""
        model = self._model
        error = status_error(model.name, status, body, model.client.secrets, key_name=model.key_name)
        can_retry = is_temporary(error) and not is_out_of_quota(body)
        return AttemptFailed(error, can_retry=can_retry, is_loading=is_loading(status, body))

    def _senseless(self, detail: str, *, can_retry: bool = False) -> AttemptFailed:
        """Return the failure for an answer that cannot be understood. detail: what was found."""
        return AttemptFailed(protocol_error(self._model.name, detail, self._model.client.secrets), can_retry=can_retry)


# ------------------------------------------------------------------ the call


class HttpModel:
    """`LanguageModel` of a provider that is reached over HTTP.

    It keeps nothing between calls except what its wire format has learned, and calls may overlap. The layers, from the outside in:

        generate   the deadline of the call
        _retry     attempts and the pauses between them
        _attempt   one request and its response, which is always closed
        _post      the request, repeated at once while the wire format learns from refusals

    What is in the response is read by an `AnswerReader`, which also has the deadline.

    provider_type, key_name: type of the provider, and environment variable of its key ("" if it has none), for error messages.
    rng: randomness of the pauses.
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
        self.client = client
        self.key_name = key_name
        self.decoder: type[StreamDecoder] = LineDecoder if wire.streams_lines else EventDecoder
        """Framing of its streamed answers."""
        self._rng = rng

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Return the model's answer.

        Raises ModelError: of kind "timeout" when a time limit passes, otherwise the error of the last attempt. Cancelled: the
        connection is closed, also if the provider is still sending.
        """
        if not self.client.is_ready:
            await self.client.load()  # before the deadline begins: an import is not the provider's fault
        until = trio.current_time() + request.options.timeout
        scope = trio.CancelScope(deadline=until)
        reader = AnswerReader(self, request, until, scope)
        failures: list[ModelError] = []
        with scope:
            response = await self._retry(request, reader, failures)
            return attrs.evolve(response, model=self.name)
        if reader.pieces:
            raise silence_error(self.name, request.options.silence_timeout)
        raise timeout_error(self.name, request.options.timeout, failures[-1] if failures else None)

    async def _retry(self, request: ModelRequest, reader: AnswerReader, failures: list[ModelError]) -> ModelResponse:
        """Make attempts until one succeeds. Raises the ModelError of the last one.

        failures: receives the errors of the attempts that failed. It belongs to the caller, because it is needed when the deadline
        cancels this method: the timeout error names what went wrong before.
        """
        attempts, pauses = 0, Pauses(_FIRST_PAUSE, _LONGEST_PAUSE, self._rng)
        while True:
            try:
                return await self._attempt(request, reader)
            except AttemptFailed as failure:
                failures.append(failure.error)
                attempts += not failure.is_loading
                is_too_late = reader.until - trio.current_time() <= (failure.pause or 0)
                if not failure.can_retry or attempts == ATTEMPTS or is_too_late:
                    raise failure.error from failure.__cause__
                pause = failure.pause
                if failure.is_loading:
                    pause = max(pause or 0, _LOADING_PAUSE)
                    _log.debug("the server is loading the model", model=self.name)
                    reader.announce("the server loads the model")
                else:
                    if pause is None:
                        pause = pauses.next()
                    _log.warning(
                        "model call is retried", model=self.name, reason=str(failure.error), pause=round(pause, 2)
                    )
                    reader.announce(f"retrying ({failure.error.status or failure.error.kind}), attempt {attempts + 1}")
            await trio.sleep(pause)

    async def _attempt(self, request: ModelRequest, reader: AnswerReader) -> ModelResponse:
        """Send the request once and return the answer. Raises AttemptFailed. On every exit the response is closed."""
        response, assembler = await self._post(request, reader)
        try:
            return await reader.read(response, assembler)
        except AttemptFailed:
            reader.retract()
            raise
        finally:
            await close_response(response)

    async def _post(self, request: ModelRequest, reader: AnswerReader) -> tuple[Any, AnswerAssembler]:
        """Send the request; return the httpx response, its body unread, and the assembler for it. Raises AttemptFailed.

        While the wire format learns from refusals, the request is repeated at once and without counting: each lesson can be learned
        only once, so this ends. `x-should-retry` is the header by which a server overrides the rule for retries.
        """
        client, wire, options = self.client, self._wire, request.options
        while True:
            assembler, body = wire.assembler(request), wire.pieces(request)
            headers = {**wire.headers(request), **options.headers}
            try:
                return await client.post(wire.path, body, headers=headers, query=options.query), assembler
            except RefusedByServer as error:
                if wire.adapt(error.status_code, error.body, request):
                    continue
                failure = reader.refusal(error.status_code, error.body)
                override = error.response.headers.get("x-should-retry")
                if override == "false" or (override == "true" and not is_out_of_quota(error.body)):
                    failure.can_retry = override == "true"
                failure.pause = requested_pause(error.response.headers)
                raise failure from error
            except client.connection_errors as error:
                raise AttemptFailed(self._connection_error(error), can_retry=True) from error

    def _connection_error(self, error: BaseException) -> ModelError:
        """Return the error for a request without a response: the server is not there, or the connection broke.

        The exception of httpx wraps that of Trio. The whole chain is searched, because only a connection that
        was never made gets the advice to check the address.
        """
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, self.client.unreachable_errors):
                return unreachable_error(self.name, self._provider_type, self.client.base_url, cause)
            cause = cause.__cause__ or cause.__context__
        return network_error(self.name, error, self.client.secrets)
