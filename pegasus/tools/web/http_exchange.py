"""An HTTP request: connecting to checked addresses, sending, following redirects, reading the answer.

Loaded by the first request (see `pegasus.tools.web.http_client`), because importing `httpx2` is slow.
Only the transport of that library is used, not its client: then nothing follows redirects, keeps cookies or adds
headers by itself.

Four rules hold for each request, whoever asks for it:

* A connection goes to an address that was checked a moment ago, never to a name. So a name that resolves to something
  else the second time gains nothing.
* Each redirect is a request of its own, with its own check. Headers that may be credentials stay with their origin, and
  so does a body.
* Everything that a server sends is bounded: bytes, parts, redirects, and the seconds of the body. Beyond a bound the
  answer is incomplete, which is not an error.
* Errors become ToolError with the address that has failed. User name and password of an address are in none of them.
"""

from __future__ import annotations

import base64
import ssl
import zlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import cache, partial
from typing import Final

import attrs
import httpx2
import trio

from pegasus import __version__
from pegasus.tools.base import ToolError
from pegasus.tools.web.addresses import AddressGuard
from pegasus.tools.web.http_client import MAX_PARTS, FetchLimits, HttpAnswer, Sink

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

_SET_BY_THE_CLIENT: Final = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "accept-encoding", "upgrade", "te", "trailer"}
)
"""Headers that a caller cannot set, because they must agree with how the request is sent."""

_FAILURES: Final = (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL)
"""Errors of the library that mean that there was no answer."""


@attrs.frozen(eq=False, repr=False)
class Hop:
    """One request of a chain of redirects.

    Example::

        hop = Hop("GET", httpx2.URL("https://me:secret@example.org/a"), {"accept": "*/*"}, None)
        hop.shown   # "https://example.org/a"
    """

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


@cache
def system_trust() -> ssl.SSLContext:
    """Return the certificates that the system trusts. Reads files, some 20 ms, so it is called in a thread."""
    return httpx2.create_ssl_context()


async def follow(
    guard: AddressGuard,
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes | None,
    limits: FetchLimits,
    sink: Sink | None,
) -> HttpAnswer:
    """Send a request and those that its redirects ask for, and return the last answer; see `http_client.fetch`."""
    hop, redirected = Hop(method, _parse_url(url), _check_headers(headers), body), ""
    tls = await trio.to_thread.run_sync(system_trust)
    for _ in range(limits.redirects + 1):
        try:
            result = await _send(hop, guard, tls, limits, sink)
        except ToolError as error:
            raise ToolError(f"{redirected}{error}") from error
        if isinstance(result, HttpAnswer):
            return result
        # An error further on names the way to it, since the model knows only the first address.
        redirected = f"{hop.shown} redirects to {result.shown}: "
        hop = result
    raise ToolError(f"{url} redirects more than {limits.redirects} times")


async def _send(
    hop: Hop, guard: AddressGuard, tls: ssl.SSLContext, limits: FetchLimits, sink: Sink | None
) -> HttpAnswer | Hop:
    """Send one request. Return its answer, or the next hop if it is a redirect that may be followed.

    Raises ToolError. The connection is closed in any case, also on cancel.
    """
    try:
        async with httpx2.AsyncHTTPTransport(verify=tls, trust_env=False) as transport:
            response = await _connect(transport, hop, guard)
            try:
                if limits.redirects and (next_hop := _next_hop(hop, response)) is not None:
                    return next_hop
                return await _read_answer(hop, response, limits, sink if response.status_code == 200 else None)
            finally:
                await response.aclose()
    except _FAILURES as error:
        raise ToolError(f"{hop.method} {hop.shown} failed: {_explain(error)}") from error


async def _connect(transport: httpx2.AsyncHTTPTransport, hop: Hop, guard: AddressGuard) -> httpx2.Response:
    """Send the request to the first address of the host that can be connected to; only that one receives anything.

    The library is given the checked address instead of the name, so it has nothing left to resolve. The name
    goes into the Host header, and into TLS, where the certificate is checked against it. Raises ToolError if no
    address may be reached, and httpx2's errors.
    """
    name = hop.url.raw_host.decode("ascii")
    failure: Exception = httpx2.ConnectError(f"{name} has no address")
    for address in await guard.addresses(name, _port(hop.url)):
        # A request for each attempt: its address is another one, the Host header and the name for TLS stay.
        request = httpx2.Request(
            hop.method,
            hop.url.copy_with(host=address),
            headers=_headers(hop),
            content=hop.body,
            extensions={"sni_hostname": name.rstrip(".").strip("[]"), "timeout": {"connect": _CONNECT_TIMEOUT}},
        )
        try:
            return await transport.handle_async_request(request)
        # Only a connection that was not made is tried at the next address: what was sent once may have had its effect.
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            failure = error
    raise failure


