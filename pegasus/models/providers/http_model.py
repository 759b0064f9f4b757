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
wants, as long as no pause in it is longer than `models.silence_timeout` (see `AnswerReader`). A longer one ends the call: the model
would probably stall again, and the text that has come is in the error (`ModelError.partial`). An answer that breaks off is asked for
again only while the first limit has not passed.

The answer is streamed to `request.on_pieces` while it arrives. When an attempt fails, None is sent, and then
an `AnotherAttempt` before the next one begins.

Five attempts with pauses of 0.5, 1, 2 and 4 seconds are enough for a short failure or a short limit of the rate. During longer
failures the fallback models answer, which are asked when this call has failed.

A response that was left early is closed in a shielded scope: closing must also work while the call is being cancelled.
"""

from __future__ import annotations

import random
from typing import Any, Final

import attrs
import trio

from pegasus.models.base import ModelError, ModelRequest, ModelResponse
from pegasus.models.errors import network_error, silence_error, timeout_error, unreachable_error
from pegasus.models.formats import AnswerAssembler, WireFormat
from pegasus.models.providers.answer_reader import (
    DRAIN,
    AnswerReader,
    AttemptFailed,
    EventDecoder,
    LineDecoder,
    StreamDecoder,
)
from pegasus.models.providers.connections import ProviderClient, RefusedByServer
from pegasus.models.refusals import is_out_of_quota
from pegasus.observe import get_logger
from pegasus.retry import Pauses, requested_pause

_log = get_logger("models")

ATTEMPTS: Final = 5
"""Attempts of one call. Requests that are repeated because the wire format has learned something are not counted."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 8.0
"""Seconds before the second attempt, doubled for each further one up to the longest."""
_LOADING_PAUSE: Final = 2.0
"""Seconds before a server that is loading its model is asked again."""


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
        self._decoder: type[StreamDecoder] = LineDecoder if wire.streams_lines else EventDecoder
        self._rng = rng

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Return the model's answer.

        Raises ModelError: of kind "timeout" when a time limit passes, otherwise the error of the last attempt. Cancelled: the
        connection is closed, also if the provider is still sending.
        """
        if not self._client.is_ready:
            await self._client.load()  # before the deadline begins: an import is not the provider's fault
        until = trio.current_time() + request.options.timeout
        scope = trio.CancelScope(deadline=until)
        reader = AnswerReader(self.name, self._client, self._key_name, request, until, scope, self._decoder)
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
        """Send the request once and return the answer. Raises AttemptFailed.

        On every exit the response is closed: left open, it would hold its connection until the garbage collector comes.
        """
        response, assembler = await self._post(request, reader)
        try:
            return await reader.read(response, assembler)
        except AttemptFailed:
            reader.retract()
            raise
        finally:
            if not response.is_closed:
                with trio.CancelScope(shield=True, deadline=trio.current_time() + DRAIN):
                    await response.aclose()

    async def _post(self, request: ModelRequest, reader: AnswerReader) -> tuple[Any, AnswerAssembler]:
        """Send the request; return the httpx response, its body unread, and the assembler for it. Raises AttemptFailed.

        While the wire format learns from refusals, the request is repeated at once and without counting: each lesson can be learned
        only once, so this ends. `x-should-retry` is the header by which a server overrides the rule for retries.
        """
        client, wire, options = self._client, self._wire, request.options
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
            if isinstance(cause, self._client.unreachable_errors):
                return unreachable_error(self.name, self._provider_type, self._client.base_url, cause)
            cause = cause.__cause__ or cause.__context__
        return network_error(self.name, error, self._client.secrets)
