"""HTTP to a chat service: a client that follows no redirect, and errors as `ServiceDown`.

A redirect is never followed, since the request that it asks for would carry the token to a host that somebody else may have chosen.

**Connections.** A pool of httpx2 goes through all of its connections for each request, at its beginning and at its end, and asks the
system about each idle one whether the other side has closed it. With the connections of an adapter that is a tenth of what a reply
costs (`./scripts/bench doors`). So here each connection is a transport of its own, which serves one request at a time. The
one that was used last is taken first, since it is the most likely to be open still. Only that one is asked about.
"""

from __future__ import annotations

import logging
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import cache, lru_cache
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import attrs
import httpx2
import trio

from pegasus import __version__
from pegasus.channels.service_contract import ServiceDown
from pegasus.loopback import is_loopback

TIMEOUT: Final = 30.0
"""Seconds for one call, unless it names another time."""
CONNECT_TIMEOUT: Final = 10.0
"""Seconds until a connection is there, encryption included."""
MOST_BYTES: Final = 32 << 20
"""Bytes of an answer. A service that sends more is not what it seems."""
MOST_CONNECTIONS: Final = 24
"""Connections to a service; further requests wait."""
LONGEST_REASON: Final = 200
"""Characters of a service's explanation that are shown and reported."""
LONGEST_WAIT: Final = 3600.0
"""Seconds of a rate limit that are obeyed; a longer one is tried again after them."""
GATEWAY_TIMEOUT: Final = 504
"""Status by which a server in front of the service says that it does not know what the service has done."""

_NEVER_SENT: Final = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.InvalidURL)
"""Errors before the first byte of a request."""

_AGENT: Final = f"pegasus/{__version__}"

# The library logs the address of each request, and for Telegram the token is part of that.
logging.getLogger("httpx2").setLevel(logging.WARNING)


@attrs.frozen(eq=False, repr=False)
class HttpReply:
    """The whole answer of a service: `HttpReply(200, headers, b"{}")`."""

    status_code: int
    """Below 500, and no redirect: the others are ServiceDown."""
    headers: Mapping[str, str]
    """Names in any case."""
    content: bytes
    """The body, decoded from what the service has compressed."""


class ServiceHttp:
    """Connections to a service. Only the transport of httpx2 is used, not its client.

    So nothing follows redirects, keeps cookies, or adds headers by itself, and a call costs less CPU (`./scripts/bench doors`).
    """

    def __init__(self, base_url: str, connect: Callable[[], httpx2.AsyncBaseTransport]) -> None:
        """Open nothing yet. connect: returns a transport, which serves one request at a time."""
        self._base_url = base_url.rstrip("/")
        self._connect = connect
        self._places = trio.Semaphore(MOST_CONNECTIONS)
        self._transports: list[httpx2.AsyncBaseTransport] = []
        self._idle: list[httpx2.AsyncBaseTransport] = []
        """Those that serve nothing, the one that was used last at the end."""

    async def aclose(self) -> None:
        """Close all connections, also when cancelled. A later request opens new ones.

        Shielded, because half-closed TLS connections would otherwise be left to the garbage collector. A
        connection that serves a request is closed, too, and the request fails.
        """
        transports, self._transports, self._idle = self._transports, [], []
        with trio.CancelScope(shield=True):
            for transport in transports:
                await transport.aclose()

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str] | None = None,
        auth: tuple[str, str] | None = None,
        timeout: float = TIMEOUT,
        **body: Any,
    ) -> AsyncIterator[httpx2.Response]:
        """Send a request, and give its answer to the block, the body still to be read.

        path: below the address of the service, or a whole address. auth: user and password. timeout: seconds without any byte. body:
        `json`, `content`, `data` or `files`, as httpx2 takes them. Raises what httpx2 raises.
        """
        url = path if path.startswith(("http://", "https://")) else self._base_url + path
        fields = {"user-agent": _AGENT, **(headers or {})}
        if auth is not None:
            fields["authorization"] = "Basic " + b64encode(":".join(auth).encode()).decode()
        limits = {"connect": CONNECT_TIMEOUT, "read": timeout, "write": timeout, "pool": None}
        request = httpx2.Request(method, _parse_address(url), headers=fields, extensions={"timeout": limits}, **body)
        # Waits here while all places are taken; the order is that of the calls. Cancelled, nothing was sent.
        async with self._places:
            transport = self._idle.pop() if self._idle else self._add_transport()
            try:
                response = await transport.handle_async_request(request)
                response.request = request
                try:
                    yield response
                finally:
                    await response.aclose()
            finally:
                # `aclose` may have run during the request. A transport that it has closed must not be used
                # again.
                if transport in self._transports:  # and not closed meanwhile
                    self._idle.append(transport)

    async def request(self, method: str, path: str, *, most_bytes: int = MOST_BYTES, **how: Any) -> HttpReply:
        """Return the whole answer, of any status below 500 but redirects. Raises ServiceDown for everything else.

        how: as `stream` takes it. The reason in ServiceDown has neither address nor headers, since these may hold the token.
        Cancelled, the request may have reached the service.
        """
        try:
            async with self.stream(method, path, **how) as response:
                body = bytearray()
                async for part in response.aiter_bytes():
                    body += part
                    if len(body) > most_bytes:
                        raise ServiceDown(f"an answer of more than {most_bytes:,} bytes")
        # The error itself is not chained: its text and its request show the address, which holds a token for some
        # services.
        except (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL) as error:
            raise ServiceDown(_explain(error), may_have_acted=not isinstance(error, _NEVER_SENT)) from None
        if response.status_code >= 500:
            is_unknown = response.status_code == GATEWAY_TIMEOUT
            reason = f"it answers with status {response.status_code}"
            raise ServiceDown(reason, may_have_acted=is_unknown, says_failed=True)
        if 300 <= response.status_code < 400:
            reason = f"it redirects (status {response.status_code}), which is not followed; check base_url"
            raise ServiceDown(reason, may_have_acted=False)
        return HttpReply(response.status_code, response.headers, bytes(body))

    def _add_transport(self) -> httpx2.AsyncBaseTransport:
        transport = self._connect()
        self._transports.append(transport)
        return transport


