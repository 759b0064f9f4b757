"""The HTTP client of the tools: one request, the redirects that follow, and a bounded answer.

All tools that speak HTTP use `HttpClient`, so the rules of the network hold in one place:

* Every hop is resolved and checked by an `AddressGuard`, and connected to by the checked address
  (`http_exchange`).
* Redirects are followed here and not by the library, because each one is a new request to a place
  that a stranger chose.
* At most `MAX_BODY` bytes are kept, after decompression: a small compressed body can stand for
  gigabytes. At most `MAX_PARTS` parts are accepted, because a body in chunks of one byte costs a
  thousand times more work per byte than a normal one.
* Nothing is kept between requests: no cookies, no connections. Proxies of the environment are not
  used, since a proxy resolves names itself, past the check.

This module is light. The library `httpx2` takes 100 ms to import, so it stands behind
`http_exchange`, which is loaded in a thread by the first request. The SDKs of the models use the
same library. Loading another one for the tools has made calls of the SDKs fail while it was half
imported in a thread.
"""

from __future__ import annotations

import importlib
import ssl
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

import attrs
import trio

from pegasus import __version__
from pegasus.tools.addresses import AddressGuard
from pegasus.tools.base import ToolError

if TYPE_CHECKING:
    from pegasus.tools.http_exchange import Hop

MAX_REDIRECTS: Final = 10
"""Redirects of one request. Browsers allow 20; more than a few is a circle."""
MAX_BODY: Final = 1 << 20
"""Bytes of a body, decompressed, that are read."""
MAX_PARTS: Final = 20_000
"""Parts (network reads or chunks) of one body. A normal server needs under a hundred for
`MAX_BODY`, one that sends line by line some thousands. Each part costs about 30 microseconds, so
the bound is a little more than half a second of work."""

_SET_BY_THE_CLIENT: Final = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "accept-encoding", "upgrade", "te", "trailer"}
)
"""Headers that a caller cannot set, because they must agree with how the request is sent."""


@attrs.frozen(eq=False)
class HttpAnswer:
    """The answer to a request, after all redirects."""

    url: str
    """The address of the last hop, without user name and password."""
    status: int
    """HTTP status."""
    reason: str
    """Text of the status line."""
    headers: Mapping[str, str]
    """Headers with lower-case names; values of repeated ones are joined by a comma."""
    body: bytes
    """The body, decompressed, or as much of it as was read."""
    complete: bool
    """True if `body` is all of it."""
    note: str = ""
    """A remark about the body: why it is incomplete or could not be decompressed."""


class HttpClient:
    """Sends requests to addresses that its guard permits.

        client = HttpClient(AddressGuard())
        answer = await client.fetch("GET", "https://example.org/")

    A client holds no connections, so it needs no closing, and one client can serve any number of
    requests at once.
    """

    def __init__(self, guard: AddressGuard, tls: ssl.SSLContext | None = None) -> None:
        """tls: trusted certificates, instead of those of the system (SSL_CERT_FILE and SSL_CERT_DIR are honoured)."""
        self._guard = guard
        self._tls = tls

    async def fetch(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        limit: int = MAX_BODY,
    ) -> HttpAnswer:
        """Send a request and return the answer, after at most `MAX_REDIRECTS` redirects.

        limit: bytes of the body that are read; a longer body is cut, which is not an error. Every
        HTTP status is an answer. Raises ToolError for a URL that is not http(s), an address that is
        refused, and a failed connection. There is no timeout except for connecting (10 s for one
        address): the deadline of the call ends the rest.
        """
        exchange = cast("Any", await trio.to_thread.run_sync(importlib.import_module, "pegasus.tools.http_exchange"))
        hop: Hop = exchange.first_hop(method, url, _check_headers(headers or {}), body)
        if self._tls is None:
            self._tls = await trio.to_thread.run_sync(exchange.system_trust)
        redirected = ""
        for _ in range(MAX_REDIRECTS + 1):
            try:
                result: HttpAnswer | Hop = await exchange.send(hop, self._guard, self._tls, limit)
            except ToolError as error:
                raise ToolError(f"{redirected}{error}") from error
            if isinstance(result, HttpAnswer):
                return result
            redirected = f"{hop.shown} redirects to {result.shown}: "
            hop = result
        raise ToolError(f"{url} redirects more than {MAX_REDIRECTS} times")


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