def _headers(hop: Hop) -> dict[str, str]:
    """Return the headers of a hop.

    User name and password of the address become an Authorization header, as browsers do it.
    Compression is limited to what `_decompress` can read.
    """
    headers = {
        "host": hop.url.netloc.decode("ascii"),
        "accept-encoding": "gzip, deflate",
        "connection": "close",
        **hop.headers,
    }
    if hop.url.userinfo:
        password = f"{hop.url.username}:{hop.url.password}".encode()
        # A header that the model has set itself wins.
        headers.setdefault("authorization", "Basic " + base64.b64encode(password).decode())
    return headers


def _check_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers with lower-case names and our defaults. Raises ToolError for any that could change the request itself."""
    checked = {"user-agent": f"Pegasus/{__version__}", "accept": "*/*"}
    for name, value in headers.items():
        is_name = bool(name) and name.isascii() and name.isprintable() and not {":", " "} & set(name)
        if not is_name or not value.isprintable():
            raise ToolError(f"headers: {name!r} is not a header with one line of text as its value")
        if name.lower() in _SET_BY_THE_CLIENT:
            raise ToolError(f"headers: {name} is set by itself and cannot be chosen")
        checked[name.lower()] = value
    return checked


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


def _port(url: httpx2.URL) -> int:
    """Return the port of an address, also where it is not written."""
    return url.port or _PORTS[url.scheme]


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
    # 301 and 302 make a GET of a POST, as all browsers do. 307 and 308 keep the method.
    was_post = response.status_code < 303 and method == "POST"
    if method not in ("GET", "HEAD") and (response.status_code == 303 or was_post):
        method, body = "GET", None
        headers = {name: value for name, value in headers.items() if not name.startswith("content-")}
    if not _is_same_origin(hop.url, url):
        # Nobody has agreed to send it there.
        if body is not None:
            return None
        headers = {name: value for name, value in headers.items() if name in _FOR_EVERY_ORIGIN}
    return Hop(method, url, headers, body)


def _is_same_origin(origin: httpx2.URL, target: httpx2.URL) -> bool:
    """Return whether scheme, host and port are the same. From http to https on the usual ports counts as the same."""
    places = (origin.scheme, _port(origin)), (target.scheme, _port(target))
    is_upgrade = places == (("http", 80), ("https", 443))
    return origin.raw_host == target.raw_host and (places[0] == places[1] or is_upgrade)


# ------------------------------------------------------------------ the answer

_GZIP_OR_ZLIB: Final = 47
"""Window bits with which zlib reads the header to find out."""
_RAW_DEFLATE: Final = -15
"""Window bits that stand for deflate without a header, which some servers send."""
_PIECE: Final = 1 << 12
"""Bytes that are decompressed in one step. Few, since zlib copies everything behind the end of a gzip file, and a body may consist of
thousands of tiny ones."""
_LARGE_PIECE: Final = 1 << 18
"""Bytes that one step may give: a few kilobytes may unpack to gigabytes."""
_SMALL_PART: Final = 256
"""Bytes that each part of a long body has on average, at least."""


async def _read_answer(hop: Hop, response: httpx2.Response, limits: FetchLimits, sink: Sink | None) -> HttpAnswer:
    """Read the body and return the answer. sink: takes the body; None: it is kept in the answer.

    When enough is read, the response is closed and the loop goes on, instead of leaving it by `break`. The
    library reads through several nested generators, and a `break` would leave the inner ones to the
    garbage collector. After closing they end by themselves, with an error that is then expected.
    The checkpoint lets other tasks run between parts: thousands of small chunks can arrive in one
    read, and the library hands them out without waiting.
    """
    answer, kept = _answer_without_body(hop, response), bytearray()
    encoding = response.headers.get("content-encoding", "")
    names = [name for part in encoding.lower().split(",") if (name := part.strip()) not in ("", "identity")]
    # Several layers are refused, too, since each multiplies what a byte may become.
    if names not in ([], ["gzip"], ["x-gzip"], ["deflate"]):
        return attrs.evolve(answer, note=f"the body is compressed in a way that is not read: {encoding}")

    async def keep(_: HttpAnswer, piece: bytes) -> None:
        """Take the body of an answer that has it."""
        kept.extend(piece)

    body, failure = _Body(partial(sink or keep, answer), limits.max_body, "".join(names)), None
    with trio.move_on_after(limits.seconds) as scope:
        try:
            # As the server sends it: the library would unpack without a bound.
            async for part in response.aiter_raw():
                if failure is not None or body.is_over:
                    continue
                try:
                    await body.take(part)
                    await trio.lowlevel.checkpoint()
                except (
                    BaseException
                ) as error:  # raised below: whoever leaves the loop leaves the library's generators open
                    failure = error
                if failure is not None or body.is_over:
                    with trio.CancelScope(shield=True):
                        await response.aclose()
        except (httpx2.HTTPError, httpx2.StreamError):
            if failure is None and not body.is_over:
                raise
        if failure is not None:
            raise failure
    note = body.note_at_end
    if scope.cancelled_caught:
        note = f"the server is slow: only what it sent in {limits.seconds:g} s is here"
    elif sink is not None and body.is_too_large:
        note = f"it has more than {limits.max_body:,} bytes"
    return attrs.evolve(answer, body=bytes(kept), complete=not note and not body.is_too_large, note=note)


def _answer_without_body(hop: Hop, response: httpx2.Response) -> HttpAnswer:
    """Return the answer as far as its headers tell it."""
    headers: dict[str, str] = {}
    for name, value in response.headers.multi_items():
        # RFC 9110, section 5.3: repeated headers mean the same as one with all values, except for cookies, which nobody
        # here keeps.
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return HttpAnswer(hop.shown, response.status_code, response.reason_phrase, headers, b"", complete=False)


class _Body:
    """A body that is counted, decompressed and handed on, part by part."""

    def __init__(self, sink: Callable[[bytes], Awaitable[None]], limit: int, encoding: str) -> None:
        """sink: takes the decompressed bytes, at most `limit`. encoding: "gzip", "x-gzip" or "deflate"; "" for none."""
        self.is_too_large = False
        """True if there is more than `limit`."""
        self._note = ""
        """Reason not to read on; "" while there is none."""
        self._sink, self._limit = sink, limit
        self._is_packed = bool(encoding)
        self._unpack = zlib.decompressobj(_GZIP_OR_ZLIB)
        self._may_be_raw = encoding == "deflate"
        self._is_padding = False
        """True if the rest stands behind a complete gzip file and is none itself."""
        self._has_whole_file = False
        self._tried = b""
        """Bytes that have given nothing yet, and may be deflate without a header."""
        self._size = self._parts = self._received = 0

    @property
    def is_over(self) -> bool:
        """True if nothing more is to be read."""
        return self.is_too_large or bool(self._note)

    @property
    def note_at_end(self) -> str:
        """Problem of a body that has ended here, "" if there is none."""
        # Of a body without compression the library itself notices that bytes are missing.
        is_cut = self._is_packed and self._received and not self._unpack.eof and not self._is_padding
        return self._note or ("the compressed body ends too early" if is_cut and not self.is_too_large else "")

    async def take(self, part: bytes) -> None:
        """Hand a part on, decompressed. Raises what the sink raises."""
        self._parts, self._received = self._parts + 1, self._received + len(part)
        if self._parts > MAX_PARTS and self._received < self._parts * _SMALL_PART:
            self._note = "the server sends the body in too many small parts"
            return
        for piece in self._unpacked(part) if self._is_packed else [part]:
            self._size += len(piece)
            self.is_too_large = self._size > self._limit
            await self._sink(piece[: len(piece) - max(0, self._size - self._limit)])
            if self.is_too_large:
                return

    def _unpacked(self, data: bytes) -> Iterator[bytes]:
        """Yield what a part unpacks to, in pieces."""
        at, unpacked = 0, b""
        # A step that has given all that it may can have more to give, also without further bytes.
        while (at < len(data) or (len(unpacked) == _LARGE_PIECE and not self._unpack.eof)) and not self._is_padding:
            if self._unpack.eof:  # gzip files may follow each other
                self._unpack, self._has_whole_file = zlib.decompressobj(_GZIP_OR_ZLIB), True
            piece = data[at : at + _PIECE]
            try:
                unpacked = self._unpack.decompress(piece, _LARGE_PIECE)
            except zlib.error as error:
                if self._may_be_raw and not self._size:
                    self._unpack, self._may_be_raw = zlib.decompressobj(_RAW_DEFLATE), False
                    data, at = self._tried + data, 0
                    continue
                self._is_padding = self._has_whole_file
                self._note = "" if self._is_padding else f"the compressed body is damaged: {error}"
                return
            # At the end of a file both may hold what is behind it.
            at += len(piece) - len(self._unpack.unused_data if self._unpack.eof else self._unpack.unconsumed_tail)
            if unpacked:
                yield unpacked
        if self._may_be_raw and not self._size:
            self._tried += data
            # What would be mistaken for a header is found out soon. Blocks without content may follow for ever.
            self._may_be_raw = len(self._tried) <= _PIECE