@lru_cache(maxsize=64)
def _parse_address(url: str) -> httpx2.URL:
    """Return an address parsed, which costs as much as the rest of a request. The methods of a service are few. Raises InvalidURL."""
    return httpx2.URL(url)


def open_service_http(base_url: str, transport: httpx2.AsyncBaseTransport | None = None) -> ServiceHttp:
    """Return connections to a service, none of which is opened before it is needed. transport: in place of the network, for tests.

    A proxy of the environment (`HTTPS_PROXY`, `NO_PROXY` …) is used.
    """
    if transport is not None:
        return ServiceHttp(base_url, lambda: transport)
    limits = httpx2.Limits(
        max_connections=2, max_keepalive_connections=2
    )  # the other one is for the host of the service's files
    proxy = _proxy_for(base_url)

    @cache
    def certificates() -> ssl.SSLContext:
        """Read the certificates of the system, some 20 ms, unless nothing is encrypted."""
        return httpx2.create_ssl_context(verify=not base_url.startswith("http://"))

    def connect() -> httpx2.AsyncBaseTransport:
        """Return a new connection; the system's certificates are read with the first one."""
        return httpx2.AsyncHTTPTransport(verify=certificates(), limits=limits, proxy=proxy)

    return ServiceHttp(base_url, connect)


def _proxy_for(base_url: str) -> str | None:
    """Return the proxy that the environment names for an address, None for none."""
    parts = urlsplit(base_url or "https://")
    if parts.hostname and (is_loopback(parts.hostname) or proxy_bypass(parts.hostname)):
        return None
    return getproxies().get(parts.scheme)


def wait_seconds(value: object, default: float) -> float:
    """Return the seconds that a service wants to be left alone, an hour at most: a wrong number must not silence the channel for days.

    default: for a value that is no number.
    """
    try:
        return min(LONGEST_WAIT, max(0.1, float(str(value))))
    except ValueError:
        return default


def _explain(error: Exception) -> str:
    """Return what has happened in a few words, without the address.

    The words appear in the log, in `status` and in reports to the agent.
    """
    if isinstance(error, httpx2.ConnectTimeout | httpx2.ConnectError):
        return "cannot connect"
    if isinstance(error, httpx2.TimeoutException):
        return "no answer in time"
    return f"the connection failed ({type(error).__name__})"
