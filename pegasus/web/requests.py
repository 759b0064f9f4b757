"""`ApiRequest`: one request behind the checks of `visitors`, as the handlers of routes see it, and the forms of responses.

It reads bodies within the bounds of size and time, checks what a query holds, and calls the control plane. Every mistake of the client
is an ApiError with what was found and what is allowed; none of them is a failure of the server.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, TypeAlias

import attrs
import trio
from starlette.requests import Request
from starlette.responses import Response

from actors import ActorError, AskTimeout
from pegasus.access import TokenGrant
from pegasus.formatting import quote
from pegasus.gateway import CALL_TIMEOUT, BadParams, Caller, Conflict, EventStream, NotAllowed, NotFound
from pegasus.messages import Json
from pegasus.storage import StorageError
from pegasus.web.config import WebServices
from pegasus.web.connection import CLIENT_GONE
from pegasus.web.visitors import AccessRules, ApiError, RequestIdentity
from pegasus.wire import WireError, decode_json, encode_json, from_wire, kind, to_wire

Handler: TypeAlias = Callable[["ApiRequest"], Awaitable[Response]]
"""Handler of an operation: takes a request whose checks are done, returns the response or raises ApiError."""

QUIET: Final = 15.0
"""Seconds of silence after which a stream of events sends a comment, so that no proxy takes it for dead."""
OPEN_BODY: Final = 4 << 20
"""Bytes of a body that somebody unknown may send, a webhook for example."""
_HUGE: Final = re.compile(rb"\d[eE]\+?\d{3}|\d{300}")
"""A number that may be beyond all floats. Python reads it as infinity, which is not JSON."""
_NOT_KEPT: Final = {"cache-control": "no-store"}
"""Header field of all responses but the page's files: they hold what belongs to one person."""


_FAILURES: Final[tuple[tuple[type[Exception], int, str, str], ...]] = (
    (NotFound, 404, "not_found", "{}"),
    (Conflict, 409, "conflict", "{}"),
    (NotAllowed, 403, "forbidden", "{}"),
    (BadParams, 400, "bad_request", "{}"),
    (StorageError, 503, "internal", "disk: {}"),
    (AskTimeout, 504, "timeout", "the agent does not answer: {}"),
    (ActorError, 503, "unavailable", "a part of the agent is being restarted; try again ({})"),
)
"""Errors of parts of the agent, with status, code and text of the response. The first that fits counts."""


@contextmanager
def failures_as_errors() -> Iterator[None]:
    """Turn what parts of the agent raise into ApiErrors within the block.

    A refusal of the control plane keeps its words, since it says what is allowed. What the client cannot change
    is a 5xx with a sentence about what to do: send it again, or look at the disk.
    """
    try:
        yield
    except tuple(kind for kind, *_ in _FAILURES) as error:
        _, status, code, text = next(row for row in _FAILURES if isinstance(error, row[0]))
        raise ApiError(status, code, text.format(error)) from None


