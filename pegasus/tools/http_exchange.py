"""One hop of an HTTP request: connecting to a checked address, sending, following a redirect, reading the answer.

Loaded by the first request (see `pegasus.tools.http_client`), because importing `httpx2` is slow.
Only its transport is used, not its client: then nothing follows redirects, keeps cookies or adds
headers by itself.
"""

from __future__ import annotations

import base64
import ssl
from collections.abc import Mapping
from typing import Final

import attrs
import httpx2
import trio

from pegasus.tools.addresses import AddressGuard
from pegasus.tools.base import ToolError
from pegasus.tools.http_client import BodyReader, HttpAnswer

_CONNECT_TIMEOUT: Final = 10.0
"""Seconds for connecting to one address, so that the next one is tried before the deadline of the
call."""
_PORTS: Final = {"http": 80, "https": 443}
"""Allowed schemes with their usual ports."""
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
"""Status codes with a Location to go to."""
_FOR_EVERY_ORIGIN: Final = frozenset({"accept", "accept-language", "user-agent"})
"""Headers that are sent to another origin after a redirect. Any other may be a credential for the
first one."""

_FAILURES: Final = (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL)
"""Errors of the library that mean that there was no answer."""


@attrs.frozen(eq=False)
class Hop:
    """One request of a chain of redirects."""

    method: str
    """Method, in upper case."""
    url: httpx2.URL
    """Address, perhaps with user name and password."""
    headers: Mapping[str, str]
    """Headers of the model or the service, names in lower case."""
    body: bytes | None
    """Body to be sent; None for none."""

    @property
    def shown(self) -> str:
        """The address without user name and password."""
        return str(self.url.copy_with(userinfo=b""))


