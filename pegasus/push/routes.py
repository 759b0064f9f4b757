"""Routes by which a page subscribes, and says what somebody has seen."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlsplit

import attrs
import trio
from starlette.responses import Response

from pegasus.access import CONTROL, MESSAGE, hash_token
from pegasus.formatting import quote
from pegasus.host import HomeError
from pegasus.loopback import is_loopback
from pegasus.messages import Json
from pegasus.push.config import PushServices, channel_of, in_settings
from pegasus.push.subscriptions import PushSubscription
from pegasus.tools import AddressGuard, ToolError
from pegasus.web import ApiError, ApiRequest, Operation, failures_as_errors, json_response
from pegasus.wire import from_wire

LONGEST_ENDPOINT: Final = 2000
"""Characters of an address. Those of the browsers of today have some 200."""
LONGEST_KEY: Final = 200
"""Characters of a key, and of an id."""
MOST_IDS: Final = 1000
"""Ids in one request."""


@attrs.frozen
class PushKeys:
    """Keys of a browser's subscription, in base64url."""

    p256dh: str
    auth: str


@attrs.frozen
class PushBody:
    """A subscription, as the browser's `toJSON` gives it, and what it is told."""

    endpoint: str
    keys: PushKeys
    about: Literal["all", "approvals"] = "all"
    text: bool = True


@attrs.frozen
class SeenBody:
    """Ids of approvals that an owner has in front of them."""

    approvals: tuple[str, ...]


class PushRoutes:
    """The handlers. A browser sees and changes its own subscriptions alone: those of its session."""

    def __init__(self, services: PushServices) -> None:
        self._services = services
        self._book = services.book

    async def show(self, request: ApiRequest) -> Response:
        """Return the key that a browser needs to subscribe, and the subscriptions of its session."""
        session = _session_of(request)
        with failures_as_errors():
            await self._book.ensure_read()
        mine: list[Json] = [_shown(row) for row in self._book.rows.values() if row.session == session]
        try:
            key = await trio.to_thread.run_sync(_public_key, self._services.key_file)
        except HomeError as error:
            raise ApiError(503, "internal", str(error)) from None
        return json_response({"key": key, "subscriptions": mine})

    async def add(self, request: ApiRequest) -> Response:
        """Keep a subscription of the browser, or change what it is told."""
        session = _session_of(request)
        body = from_wire(await request.json(), PushBody, is_foreign=True)
        endpoint = _text("endpoint", body.endpoint, LONGEST_ENDPOINT)
        p256dh, auth = (
            _text("keys.p256dh", body.keys.p256dh, LONGEST_KEY),
            _text("keys.auth", body.keys.auth, LONGEST_KEY),
        )
        if problem := await trio.to_thread.run_sync(_problem, endpoint, p256dh, auth):
            raise ApiError(400, "bad_request", problem)
        place, guard = urlsplit(endpoint), AddressGuard(self._services.settings.now.allowed_hosts)
        try:
            await guard.addresses(place.hostname or "", place.port or 443)
        except ToolError as error:
            raise ApiError(400, "bad_request", f"endpoint: {in_settings(str(error))}") from None
        row = PushSubscription(endpoint, p256dh, auth, session, body.about, body.text, request.services.clock())
        with failures_as_errors():
            row = await self._book.add(row, channel_of(request.grant))
        return json_response(_shown(row))

    async def remove(self, request: ApiRequest) -> Response:
        """Forget a subscription of the browser."""
        session, id = _session_of(request), request.path["id"]
        with failures_as_errors():
            await self._book.ensure_read()
            row = self._book.rows.get(id)
            if row is None or row.session != session:
                raise ApiError(404, "not_found", f"this browser has no subscription {quote(id)}")
            await self._book.remove(id)
        return json_response({})

    async def mark_seen(self, request: ApiRequest) -> Response:
        """Note which approvals somebody has in front of them on a page, so that no browser is notified of them."""
        ids = from_wire(await request.json(), SeenBody, is_foreign=True).approvals
        if len(ids) > MOST_IDS:
            raise ApiError(400, "bad_request", f"approvals: allowed: a list of ids, {MOST_IDS} at most")
        self._book.mark_seen([id[:LONGEST_KEY] for id in ids])
        return json_response({})


def _session_of(request: ApiRequest) -> str:
    """Return the hash of the session that a request belongs to. Raises ApiError 403 for a program, which has none."""
    if not request.visitor.session:
        raise ApiError(403, "forbidden", "only a browser that is signed in can be notified; a program listens to /ws")
    if refusal := request.grant.refusal(*_place(request)):
        raise ApiError(403, "forbidden", refusal)
    return hash_token(request.visitor.session)


def _place(request: ApiRequest) -> tuple[str, str]:
    channel = channel_of(request.grant)
    return channel.type, channel.channel_id


def _text(name: str, value: str, longest: int) -> str:
    if not 0 < len(value) <= longest:
        raise ApiError(
            400, "bad_request", f"{name}: found {quote(value)}, allowed: a text of 1 to {longest} characters"
        )
    return value


def _shown(row: PushSubscription) -> dict[str, Json]:
    """Return a subscription as its browser sees it. The address is a capability, and only its host is shown."""
    service = urlsplit(row.endpoint).hostname or ""
    return {"id": row.id, "service": service, "about": row.about, "text": row.text, "since": row.since}


def why_no_endpoint(endpoint: str) -> str:
    """Return why nothing is sent to an address, "" if something is. Where its host leads is checked when it is sent."""
    try:
        place = urlsplit(endpoint)
        _ = place.port
    except ValueError:
        return "no address"
    if place.username or place.password or not place.hostname:
        return "an address without a host, or with a password"
    is_plain = place.scheme == "http" and is_loopback(place.hostname)
    return "" if is_plain or place.scheme == "https" else f'an address that begins with "{place.scheme}:"'


def _public_key(path: Path) -> str:
    """Return the public key of the home. Blocks: what it needs is imported at the first call."""
    from pegasus.push.keys import ensure_key

    return ensure_key(path).public


def _problem(endpoint: str, p256dh: str, auth: str) -> str:
    """Return why a subscription cannot be used, "" if it can. Blocks as `_public_key`."""
    from pegasus.push.keys import read_point, read_secret

    if found := why_no_endpoint(endpoint):
        return f"endpoint: found {found}, allowed: that of a push service, with https://"
    try:
        read_point(p256dh)
    except ValueError:
        return f"keys.p256dh: found {quote(p256dh, 20)}, allowed: a point of the curve P-256 in base64url"
    try:
        read_secret(auth)
    except ValueError:
        return "keys.auth: allowed: 16 bytes in base64url"
    return ""


def push_operations(services: PushServices) -> tuple[Operation, ...]:
    """Return the operations of this file."""
    routes = PushRoutes(services)
    return (
        Operation("GET", "/api/push", routes.show, "Notifications of this browser", MESSAGE),
        Operation("POST", "/api/push", routes.add, "Notify this browser", MESSAGE, body=PushBody),
        Operation("DELETE", "/api/push/{id}", routes.remove, "Notify this browser no more", MESSAGE),
        Operation("POST", "/api/push/seen", routes.mark_seen, "Note what an owner has seen", CONTROL, body=SeenBody),
    )
