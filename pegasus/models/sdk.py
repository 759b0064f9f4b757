"""The official SDKs, imported when first wanted, in a thread; only their lower-level `post()` is used.

Their typed `create()` walks every message in Python, and their typed streams build a model for every event; `post()`
with ready bytes keeps what they are good for: authentication, platform headers, retries, connection pool, error types.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any

import trio

from pegasus.models.base import ModelError
from pegasus.observe import get_logger

_log = get_logger("models")

_CONNECT = 10.0  # seconds for TCP and TLS; everything after that is bounded by the deadline of the call
_KEEP_ALIVE = 60.0  # seconds an idle connection is kept: a person's pauses should not cost a TLS handshake each


REFUSALS: ContextVar[list[int]] = ContextVar("REFUSALS")
"""Error statuses that the call under way was answered with; the SDK repeats such a request without a word."""


class SdkHandle:
    """A client of one provider, ready. secrets: what must not be in any message."""

    def __init__(self, module: Any, client: Any, secrets: tuple[str, ...]) -> None:
        httpx = importlib.import_module("httpx2")
        self._client = client
        self._response = httpx.Response
        self._stream = module.AsyncStream
        self._options = _options(module)
        self.secrets = secrets
        self.status_errors: type[Any] = module.APIStatusError
        self.connection_errors: tuple[type[BaseException], ...] = (module.APIError, httpx.HTTPError, httpx.InvalidURL)
        self.read_errors: tuple[type[BaseException], ...] = (httpx.HTTPError, httpx.StreamError)

    async def post(self, path: str, body: bytes, *, max_retries: int) -> Any:
        """The response of the last attempt, its body unread. Raises one of status_errors, connection_errors."""
        retries = max(max_retries, 0)
        if self._options is not None:
            options = self._options.model_copy(update={"url": path, "content": body, "max_retries": retries})
            return await self._client.request(self._response, options, stream=True, stream_cls=self._stream)
        return await self._client.post(
            path,
            cast_to=self._response,
            content=body,
            options={"max_retries": retries},
            stream=True,
            stream_cls=self._stream,
        )

    async def aclose(self) -> None:
        await self._client.close()


def _options(module: Any) -> Any:
    """What an SDK's `post` makes of its arguments, anew for every call and at some cost; None where it is built otherwise."""
    try:
        models = importlib.import_module(f"{module.__name__}._models")
        return models.FinalRequestOptions.construct(method="post", url="")
    except (ImportError, AttributeError):
        return None


class Sdk:
    """An SDK client that comes into being at its first use. build: blocking, runs in a thread, at most once at a time."""

    def __init__(self, package: str, build: Callable[[], SdkHandle]) -> None:
        self._package = package
        self._build = build
        self._lock = trio.Lock()
        self._handle: SdkHandle | None = None

    async def get(self) -> SdkHandle:
        """The client; waits for the import if that is under way. Raises ModelError if the SDK cannot be used."""
        if self._handle is None:
            async with self._lock:
                if self._handle is None:
                    self._handle = await self._load()
        return self._handle

    async def _load(self) -> SdkHandle:
        try:
            return await trio.to_thread.run_sync(self._build, abandon_on_cancel=True)
        except Exception as error:
            raise ModelError(f"the package {self._package} cannot be used: {error}", kind="request") from error

    async def aclose(self) -> None:
        """Close all connections. The next get() makes a new client."""
        handle, self._handle = self._handle, None
        if handle is not None:
            await handle.aclose()


def load(package: str, client_class: str, options: Mapping[str, object], secrets: tuple[str, ...]) -> SdkHandle:
    """Import an SDK and make its client. Blocking: 0.5 to 3 seconds at the first time."""
    module: Any = importlib.import_module(package)
    httpx: Any = importlib.import_module("httpx2")
    timeout = httpx.Timeout(None, connect=_CONNECT)
    http_client = module.DefaultAsyncHttpxClient(
        timeout=timeout,
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=_KEEP_ALIVE),
        event_hooks={"response": [_look_at]},
    )
    importlib.import_module("pegasus.models.network").use_one_send(http_client)
    client = getattr(module, client_class)(timeout=timeout, http_client=http_client, **options)
    importlib.import_module("pegasus.models.heads").reuse_heads(client, http_client)
    return SdkHandle(module, client, secrets)


async def _look_at(response: Any) -> None:
    """Log a refusal, since the SDK retries in silence; and keep it from waiting longer than the call may last.

    `x-should-retry` is the header by which a server tells both SDKs whether to retry.
    """
    if response.status_code < 400:
        return
    REFUSALS.get([]).append(response.status_code)
    _log.warning("the provider answered with an error", host=response.url.host, status=response.status_code)
    try:
        wait = float(response.headers.get("retry-after", ""))
    except ValueError:
        return
    if wait >= trio.current_effective_deadline() - trio.current_time():
        response.headers["x-should-retry"] = "false"
