"""Checks of the header of each request: the name of the server, the page it comes from, who sends it. Pure.

A request that is refused, here or later, is an `ApiError`.

Three attacks come from web pages that a signed-in person has open beside ours, and each has one check:

* *DNS rebinding*: a page lets its own name point at 127.0.0.1, so that the browser takes us for that page's server. The browser then
  sends the page's name in `Host`. So only names of our own are answered; every other one is 421.
* *Cross-site requests*: a page makes the browser send us a request, with our cookie. The cookie is SameSite=Strict, so browsers
  leave it out; but pages on another port of this host count as the same site. So whatever is sent with the cookie must not come from
  a foreign `Origin`, and what changes something must name an allowed one.
* *WebSockets* are not subject to the browser's same-origin policy at all. Each handshake with a foreign `Origin` is refused.

Programs send no Origin and a token (`Authorization: Bearer …`), which no page of others knows.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Final, TypeAlias
from urllib.parse import urlsplit

import attrs
import trio

from pegasus.access import SESSION_DAYS, TokenGrant, WebSessions
from pegasus.formatting import quote
from pegasus.gateway import GatewayConfig
from pegasus.loopback import is_loopback
from pegasus.messages import Json
from pegasus.settings import LiveValue
from pegasus.web.config import HttpConfig

SAFE_METHODS: Final = ("GET", "HEAD", "OPTIONS")
"""Methods that change nothing."""

HeaderFields: TypeAlias = Iterable[tuple[bytes, bytes]]
"""Names, in lower case, and values of a request's header, as they came."""


class ApiError(Exception):
    """A request that is not carried out. The client gets `{"error": {"code", "message", "details"?}}`, as for every error."""

    def __init__(self, status: int, code: str, message: str, details: Json = None) -> None:
        super().__init__(message)
        self.status = status
        """HTTP status."""
        self.code = code
        """Word by which programs decide; the message is for people."""
        self.message = message
        self.details = details
        """Facts for programs; None: none."""

    @property
    def body(self) -> dict[str, Json]:
        """The JSON object of the response."""
        error: dict[str, Json] = {"code": self.code, "message": self.message}
        if self.details is not None:
            error["details"] = self.details
        return {"error": error}


@attrs.frozen
class RequestIdentity:
    """The sender of a request.

    A visitor without a grant is not refused here: the operation decides. One with a scope asks for it, which a stranger does not
    have. One with the scope "" answers strangers unless its handler needs the grant.
    """

    grant: TokenGrant | None = None
    """Rights of the token or of the session; None: it has shown neither, or one that does not count."""
    session: str = attrs.field(default="", repr=False)
    """Id of the session; "" without one."""
    is_page: bool = False
    """True for a sender known by a cookie: a person at the web page."""