def json_response(
    body: Mapping[str, Json] | attrs.AttrsInstance, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a response with this JSON object, which nobody may keep."""
    fields = body if isinstance(body, Mapping) else to_wire(body)
    content = encode_json(fields).encode("utf-8", "replace")  # a model may write half of a surrogate pair
    return Response(content, status, {**_NOT_KEPT, **(headers or {})}, "application/json")


class EventStreamResponse(Response):
    """A response of server-sent events, sent piece by piece, which nobody keeps. Subclasses send it in `__call__`.

    The format is that of https://html.spec.whatwg.org/multipage/server-sent-events.html

    `x-accel-buffering` keeps nginx from gathering pieces. Without a length the body ends with the connection,
    or as HTTP's chunks do.
    """

    def __init__(self) -> None:
        super().__init__(
            media_type="text/event-stream", headers={"cache-control": "no-store", "x-accel-buffering": "no"}
        )
        self.raw_headers = [field for field in self.raw_headers if field[0] != b"content-length"]


def parse_object(content: bytes) -> dict[str, Json]:
    """Return a JSON object. Raises ApiError 400 for anything else, and for what could not be written as UTF-8 JSON again."""
    try:
        value = decode_json(content)
        if b"\\ud" in content.lower() or _HUGE.search(content):  # half of a surrogate pair can only come as an escape
            encode_json(value).encode()
    except (ValueError, RecursionError) as error:
        raise ApiError(400, "bad_request", f"found no JSON ({error}); allowed: a JSON object") from None
    if not isinstance(value, dict):
        raise ApiError(400, "bad_request", f"found {kind(value)}; allowed: a JSON object")
    return value


@attrs.frozen(eq=False, repr=False)
class ApiRequest:
    """A request. Handlers get it when the checks of the operation are done."""

    http: Request
    """The request as Starlette has it."""
    services: WebServices
    rules: AccessRules
    visitor: RequestIdentity
    body_class: type | None = None
    """Class that the body must fit; None: the handler looks at it itself."""

    @property
    def path(self) -> Mapping[str, str]:
        """The parts of the path that have names in the route."""
        return self.http.path_params

    @property
    def nursery(self) -> trio.Nursery:
        """Nursery of tasks that outlive the request. They are cancelled when the server stops."""
        nursery: trio.Nursery = self.http.scope["app"].nursery
        return nursery

    @property
    def fields(self) -> list[tuple[bytes, bytes]]:
        """The header fields, as they came."""
        return list(self.http.headers.raw)

    @property
    def is_local(self) -> bool:
        """True for a request from this machine to a name that only this machine uses.

        The address of the client alone would not do: a proxy on this machine connects over loopback for anybody.
        """
        client = self.http.client
        return client is not None and self.rules.is_local(self.fields, client.host)

    @property
    def grant(self) -> TokenGrant:
        """Rights of the sender; of an operation that is open to everybody it has none, and must not ask."""
        if self.visitor.grant is None:
            raise ApiError(401, "unauthorized", "no token (Authorization: Bearer …) and no session; sign in", None)
        return self.visitor.grant

    @property
    def has_gone(self) -> bool:
        """True if the client has hung up. Its handler is being cancelled then, as it also is when the server stops."""
        gone: trio.Event = self.http.scope["state"][CLIENT_GONE]
        return gone.is_set()

    @property
    def has_lost_rights(self) -> bool:
        """True if the token was revoked, or the browser signed out, while the request was under way."""
        visitor = self.visitor
        is_signed_out = bool(visitor.session) and self.services.sessions.find(visitor.session) is None
        return is_signed_out or self.grant.revoked.is_set()

    def require(self, scope: str) -> None:
        """Raise ApiError 401 for somebody unknown, and 403 for a token without this scope."""
        if not self.grant.allows(scope):
            message = f"the token {quote(self.grant.name)} has not the scope {quote(scope)}, which this needs"
            raise ApiError(403, "forbidden", message)

    # ---------------------------------------------------------------- what the client has sent

    async def body(self) -> bytes:
        """Return the body. Raises ApiError: 413 if it is too large, 408 if it comes too slowly.

        Somebody who has shown neither token nor session may send OPEN_BODY at most: signatures are checked when the body is there, and
        a thousand strangers must not fill the memory.
        """
        # One look at the settings for the whole body: a limit that changes meanwhile counts for the next
        # request.
        config = self.services.config.now
        is_known = self.visitor.grant is not None
        limit = config.max_body_bytes if is_known else min(OPEN_BODY, config.max_body_bytes)
        declared = self.http.headers.get("content-length", "")
        # A body whose header already says that it is too large is refused before any of it is read. The size is
        # counted below in any case, since a chunked body declares none.
        if declared.isascii() and declared.isdigit() and int(declared) > limit:
            raise self._too_large(limit)
        parts: list[bytes] = []
        size = 0
        until = trio.current_time() + config.body_time
        while True:
            # Two deadlines: one for the next piece, so that a client that has stopped is noticed soon, and one
            # for the whole, so that one byte every ten seconds does not hold a connection for hours.
            with trio.CancelScope(deadline=min(until, trio.current_time() + config.pause_time)) as scope:
                message = await self.http.receive()
            if scope.cancelled_caught:
                raise ApiError(408, "too_slow", "the body did not come in time")
            part = message.get("body", b"")
            size += len(part)
            if size > limit:
                raise self._too_large(limit)
            parts.append(part)
            if not message.get("more_body"):  # or the client has gone, and nobody reads the answer
                return b"".join(parts)

    def _too_large(self, limit: int) -> ApiError:
        return ApiError(413, "too_large", f"found a body of more than {limit} bytes, which is the limit here")

    async def json(self) -> dict[str, Json]:
        """Return the body, a JSON object that fits its class. Raises ApiError 400 for anything else, and as `body` does."""
        return self._fitting(parse_object(await self.body()))

    async def json_or_nothing(self) -> dict[str, Json]:
        """Return the body, a JSON object; {} for an empty body. Otherwise as `json`."""
        content = await self.body()
        return self._fitting(parse_object(content)) if content.strip() else {}

    def _fitting(self, fields: dict[str, Json]) -> dict[str, Json]:
        if self.body_class is not None:
            try:
                from_wire(fields, self.body_class, is_foreign=True)
            except WireError as error:
                raise ApiError(400, "bad_request", str(error)) from None
        return fields

    def number(self, name: str, limit: int | None = None) -> int | None:
        """Return a whole number of the query, None if it is missing. Raises ApiError 400.

        `limit`: the largest value that is used; a larger one is not refused but means this. Signs, fractions and
        digits of other scripts are refused.
        """
        text = self.text(name)
        if text is None or text == "":
            return None
        if not (text.isascii() and text.isdigit() and len(text) < 19):
            raise ApiError(400, "bad_request", f"{name}: found {quote(text, 40)}, allowed: a whole number from 0")
        return int(text) if limit is None else min(int(text), limit)

    def text(self, name: str) -> str | None:
        """Return a text of the query, None if it is missing. Raises ApiError 400 if it is there several times."""
        found = self.http.query_params.getlist(name)
        if len(found) > 1:
            raise ApiError(400, "bad_request", f"{name}: found {len(found)} times, allowed: once")
        return found[0] if found else None

    # ---------------------------------------------------------------- the control plane

    async def call(self, method: str, params: Mapping[str, Json] | None = None) -> Mapping[str, Json]:
        """Return the result of a method of the control plane. Raises ApiError, also for a token without the scope for it."""
        # The scope of the method counts beside that of the operation: a route cannot give away what the method
        # would not allow.
        self.require(self.services.gateway_config.now.scope_of(method))
        with failures_as_errors():
            return await self.call_raw(method, params)

    async def call_raw(self, method: str, params: Mapping[str, Json] | None = None) -> Mapping[str, Json]:
        """Return the result of a method, whatever the scopes of the token. Raises ApiError, and what the method raises.

        The deadline is that of calls over the WebSocket. A method that is ended by it may have done part of its
        work, as after a crash.
        """
        function = self.services.methods.get(method)
        if function is None:
            raise ApiError(501, "not_implemented", f"this version has no {method}")
        with trio.move_on_after(CALL_TIMEOUT):
            result = await function(self._caller(), params or {})
            if isinstance(result, EventStream) or not isinstance(result, Mapping):
                raise TypeError(f"{method} gave {type(result).__name__}, which is no JSON object")
            return result
        raise ApiError(504, "timeout", f"{method} took longer than {CALL_TIMEOUT:g} s and was ended")

    def _caller(self) -> Caller:
        """Return the sender, as methods of the control plane know callers."""
        grant = self.grant
        kind = grant.token.type or ("web" if self.visitor.is_page else "api")
        return Caller(kind, grant.channel_id or grant.name, grant=grant)
