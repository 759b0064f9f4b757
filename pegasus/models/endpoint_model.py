"""Calls of models that hold no conversation: speech and embeddings, over endpoints in OpenAI's format.

They are calls that cost money: a budget may refuse them, and they are counted. They go past the middleware of conversations: no rule
or fallback could take another model for them. Budgets and records are the same (`UsageTracker.admit_other`, `count_other`).

A call is tried again while its time lasts if the service is busy or out of reach. What it answers comes from outside and is read up to
a bound.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final, TypeVar

import attrs
import trio

from pegasus.models.base import Label, ModelError, Usage
from pegasus.models.errors import is_temporary, status_error
from pegasus.models.providers import ProviderClient, RefusedByServer, close_response
from pegasus.retry import Pauses

if TYPE_CHECKING:
    from pegasus.models.usage import UsageTracker

T = TypeVar("T")
ATTEMPTS: Final = 3
"""Number of times that a call is made which fails for a passing cause."""
PAUSE: Final = 2.0
"""Seconds before the second attempt, doubled before each further one."""


@attrs.frozen(eq=False, repr=False)
class EndpointModel:
    """A model behind an endpoint of its own. `AudioModel` and `EmbeddingModel` are the kinds."""

    name: str
    """`<provider>/<model>`."""
    model_id: str
    """Name of the model at its service."""
    client: ProviderClient
    """HTTP client of the provider, shared with its other models."""
    usage: UsageTracker | None = None
    """Counts and limits calls; None: nothing does."""
    timeout: float = 120.0
    """Seconds for a call, retries included."""
    headers: Mapping[str, str] = attrs.field(factory=dict)
    """Further headers, and so with `query`."""
    query: Mapping[str, str] = attrs.field(factory=dict)
    """Query parameters of each request's address."""
    key_name: str = ""
    """Variable of the service's key, for what an error says to do."""

    async def _admit(self, label: Label, tokens: int) -> None:
        """Wait until a budget admits the call. Raises ModelError of the kind "budget" if it is refused."""
        if self.usage is not None:
            await self.usage.admit_other(self.name, label, tokens)

    def _count(self, label: Label, usage: Usage | None, tokens: int) -> None:
        """Record what a call has taken: as the service has counted it, else by the estimate `tokens`."""
        if self.usage is not None:
            self.usage.count_other(self.name, label, usage or Usage(0, tokens), estimated=usage is None)

    async def _call(self, path: str, body: bytes, headers: Mapping[str, str], max_bytes: int) -> bytes:
        """Return the body of an answer, after a few attempts at most. Raises ModelError."""
        return await self._retry(partial(self._attempt, path, body, headers, max_bytes))

    async def _stream(self, path: str, body: bytes, take: Callable[[bytes], Awaitable[None]], max_bytes: int) -> int:
        """Call `take` with each piece of the body of an answer; return how many bytes there were.

        Raises ModelError: after a few attempts if there is no answer, and at once if one breaks off, since pieces of it are taken.
        """
        response = await self._retry(partial(self._post, path, body))
        size = 0
        try:
            with trio.move_on_after(self.timeout) as silence, self._failures():
                async for piece in response.aiter_bytes():
                    size += len(piece)
                    if size > max_bytes:
                        silence.cancel()
                    silence.deadline = inf
                    await take(piece)
                    silence.deadline = trio.current_time() + self.timeout
        finally:
            await close_response(response)
        if size > max_bytes:
            raise self._too_much(max_bytes)
        if silence.cancelled_caught:
            text = f"{self.name}: its answer stopped for {self.timeout:g} seconds (models.timeout)"
            raise ModelError(text, kind="timeout")
        return size

    async def _retry(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Return what an attempt returns, the first that does not fail for a passing cause. Raises ModelError."""
        await self.client.load()
        pauses = Pauses(PAUSE)
        # One limit for all attempts and the pauses between them: a person waits for the words.
        with trio.move_on_after(self.timeout):
            for number in range(1, ATTEMPTS + 1):
                try:
                    return await attempt()
                except ModelError as error:
                    if number == ATTEMPTS or not is_temporary(error):
                        raise
                await trio.sleep(pauses.next())
        raise ModelError(f"{self.name}: no answer within {self.timeout:g} seconds (models.timeout)", kind="timeout")

    async def _attempt(self, path: str, body: bytes, headers: Mapping[str, str], max_bytes: int) -> bytes:
        """Make the call once, and return the body of the answer. Raises ModelError."""
        with self._failures():
            content = await self.client.fetch(
                path, body, max_bytes, headers={**self.headers, **headers}, query=self.query
            )
        if len(content) > max_bytes:
            raise self._too_much(max_bytes)
        return content

    async def _post(self, path: str, body: bytes) -> Any:
        """Make the call once, and return the response of httpx, which the caller closes. Raises ModelError."""
        with self._failures():
            return await self.client.post(path, body, headers=self.headers, query=self.query)

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Turn what the client raises into ModelErrors, whose texts name neither headers nor query: they may hold keys."""
        client = self.client
        try:
            yield
        except RefusedByServer as error:
            raise status_error(
                self.name, error.status_code, error.body, client.secrets, key_name=self.key_name
            ) from error
        except (*client.connection_errors, *client.read_errors) as error:
            text = f"{self.name}: no connection to {client.base_url}: {type(error).__name__}"
            raise ModelError(text, kind="network") from error

    def _too_much(self, max_bytes: int) -> ModelError:
        return ModelError(f"{self.name}: its server answered with more than {max_bytes >> 20} MB", kind="request")
