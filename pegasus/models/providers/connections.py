"""HTTP connections to a provider, shared by all its models.

`HttpModel` needs one operation of a client, `post` with a body that is JSON already, and does the rest itself: deadline, retries,
events, errors. `ProviderClient` does that with httpx2. It is what every service in OpenAI's format and every local server is asked
with: the official SDK would add a second of CPU and 40 MB at its import and a fifth of the CPU of a turn, for a header with the key.
The tests hold this client and the wire formats against the official SDK.

`SdkClient` lets the official SDK make the calls to Anthropic: it adds its authentication and headers and raises its own errors. What
it sends is our JSON, and what comes back is read by `AnswerReader` like any other answer, for three reasons. The SDK's typed calls
translate the whole history anew (8 ms of CPU at 2,000 messages, against 1 ms, and more with each message), and its typed events cost
four times ours. Its stream drops events without an `event:` line, which some servers with the same API send, and has no bound for an
answer that does not end. And its retries would not do: only `HttpModel` knows the deadline, can repeat an answer that broke off after
its status line said 200, and counts both kinds of failures together. Its requests cost 0.9 of the 5.2 million instructions of a call,
for options that are copied and headers that are put together anew.

Both are imported at the first use, in a thread: either soon after the daemon is ready (`warm_up` of the service) or at the first
call, which then waits for it.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import urlsplit
from weakref import WeakSet

import attrs
import trio

from pegasus.models.base import ModelError

_CONNECT_TIMEOUT: Final = 10.0
"""Seconds for TCP and TLS. Everything after that is bounded by the deadline of the call."""
_KEEP_ALIVE: Final = 60.0
"""Seconds that an idle connection is kept, so that a person's pauses do not cost a TLS handshake each."""
_LARGEST_REFUSAL: Final = 1024 * 1024
"""Bytes of a refusal that are read."""


class RefusedByServer(Exception):
    """Response with an error status."""

    def __init__(self, status_code: int, body: object, response: Any) -> None:
        super().__init__(f"status {status_code}")
        self.status_code = status_code
        """HTTP status."""
        self.body = body
        """Parsed JSON of the refusal, or its text."""
        self.response = response
        """Response of httpx, closed."""


@attrs.frozen(eq=False, repr=False)
class _Pieces:
    """Body of a request as httpx takes it where it is not put together; it may be sent more than once."""

    pieces: Sequence[bytes]

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            yield piece


