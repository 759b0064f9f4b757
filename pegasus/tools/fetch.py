"""One HTTP request, with the redirects that follow from it: where it may go, what goes along, how much is read.

Every hop is resolved and checked anew (`pegasus.tools.addresses`) and connected to by the address that was checked, with the
name in Host and TLS. Proxies of the environment are not used: a proxy resolves names itself, past any check. Nothing is kept
between requests: no cookies, no connections.
"""

from __future__ import annotations

import base64
import importlib
from collections.abc import Mapping
from typing import Any, Final

import attrs
import trio

from pegasus import __version__
from pegasus.tools.addresses import AddressGuard
from pegasus.tools.base import ToolError
from pegasus.tools.inflate import Inflater

MAX_REDIRECTS: Final = 10
MAX_BODY: Final = 1 << 20
"""Bytes of a body, decompressed, that are read."""

_CONNECT: Final = 10.0  # seconds for one address; everything else is bounded by the deadline of the call
_PORTS: Final = {"http": 80, "https": 443}
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_FOR_ANYBODY: Final = frozenset({"accept", "accept-language", "user-agent"})
"""Headers that go along to another origin: whatever else the caller has set may be meant for the first one alone."""
_OURS: Final = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "accept-encoding", "upgrade", "te", "trailer"}
)


@attrs.frozen(eq=False)
class Fetched:
    """An answer. url: of the last hop. headers: names in lower case. body: decompressed; complete: whether that is all of it.

    note: what is to be said about it, or "".
    """

    url: str
    status: int
    reason: str
    headers: Mapping[str, str]
    body: bytes
    complete: bool
    note: str = ""


@attrs.frozen(eq=False)
class _Hop:
    method: str
    url: Any
    headers: Mapping[str, str]
    body: bytes | None


async def fetch(
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes | None,
    guard: AddressGuard,
    limit: int = MAX_BODY,
) -> Fetched:
    """The answer to a request, after at most `MAX_REDIRECTS` redirects. limit: bytes of its body that are read.

    Raises ToolError: an address that is no http(s) URL, that is refused, or that could not be reached.
    """
    # The one that the SDKs load: a second one, half imported in a thread, has made their calls fail meanwhile.
    httpx = await _library("httpx2")
    hop = _Hop(method, _address(httpx, url), _clean(headers), body)
    came_from = ""
    for _ in range(MAX_REDIRECTS + 1):
        try:
            answer = await _exchange(httpx, hop, guard, limit)
        except ToolError as error:
            raise ToolError(f"{came_from}{error}") from error
        if isinstance(answer, Fetched):
            return answer
        came_from = f"{_shown(hop.url)} redirects to {_shown(answer.url)}: "
        hop = answer
    raise ToolError(f"{url} redirects more than {MAX_REDIRECTS} times")


async def _library(name: str) -> Any:
    """A module that takes 100 ms to import: in a thread, at the first request."""
    return await trio.to_thread.run_sync(importlib.import_module, name)


def _address(httpx: Any, text: str) -> Any:
    try:
        url = httpx.URL(text.strip())
    except (httpx.InvalidURL, ValueError, TypeError) as error:
        raise ToolError(f"{text!r} is no address: {error}") from error
    if url.scheme not in _PORTS:
        raise ToolError(f"{text!r} is refused: only http:// and https:// addresses are fetched")
    if not url.raw_host:
        raise ToolError(f"{text!r} names no host")
    return url.copy_with(fragment=None)


def _clean(headers: Mapping[str, str]) -> dict[str, str]:
    kept = {}
    for name, value in headers.items():
        if (
            not name
            or not value.isprintable()
            or not name.isascii()
            or not name.isprintable()
            or ":" in name
            or " " in name
        ):
            raise ToolError(f"headers: {name!r} is no header with one line of text as its value")
        if name.lower() in _OURS:
            raise ToolError(f"headers: {name} is set by itself and cannot be chosen")
        kept[name.lower()] = value
    return {"user-agent": f"Pegasus/{__version__}", "accept": "*/*", **kept}


async def _exchange(httpx: Any, hop: _Hop, guard: AddressGuard, limit: int) -> Fetched | _Hop:
    """The answer of one hop, or the hop that it leads to."""
    port = hop.url.port or _PORTS[hop.url.scheme]
    addresses = await guard.addresses(hop.url.raw_host.decode("ascii"), port)
    trust = await trio.to_thread.run_sync(_trust, httpx)
    try:
        async with httpx.AsyncHTTPTransport(verify=trust, trust_env=False) as transport:
            response = await _first_that_answers(httpx, transport, hop, addresses)
            try:
                return _next_hop(httpx, hop, response) or await _read(httpx, hop, response, limit)
            finally:
                await response.aclose()
    except (httpx.HTTPError, httpx.StreamError, httpx.InvalidURL) as error:
        raise ToolError(f"{hop.method} {_shown(hop.url)} failed: {_why(error)}") from error