# ------------------------------------------------------------------ bodies

_GZIP_OR_ZLIB: Final = 47  # window bits with which zlib reads the header to find out
_RAW_DEFLATE: Final = -15
"""Window size of zlib that stands for deflate without a header, which some servers send."""


class BodyReader:
    """Takes the raw parts of a body, decompresses them, and keeps at most `limit` bytes.

    For example:

        reader = BodyReader("gzip", limit=1 << 20)
        wanted = all(reader.add(part) for part in parts)
        if wanted:
            reader.end()
        reader.data, reader.complete, reader.note
    """

    def __init__(self, encoding: str, limit: int) -> None:
        """encoding: the header Content-Encoding. limit: bytes of the decompressed body, and of the compressed one."""
        names = [name for part in encoding.lower().split(",") if (name := part.strip()) not in ("", "identity")]
        is_zipped = names in (["gzip"], ["x-gzip"], ["deflate"])
        self._limit = limit
        self._kept = bytearray()
        self._decompressor: Any = zlib.decompressobj(_GZIP_OR_ZLIB) if is_zipped else None
        self._may_be_raw = names == ["deflate"]  # some servers omit the zlib header that the standard asks for
        self._members = 1 if is_zipped else 0  # gzip files may follow each other
        self._received = 0
        self._parts = 0
        self._ended = False
        self._ignores_rest = False
        self._is_cut = False
        self.note = f"the body is compressed in a way that is not read: {encoding}" if names and not is_zipped else ""
        """Why the body could not be read as a whole; "" if nothing is wrong."""

    @property
    def data(self) -> bytes:
        """The decompressed body so far."""
        return bytes(self._kept)

    @property
    def is_full(self) -> bool:
        """True if further parts would not be kept, so that reading can stop."""
        return self._is_cut or bool(self.note) or self._received > self._limit

    @property
    def complete(self) -> bool:
        """True if the data are the whole body."""
        return self._ended and not self._is_cut and not self.note

    def add(self, part: bytes) -> bool:
        """Take the next part. Return False if no further parts are wanted."""
        self._received += len(part)
        self._parts += 1
        if self._parts > MAX_PARTS:
            self.note = self.note or "the server sends the body in too many small parts"
        if self._decompressor is None:
            if not self.note:
                self._keep(part)
            return not self.is_full
        while part and not self._ignores_rest and not self._is_cut and not self.note:
            part = self._decompress(part)
        return not self.is_full

    def end(self) -> None:
        """Take the end of the body."""
        self._ended = True
        unfinished = self._decompressor is not None and self._received and not self._decompressor.eof
        if unfinished and not self.is_full and not self._ignores_rest:
            self.note = "the compressed body ends too early"

    def _decompress(self, part: bytes) -> bytes:
        """Decompress as much as there is room for, and return the rest of the part."""
        if self._decompressor.eof:
            self._decompressor = zlib.decompressobj(_GZIP_OR_ZLIB)
            self._members += 1
        try:
            found = self._decompressor.decompress(part, self._limit - len(self._kept) + 1)
        except zlib.error as error:
            if self._may_be_raw and not self._kept:
                self._may_be_raw = False
                self._decompressor = zlib.decompressobj(_RAW_DEFLATE)
                return part
            if self._members == 1:
                self.note = f"the compressed body is damaged: {error}"
            self._ignores_rest = True  # bytes behind a complete file that are not another one are padding
            return b""
        self._keep(found)
        rest: bytes = self._decompressor.unused_data if self._decompressor.eof else self._decompressor.unconsumed_tail
        return rest

    def _keep(self, data: bytes) -> None:
        """Keep decompressed data up to the limit, and note if something was cut."""
        room = self._limit - len(self._kept)
        self._kept += data[:room]
        self._is_cut = self._is_cut or len(data) > room