class ProviderClient:
    """HTTP client of one provider.

    api_key: sent as a bearer token. For "" that is the word "none": some servers need no key but want to see one.

    Example::

        client = ProviderClient(api_key, "https://api.openai.com/v1")
        await client.load()
        response = await client.post("/chat/completions", body)
        try:
            data = await response.aread()
        finally:
            await response.aclose()
    """

    package = "httpx2"
    """Package that `load` imports."""
    connection_errors: tuple[type[BaseException], ...]
    """Raised when there is no response at all."""
    unreachable_errors: tuple[type[BaseException], ...]
    """Causes of connection errors that mean: nobody answers at this address."""
    read_errors: tuple[type[BaseException], ...]
    """Raised while the body of a response is read."""

    def __init__(self, api_key: str, base_url: str) -> None:
        self.base_url = base_url.rstrip("/")
        self.secrets: tuple[str, ...] = (api_key,)
        """Strings that must not appear in any message."""
        self._headers = {
            "authorization": f"Bearer {api_key or 'none'}",
            "content-type": "application/json",
            "user-agent": "pegasus",
        }
        self.is_ready = False
        """True once `load` has succeeded."""
        self._lock = trio.Lock()
        self._client: Any = None
        self._parse_url: Any = None
        """httpx's class of URLs."""
        self._urls: dict[str, Any] = {}
        """Parsed URLs by path. A provider has few paths, and each call would parse the same one again."""
        self._posting = 0
        """Requests that have no response yet."""
        self._responses: WeakSet[Any] = WeakSet()
        """Responses, some of which may be unread."""

    @property
    def is_busy(self) -> bool:
        """True while a request is under way, or a response is not closed."""
        return self._posting > 0 or not all(response.is_closed for response in self._responses)

    def hide(self, secrets: Iterable[str]) -> None:
        """Keep these strings out of messages, too."""
        self.secrets = tuple(dict.fromkeys([*self.secrets, *secrets]))

    async def load(self) -> None:
        """Get ready for `post`; wait while the package is being imported.

        Raises ModelError if it cannot be used; may be tried again.
        """
        async with self._lock:
            if not self.is_ready:
                try:
                    self._client = await trio.to_thread.run_sync(self._import, abandon_on_cancel=True)
                    self.is_ready = True
                except Exception as error:
                    text = f"the package {self.package} cannot be used: {error}"
                    raise ModelError(text, kind="request") from error

    def _import(self) -> Any:
        """Import httpx2 and return its client. Blocking."""
        import httpx2 as httpx

        self.connection_errors = (httpx.HTTPError, httpx.InvalidURL)
        self.unreachable_errors = (httpx.ConnectError, httpx.ConnectTimeout)
        self.read_errors = (httpx.HTTPError, httpx.StreamError)
        self._parse_url = httpx.URL
        timeout = httpx.Timeout(None, connect=_CONNECT_TIMEOUT)
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=_KEEP_ALIVE)
        return self._make_client(httpx, timeout=timeout, limits=limits)

    def _make_client(self, httpx: Any, **options: Any) -> Any:
        """Return a client of httpx that sends the provider's headers. Blocking.

        Certificates cost 50 ms to load, so a plain connection does not. A proxy of the environment is for the world outside.
        """
        is_secure, is_local = self.base_url.startswith("https"), is_local_address(self.base_url)
        return httpx.AsyncClient(headers=self._headers, verify=is_secure, trust_env=not is_local, **options)

    async def post(
        self,
        path: str,
        body: bytes | Sequence[bytes],
        *,
        headers: Mapping[str, str] = {},
        query: Mapping[str, str] = {},
    ) -> Any:
        """Send one request; return the httpx response with its body unread. The caller closes it. Only after `load`.

        body: in one piece, or in several that are sent one after the other.

        headers, query: additions to the client's own headers, which they replace, and to the address.

        Raises RefusedByServer or one of `connection_errors`. On cancellation the connection is closed.
        """
        content: bytes | _Pieces
        if isinstance(body, bytes):
            content = body
        elif len(body) == 1:
            content = body[0]
        else:
            # With its length given, httpx sends the body as one, and not in chunks with a length each.
            content, headers = _Pieces(body), {**headers, "content-length": str(sum(map(len, body)))}
        if path not in self._urls:
            self._urls[path] = self._parse_url(self.base_url + path)
        self._posting += 1
        try:
            response = await self._send(self._urls[path], content, headers, query)
        finally:
            self._posting -= 1
        self._responses.add(response)
        return response

    async def fetch(
        self, path: str, body: bytes, limit: int, *, headers: Mapping[str, str] = {}, query: Mapping[str, str] = {}
    ) -> bytes:
        """Send one request, and return the body of the answer as `read_at_most` does. Raises what `post` does, and `read_errors`."""
        response = await self.post(path, body, headers=headers, query=query)
        try:
            return await read_at_most(response, limit)
        finally:
            await close_response(response)

    async def _send(self, url: Any, body: bytes | _Pieces, headers: Mapping[str, str], query: Mapping[str, str]) -> Any:
        """Send the request. An answer of 400 and more is raised as RefusedByServer. url: of httpx."""
        request = self._client.build_request("POST", url, content=body, headers=headers, params=query or None)
        response = await self._client.send(request, stream=True)
        if response.status_code < 400:
            return response
        raise RefusedByServer(response.status_code, _parse(await _read_text(response)), response)

    async def aclose(self) -> None:
        """Close all connections; calls under way fail. The next `load` creates a new client."""
        client, self._client, self.is_ready = self._client, None, False
        if client is not None:
            await client.aclose()