def _why(error: BaseException) -> str:
    """The first that says something: what TLS has to say is the cause of a cause."""
    cause: BaseException | None = error
    while cause is not None:
        if str(cause):
            return str(cause)
        cause = cause.__cause__ or cause.__context__
    return type(error).__name__


_trusted: list[Any] = []


def _trust(httpx: Any) -> Any:
    """The certificates that are trusted (SSL_CERT_FILE or SSL_CERT_DIR, else the system's), read once."""
    if not _trusted:
        _trusted.append(httpx.create_ssl_context())
    return _trusted[0]


async def _first_that_answers(httpx: Any, transport: Any, hop: _Hop, addresses: tuple[str, ...]) -> Any:
    """The response of the first address that can be connected to; only there is anything sent.

    The transport alone, without httpx's client: nothing then follows redirects, keeps cookies or adds headers by itself.
    """
    last: Exception | None = None
    for address in addresses:
        try:
            return await transport.handle_async_request(_request(httpx, hop, address))
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            last = error
    assert last is not None  # noqa: S101
    raise last


def _request(httpx: Any, hop: _Hop, address: str) -> Any:
    name = hop.url.raw_host.decode("ascii").rstrip(".")
    headers = {
        "host": hop.url.netloc.decode("ascii"),
        "accept-encoding": "gzip, deflate",
        "connection": "close",
        **hop.headers,
    }
    if hop.url.userinfo:
        password = f"{hop.url.username}:{hop.url.password}".encode()
        headers.setdefault("authorization", "Basic " + base64.b64encode(password).decode())
    return httpx.Request(
        hop.method,
        hop.url.copy_with(host=address),
        headers=headers,
        content=hop.body,
        extensions={"sni_hostname": name.strip("[]"), "timeout": {"connect": _CONNECT}},
    )


# ------------------------------------------------------------------ redirects


def _next_hop(httpx: Any, hop: _Hop, response: Any) -> _Hop | None:
    """Where an answer leads; None if it is the answer. A body is not sent on to another origin: such a redirect is the answer."""
    location = response.headers.get("location")
    if response.status_code not in _REDIRECTS or not location:
        return None
    try:
        url = _address(httpx, str(hop.url.join(location)))
    except (httpx.InvalidURL, ValueError) as error:
        raise ToolError(f"{_shown(hop.url)} redirects to {location!r}, which is no address: {error}") from error
    except ToolError as error:
        raise ToolError(f"{_shown(hop.url)} redirects: {error}") from error
    method, body, headers = hop.method, hop.body, dict(hop.headers)
    if method not in ("GET", "HEAD") and (
        response.status_code == 303 or (response.status_code < 303 and method == "POST")
    ):
        method, body = "GET", None
        headers = {name: value for name, value in headers.items() if not name.startswith("content-")}
    if not _same_origin(hop.url, url):
        if body is not None:
            return None
        headers = {name: value for name, value in headers.items() if name in _FOR_ANYBODY}
    return _Hop(method, url, headers, body)


def _same_origin(one: Any, other: Any) -> bool:
    """The same scheme, host and port; from http to https on the usual ports counts as staying."""
    ports = (one.port or _PORTS[one.scheme], other.port or _PORTS[other.scheme])
    same = one.scheme == other.scheme and ports[0] == ports[1]
    upgrade = (one.scheme, other.scheme, *ports) == ("http", "https", 80, 443)
    return bool(one.raw_host == other.raw_host and (same or upgrade))


def _shown(url: Any) -> str:
    """Without user name and password."""
    return str(url.copy_with(userinfo=b""))


# ------------------------------------------------------------------ the answer


async def _read(httpx: Any, hop: _Hop, response: Any, limit: int) -> Fetched:
    inflater = Inflater(response.headers.get("content-encoding", ""), limit)
    seen = 0
    try:
        async for data in response.aiter_raw():
            if response.is_closed:
                continue
            seen += len(data)
            inflater.add(data)
            if inflater.full or seen > limit:
                await response.aclose()  # and go on, so that the generators below end by themselves: with an error
    except (httpx.HTTPError, httpx.StreamError):
        if not response.is_closed or not (inflater.full or seen > limit):
            raise
    if not inflater.full and seen <= limit:
        inflater.end()
    headers: dict[str, str] = {}
    for name, value in response.headers.multi_items():
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return Fetched(
        _shown(hop.url),
        response.status_code,
        response.reason_phrase,
        headers,
        inflater.data,
        inflater.complete,
        inflater.problem,
    )