@attrs.frozen(eq=False, repr=False)
class AccessRules:
    """The checks of the settings in force."""

    config: LiveValue[HttpConfig]
    gateway: LiveValue[GatewayConfig]
    """Knows the tokens, and the origins of pages that may connect."""
    sessions: WebSessions

    @property
    def cookie(self) -> str:
        """Name of the cookie. It holds the port, because browsers give a host's cookies to its servers on all ports."""
        return f"pegasus_session_{self.config.now.port}"

    def check_host(self, fields: HeaderFields) -> None:
        """Raise ApiError 421 unless the request names this server: its own address, loopback, or one of the settings."""
        host = _value(fields, b"host")
        # A literal address is compared as text and never looked up: whoever controls the answer of a name
        # server must not decide which names are ours.
        name = _host_name(host)
        if name is None or not (
            is_loopback(name) or name == self.config.now.host.lower() or self._is_configured(host, name)
        ):
            allowed = "loopback and http.allowed_hosts of the settings"
            message = f"Host: found {quote(host, 100)}, which is not this server; allowed: {allowed}"
            raise ApiError(421, "wrong_host", message)

    def _is_configured(self, host: str, name: str) -> bool:
        public = urlsplit(self.config.now.public_url)
        allowed = {entry.lower() for entry in self.config.now.allowed_hosts}
        return name in allowed or host.lower() in allowed or (bool(public.hostname) and name == public.hostname)

    async def identify(self, fields: HeaderFields, method: str) -> RequestIdentity:
        """Return who sends a request. A token counts more than a cookie.

        Raises ApiError: 401 for a token that does not count, 403 for a cookie from a foreign page, and for one without an Origin
        where the method changes something. Raises StorageError and ActorError while it cannot be known whether that counts.
        """
        fields = list(fields)
        scheme, _, credentials = _value(fields, b"authorization").partition(" ")
        # A request that shows a token is not judged by its cookie at all. Otherwise a program within a browser,
        # which cannot suppress the cookie, would be refused for the Origin of its page.
        if scheme.lower() == "bearer":
            grant = await self.gateway.now.find_grant(credentials.strip())
            if grant is None:
                raise ApiError(401, "unauthorized", "the token does not count; the command `token add NAME` makes one")
            return RequestIdentity(grant)
        session = _cookie(fields, self.cookie)
        if not session:
            return RequestIdentity()
        origin = _value(fields, b"origin")
        if origin:
            self.check_origin(fields)
        elif method not in SAFE_METHODS:
            raise ApiError(
                403, "forbidden", "Origin: missing; a request with a cookie that changes something needs one"
            )
        return RequestIdentity(await self.sessions.find_read(session), session, is_page=True)

    def admit_socket(self, fields: HeaderFields) -> None:
        """Raise ApiError for a WebSocket handshake with a wrong Host (421) or from a page of others (403), token or not."""
        fields = list(fields)
        self.check_host(fields)
        self.check_origin(fields)

    async def identify_socket(self, fields: HeaderFields) -> RequestIdentity:
        """Return who sends a WebSocket handshake, as far as the cookie tells. The gateway looks at tokens.

        Raises what `admit_socket` raises, and StorageError and ActorError while it cannot be known whether the cookie counts.
        """
        fields = list(fields)
        self.admit_socket(fields)
        session = _cookie(fields, self.cookie)
        grant = await self.sessions.find_read(session) if session else None
        return RequestIdentity(grant, session, is_page=True) if grant is not None else RequestIdentity()

    async def until_ended(self, visitor: RequestIdentity) -> None:
        """Return when the rights of a visitor end: the token was revoked, or the browser was signed out. Never for a stranger.

        Whatever was answered from then on would go to somebody who may not have it any more.
        """
        if visitor.grant is None:
            await trio.sleep_forever()
        async with trio.open_nursery() as nursery:

            async def end_with(wait: Callable[[], Awaitable[None]]) -> None:
                await wait()
                nursery.cancel_scope.cancel()

            nursery.start_soon(end_with, visitor.grant.revoked.wait)
            if visitor.session:
                nursery.start_soon(end_with, partial(self.sessions.until_ended, visitor.session))

    def is_local(self, fields: HeaderFields, address: str) -> bool:
        """Return whether a request comes from this machine, and to a name that only this machine uses. address: of the client."""
        name = _host_name(_value(fields, b"host"))
        return is_loopback(address) and name is not None and is_loopback(name)

    def check_origin(self, fields: HeaderFields) -> None:
        """Raise ApiError 403 for a request from a page of others. One without an Origin comes from no page."""
        fields = list(fields)
        origin = _value(fields, b"origin")
        if origin and origin not in self.gateway.now.origins and origin.lower() != self._own_origin(fields):
            message = f"Origin: found {quote(origin, 100)}, which is not this page; allowed: gateway.allowed_origins of the settings"
            raise ApiError(403, "forbidden", message)

    def _own_origin(self, fields: HeaderFields) -> str:
        """Return the origin of the page that this request was sent to, in lower case.

        Behind a proxy that speaks TLS, or passes another Host on, it is that of `http.public_url`.
        """
        host, public = _value(fields, b"host").lower(), urlsplit(self.config.now.public_url.lower())
        origin = _value(fields, b"origin").lower()
        if public.netloc and (host == public.netloc or origin == f"{public.scheme}://{public.netloc}"):
            return f"{public.scheme}://{public.netloc}"
        return f"http://{host}"

    def cookie_header(self, session: str, fields: HeaderFields) -> str:
        """Return the value of Set-Cookie for a session; "" signs the browser out. fields: of the request that is answered."""
        age = f"; Max-Age={SESSION_DAYS * 86400 if session else 0}"
        secure = "; Secure" if self._own_origin(list(fields)).startswith("https://") else ""
        return f"{self.cookie}={session}; Path=/; HttpOnly; SameSite=Strict{secure}{age}"


def _value(fields: HeaderFields, name: bytes) -> str:
    """Return the value of a header field, "" if it is missing or there are several."""
    values = [value for key, value in fields if key == name]
    return values[0].decode("latin-1").strip() if len(values) == 1 else ""


def _cookie(fields: HeaderFields, name: str) -> str:
    """Return the value of a cookie, "" if it is missing. Of several the first counts, as the browser puts the nearest path first."""
    for key, value in fields:
        if key == b"cookie":
            for pair in value.decode("latin-1").split(";"):
                found, _, content = pair.strip().partition("=")
                if found == name:
                    return content
    return ""


def _host_name(host: str) -> str | None:
    """Return the name in a Host header without its port, in lower case; None if it is no host."""
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port  # raises ValueError for one that is no number
    except ValueError:
        return None
    if parts.username is not None or parts.path or parts.query or parts.fragment:
        return None
    return parts.hostname