class SdkClient(ProviderClient):
    """`ProviderClient` whose requests are made by Anthropic's official SDK.

    api_key: "" for a server that needs none; the SDK wants a word all the same. headers: additions to every request.
    """

    package = "anthropic"

    def __init__(self, api_key: str, base_url: str, headers: Mapping[str, str]) -> None:
        super().__init__(api_key, base_url)
        self._options = {"api_key": api_key or "none", "base_url": base_url}
        self._additions = headers
        self._sdk: Any = None
        """The SDK's package."""
        self._api: Any = None
        """Its client."""

    def _make_client(self, httpx: Any, **options: Any) -> Any:
        """Import the SDK and make its client. Return that of httpx below it. Blocking; it takes two seconds."""
        self._sdk = sdk = importlib.import_module(self.package)
        self.connection_errors = (*self.connection_errors, sdk.APIConnectionError)

        class BoundedConnection(sdk.DefaultAsyncHttpxClient):  # type: ignore[misc, name-defined]
            """Client of httpx whose refusals have a bound: the SDK would read one to its end."""

            async def send(self, request: Any, **options: Any) -> Any:
                response = await super().send(request, **options)
                if response.status_code < 400:
                    return response
                text = await _read_text(response)
                kept = {name: value for name, value in response.headers.items() if not name.startswith("content-")}
                return httpx.Response(response.status_code, headers=kept, text=text, request=request)

        client = BoundedConnection(**options)
        api = sdk.AsyncAnthropic(
            http_client=client, max_retries=0, default_headers=self._additions, open_telemetry=False, **self._options
        )
        # What the SDK tells of this machine with each call (system, processor, Python) is not the service's business, and how long a
        # call may take only `HttpModel` knows.
        told = [name for name in api.default_headers if name.lower().startswith("x-stainless-")]
        self._api = api.with_options(default_headers=dict.fromkeys((*told, "x-stainless-timeout"), sdk.Omit()))
        self._response_type = httpx.Response
        return client

    async def _send(self, url: Any, body: bytes | _Pieces, headers: Mapping[str, str], query: Mapping[str, str]) -> Any:
        """Let the SDK send the request. Its error for a status of 400 and more is raised as RefusedByServer."""
        options = {"headers": headers, "params": query}
        try:
            return await self._api.post(url, content=body, cast_to=self._response_type, stream=True, options=options)
        except self._sdk.APIStatusError as refusal:
            raise RefusedByServer(refusal.status_code, refusal.body, refusal.response) from refusal


async def _read_text(response: Any) -> str:
    """Return the body of a refusal, cut off where it is too long, and close it."""
    try:
        return (await read_at_most(response, _LARGEST_REFUSAL)).decode("utf-8", "replace")
    finally:
        await close_response(response)


async def read_at_most(response: Any, limit: int) -> bytes:
    """Return the body of a response of httpx; of a longer one as much as came until it was longer. The caller closes it."""
    data = bytearray()
    with trio.CancelScope() as scope:
        async for chunk in response.aiter_bytes():
            data += chunk
            if len(data) > limit:
                scope.cancel()
    return bytes(data)


async def close_response(response: Any) -> None:
    """Close a response of httpx, also when cancelled, so that its connection is free for the next call; for a second at most.

    Left open, it would hold its connection until the garbage collector comes.
    """
    if not response.is_closed:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + 1):
            await response.aclose()


def _parse(text: str) -> object:
    """Return parsed JSON, or the text if it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def is_local_address(url: str) -> bool:
    """Return True for the address of a server on one's own machine or network.

    A name is not looked up: localhost, a name without a dot (a container), and what ends like a name of a private network count.
    """
    try:
        host = (urlsplit(url).hostname or "").rstrip(".")
    except ValueError:
        return False
    if not host:
        return False
    try:
        return not ip_address(host.partition("%")[0]).is_global
    except ValueError:
        return "." not in host or host.endswith((".local", ".lan", ".internal", ".home.arpa", ".localhost"))
