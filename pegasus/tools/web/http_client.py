"""The HTTP client of the tools: one request, the redirects that follow, and a bounded answer.

All tools that speak HTTP use `fetch`, so the rules of the network hold in one place:

* Every hop is resolved and checked by an `AddressGuard`, and connected to by the checked address
  (`http_exchange`).
* Redirects are followed by our own code and not by the library, because each one is a new request to a place
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
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias, cast

import attrs
import trio

from pegasus.tools.web.addresses import AddressGuard

MAX_REDIRECTS: Final = 10
"""Redirects of one request. Browsers allow 20; more than a few is a circle."""
MAX_BODY: Final = 1 << 20
"""Bytes of a body, decompressed, that are read."""
MAX_PARTS: Final = 20_000
"""Parts (network reads or chunks) of one body. A normal server needs under a hundred for
`MAX_BODY`, one that sends line by line some thousands. Each part costs about 30 microseconds, so
the bound is a little more than half a second of work."""


Sink: TypeAlias = Callable[["HttpAnswer", bytes], Awaitable[None]]
"""A function that takes a body piece by piece. It gets the answer, without a body, and the next bytes of it, decompressed."""


@attrs.frozen(eq=False, repr=False)
class FetchLimits:
    """Limits of an answer.

    Example: `FetchLimits(max_body=4 << 20, seconds=20.0)`. What is beyond them is not read, which is not an error.
    """

    max_body: int = MAX_BODY
    """Bytes that are read, decompressed."""
    seconds: float = math.inf
    """Time for the body, once the headers are there."""
    redirects: int = MAX_REDIRECTS
    """Redirects that are followed; 0 = a redirect is the answer itself."""


@attrs.frozen(eq=False, repr=False)
class HttpAnswer:
    """The answer to a request, after all redirects.

    Example::

        answer = await fetch(AddressGuard(), "GET", "https://example.org/", {})
        answer.status, answer.headers["content-type"]   # (200, "text/html; charset=UTF-8")
        answer.complete                                 # False if the body has more than FetchLimits.max_body bytes
    """

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


async def fetch(
    guard: AddressGuard,
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes | None = None,
    *,
    limits: FetchLimits | None = None,
    sink: Sink | None = None,
) -> HttpAnswer:
    """Send a request and return the answer, after at most as many redirects as the limits say.

        answer = await fetch(AddressGuard(), "GET", "https://example.org/", {})

    guard: decides which addresses may be connected to. Trusted certificates are those of the system (SSL_CERT_FILE
    and SSL_CERT_DIR are honoured). A body that is longer than the limits allow is cut, which is not an error. sink: takes
    the body of an answer with status 200, which then holds none. Every HTTP status is an answer. Raises ToolError for a URL
    that is not http(s), an address that is refused, and a failed connection. There is no timeout except for connecting (10 s for
    one address) and for the body, if the limits have one: the
    deadline of the call ends the rest.
    """
    exchange = cast("Any", await trio.to_thread.run_sync(importlib.import_module, "pegasus.tools.web.http_exchange"))
    answer: HttpAnswer = await exchange.follow(guard, method, url, headers, body, limits or FetchLimits(), sink)
    return answer
