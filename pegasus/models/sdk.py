"""HTTP clients of the official SDKs, created at their first use.

Only `post()` of an SDK's client is used, with a body that is JSON already. It keeps what the SDKs are good for: authentication,
platform headers, connection pool, error types. The typed `create()` would walk every message in Python, and typed streams would build
a model object for every event; neither understands the servers that only roughly speak the format.

Retries are not left to the SDK: `HttpModel` knows the deadline of the call, and repeats broken answers with the same counter.

    sdk = anthropic_client(api_key, base_url)  # nothing is imported yet
    connection = await sdk.get()
    response = await connection.post("/v1/messages", body)
    try:
        data = await response.aread()
    finally:
        await response.aclose()

Importing an SDK takes one to three seconds of CPU. So it happens in a thread, either soon after the daemon is ready (`warm_up` of the
service) or at the first call, which then waits for it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any, Final

import trio

from pegasus.models.base import ModelError

CONNECT_TIMEOUT: Final = 10.0
"""Seconds for TCP and TLS. Everything after that is bounded by the deadline of the call."""
_KEEP_ALIVE: Final = 60.0
"""Seconds that an idle connection is kept, so that a person's pauses do not cost a TLS handshake each."""


class ProviderConnection:
    """Ready client of one provider. It hides which SDK it is."""

    def __init__(self, module: Any, client: Any, secrets: tuple[str, ...]) -> None:
        httpx: Any = importlib.import_module("httpx2")
        self._client = client
        self._response_type = httpx.Response
        self._stream_type = module.AsyncStream
        self.secrets = secrets
        """Strings that must not appear in any message."""
        self.base_url = str(client.base_url)
        self.status_errors: type[Any] = module.APIStatusError
        """Raised for a response with an error status."""
        self.connection_errors: tuple[type[BaseException], ...] = (module.APIError, httpx.HTTPError, httpx.InvalidURL)
        """Raised when there is no response at all."""
        self.unreachable_errors: tuple[type[BaseException], ...] = (httpx.ConnectError, httpx.ConnectTimeout)
        """Causes of connection errors that mean: nobody answers at this address."""
        self.read_errors: tuple[type[BaseException], ...] = (httpx.HTTPError, httpx.StreamError)
        """Raised while the body of a response is read."""

    async def post(self, path: str, body: bytes) -> Any:
        """Send one request; return the httpx response with its body unread. The caller closes it.

        Raises one of `status_errors` or `connection_errors`. On cancellation the connection is closed.
        """
        return await self._client.post(
            path,
            cast_to=self._response_type,
            content=body,
            options={"max_retries": 0},
            stream=True,
            stream_cls=self._stream_type,
        )

    async def aclose(self) -> None:
        """Close all connections; calls under way fail."""
        await self._client.close()


class SdkClient:
    """An `ProviderConnection` that is created at its first use. All models of a provider share one.

    build: blocking; runs in a thread, at most once at a time. If it fails, the next `get` tries again.
    """

    def __init__(self, package: str, build: Callable[[], ProviderConnection]) -> None:
        self._package = package
        self._build = build
        self._lock = trio.Lock()
        self._client: ProviderConnection | None = None

    async def get(self) -> ProviderConnection:
        """Return the client; wait while the SDK is being imported. Raises ModelError if it cannot be used."""
        if self._client is None:
            async with self._lock:
                if self._client is None:
                    self._client = await self._load()
        return self._client

    async def _load(self) -> ProviderConnection:
        try:
            return await trio.to_thread.run_sync(self._build, abandon_on_cancel=True)
        except Exception as error:
            raise ModelError(f"the package {self._package} cannot be used: {error}", kind="request") from error

    async def aclose(self) -> None:
        """Close all connections. The next `get` creates a new client."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()


def load_client(
    package: str, client_class: str, options: Mapping[str, object], secrets: tuple[str, ...]
) -> ProviderConnection:
    """Import an SDK and return its client. Blocking; the import is the only place that loads a heavy package."""
    module: Any = importlib.import_module(package)
    httpx: Any = importlib.import_module("httpx2")
    timeout = httpx.Timeout(None, connect=CONNECT_TIMEOUT)
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=_KEEP_ALIVE)
    http_client = module.DefaultAsyncHttpxClient(timeout=timeout, limits=limits)
    client = getattr(module, client_class)(timeout=timeout, http_client=http_client, **options)
    return ProviderConnection(module, client, secrets)