class CheckedTransport(httpx2.AsyncBaseTransport):
    """A transport that resolves the host itself and connects only to addresses that a guard permits.

    The library is given the checked address instead of the name, so it has nothing left to resolve.
    The name goes into the Host header, and into TLS, where the certificate is checked against it.
    """

    def __init__(self, guard: AddressGuard, tls: ssl.SSLContext) -> None:
        self._guard = guard
        """Decides which addresses may be connected to."""
        self._inner = httpx2.AsyncHTTPTransport(verify=tls, trust_env=False)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send the request to the first address of the host that can be connected to; only that one receives anything.

        Raises ToolError if no address may be reached, and httpx2's errors.
        """
        url = request.url
        name = url.raw_host.decode("ascii")
        failure: httpx2.TransportError | None = None
        for address in await self._guard.addresses(name, url.port or _PORTS[url.scheme]):
            # The stream of a body is made of bytes, so it can be read again for the next address.
            addressed = httpx2.Request(
                request.method,
                url.copy_with(host=address),
                headers=request.headers,  # with the Host header of the name
                stream=request.stream,
                extensions={"sni_hostname": name.rstrip(".").strip("[]"), "timeout": {"connect": _CONNECT_TIMEOUT}},
            )
            try:
                return await self._inner.handle_async_request(addressed)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                failure = error
        raise failure or httpx2.ConnectError(f"{name} has no address")

    async def aclose(self) -> None:
        """Close the connection."""
        await self._inner.aclose()


def system_trust() -> ssl.SSLContext:
    """Return the certificates that the system trusts. Reads files, some 20 ms, so it is called in a thread."""
    return httpx2.create_ssl_context()


def first_hop(method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Hop:
    """Return the request for an address as the model wrote it. Raises ToolError if that is not an http(s) URL."""
    return Hop(method, _parse_url(url), headers, body)


async def send(hop: Hop, guard: AddressGuard, tls: ssl.SSLContext, limit: int) -> HttpAnswer | Hop:
    """Send one request. Return its answer, or the next hop if it is a redirect that may be followed.

    limit: bytes of the body that are read. Raises ToolError. The connection is closed in any case,
    also on cancel.
    """
    try:
        async with CheckedTransport(guard, tls) as transport:
            response = await transport.handle_async_request(_request(hop))
            try:
                return _next_hop(hop, response) or await _read_answer(hop, response, limit)
            finally:
                await response.aclose()
    except _FAILURES as error:
        raise ToolError(f"{hop.method} {hop.shown} failed: {_explain(error)}") from error


def _request(hop: Hop) -> httpx2.Request:
    """Return the request of a hop.

    User name and password of the address become an Authorization header, as browsers do it.
    Compression is limited to what `BodyReader` can read.
    """
    headers = {
        "host": hop.url.netloc.decode("ascii"),
        "accept-encoding": "gzip, deflate",
        "connection": "close",
        **hop.headers,
    }
    if hop.url.userinfo:
        password = f"{hop.url.username}:{hop.url.password}".encode()
        headers.setdefault("authorization", "Basic " + base64.b64encode(password).decode())
    return httpx2.Request(hop.method, hop.url, headers=headers, content=hop.body)


def _parse_url(text: str) -> httpx2.URL:
    """Return an address that can be fetched, without its fragment, which is not sent.

    Raises ToolError for anything but http and https: other schemes reach files and other protocols.
    """
    try:
        url = httpx2.URL(text.strip())
    except (httpx2.InvalidURL, ValueError, TypeError) as error:
        raise ToolError(f"{text!r} is not an address: {error}") from error
    if url.scheme not in _PORTS:
        raise ToolError(f"{text!r} is refused: only http:// and https:// addresses are fetched")
    if not url.raw_host:
        raise ToolError(f"{text!r} names no host")
    return url.copy_with(fragment=None)


def _explain(error: BaseException) -> str:
    """Return the first message in the chain of causes: what TLS reports is the cause of a cause."""
    cause: BaseException | None = error
    while cause is not None:
        if str(cause):
            return str(cause)
        cause = cause.__cause__ or cause.__context__
    return type(error).__name__


# ------------------------------------------------------------------ redirects


def _next_hop(hop: Hop, response: httpx2.Response) -> Hop | None:
    """Return the request that a redirect asks for, or None if the response is the answer.

    Methods change as browsers change them (RFC 9110, 15.4). A body is never sent to another origin:
    that redirect is the answer, and the model can decide.
    """
    location = response.headers.get("location")
    if response.status_code not in _REDIRECTS or not location:
        return None
    try:
        url = _parse_url(str(hop.url.join(location)))
    except (httpx2.InvalidURL, ValueError) as error:
        raise ToolError(f"{hop.shown} redirects to {location!r}, which is not an address: {error}") from error
    except ToolError as error:
        raise ToolError(f"{hop.shown} redirects: {error}") from error
    method, body, headers = hop.method, hop.body, dict(hop.headers)
    was_post = response.status_code < 303 and method == "POST"
    if method not in ("GET", "HEAD") and (response.status_code == 303 or was_post):
        method, body = "GET", None
        headers = {name: value for name, value in headers.items() if not name.startswith("content-")}
    if not _is_same_origin(hop.url, url):
        if body is not None:
            return None
        headers = {name: value for name, value in headers.items() if name in _FOR_EVERY_ORIGIN}
    return Hop(method, url, headers, body)


def _is_same_origin(origin: httpx2.URL, target: httpx2.URL) -> bool:
    """Return whether scheme, host and port are the same. From http to https on the usual ports counts as the same."""
    ports = (origin.port or _PORTS[origin.scheme], target.port or _PORTS[target.scheme])
    is_equal = origin.scheme == target.scheme and ports[0] == ports[1]
    is_upgrade = (origin.scheme, target.scheme, *ports) == ("http", "https", 80, 443)
    return origin.raw_host == target.raw_host and (is_equal or is_upgrade)


# ------------------------------------------------------------------ the answer


async def _read_answer(hop: Hop, response: httpx2.Response, limit: int) -> HttpAnswer:
    """Read the body and return the answer."""
    reader = BodyReader(response.headers.get("content-encoding", ""), limit)
    await _read_body(response, reader)
    headers: dict[str, str] = {}
    for name, value in response.headers.multi_items():
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return HttpAnswer(
        hop.shown,
        response.status_code,
        response.reason_phrase,
        headers,
        reader.data,
        reader.complete,
        reader.note,
    )


async def _read_body(response: httpx2.Response, reader: BodyReader) -> None:
    """Feed the body to the reader until it ends or the reader is full.

    A full reader closes the response and the loop goes on, instead of leaving it by `break`. The
    library reads through several nested generators, and a `break` would leave the inner ones to the
    garbage collector. After closing they end by themselves, with an error that is then expected.
    The checkpoint lets other tasks run between parts: thousands of small chunks can arrive in one
    read, and the library hands them out without waiting.
    """
    try:
        async for part in response.aiter_raw():
            if not response.is_closed and not reader.add(part):
                await response.aclose()
            await trio.lowlevel.checkpoint()
    except (httpx2.HTTPError, httpx2.StreamError):
        if not reader.is_full:
            raise
    if not reader.is_full:
        reader.end()
