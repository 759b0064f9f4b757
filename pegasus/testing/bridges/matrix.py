"""A homeserver of Matrix (https://spec.matrix.org/latest/client-server-api/), the service of `examples/matrix_bridge.py`.

It has what a bot needs: `/sync` with its gaps, earlier messages, invitations, sending with transaction ids, receipts, typing, and
files for those who are signed in. Anything else is refused as a homeserver refuses it. matrix-nio, a client of others, works with it.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

import attrs
import trio

from pegasus.testing.bridges.service import HttpBridgeService
from pegasus.testing.bridges.steps import Step
from pegasus.testing.services.server import HANG_UP, ServiceRequest, ServiceResponse, json_response
from pegasus.wire import decode_json

SERVER: Final = "example.org"
BOT: Final = f"@bot:{SERVER}"
ANNA: Final = f"@anna:{SERVER}"
ROOM: Final = f"!room:{SERVER}"
TOKEN: Final = "token-of-the-homeserver"  # noqa: S105 of a fake
MOST_EVENT_BYTES: Final = 65_536
MOST_UPLOAD_BYTES: Final = 1 << 20


def matrix_error(status: int, code: str, text: str = "", **more: object) -> ServiceResponse:
    """Return an error in the standard form."""
    return json_response({"errcode": code, "error": text or code, **more}, status)


@attrs.define(eq=False)
class MatrixRoom:
    """A room as the server has it."""

    events: list[tuple[int, dict[str, Any]]] = attrs.field(factory=list)
    """Its events, each with its place in the stream of all rooms."""
    members: set[str] = attrs.field(factory=lambda: {BOT, ANNA})
    inviter: str = ""
    """Person who has invited the bot, which is no member then."""


class MatrixService(HttpBridgeService):
    """A homeserver with one bot, and at first one room, in which Anna is, too."""

    channel_type = "matrix"
    busy = matrix_error(429, "M_LIMIT_EXCEEDED", "Too many requests", retry_after_ms=50)

    def __init__(self) -> None:
        super().__init__()
        self.rooms = {ROOM: MatrixRoom()}
        self.most_in_timeline = 10
        """Events of a room in an answer to `/sync`; what came before is a gap."""
        self.page = 2
        """Events in an answer to `/messages`, at most."""
        self.files: dict[str, tuple[str, bytes]] = {}
        """By media id, MIME type and content of what was uploaded."""
        self.typing: list[tuple[str, bool]] = []
        self.read: list[str] = []
        """Events for which the bot has sent a receipt."""
        self.is_followed = False
        """The bot has a place in the stream."""
        self._ids = itertools.count(1)
        self._stream = 0
        self._transactions: dict[str, str] = {}
        """By path, the event that was made."""
        self._confirmed = self._syncs = 0
        self._changed = trio.Event()

    # ---------------------------------------------------------------- for the suite and for tests

    def environment(self, folder: Path) -> Mapping[str, str]:
        """Return the variables of the bridge."""
        return {"MATRIX_URL": self.base_url, "MATRIX_TOKEN": TOKEN}

    async def write(self, text: str) -> None:
        """Let Anna write, but not before the bot follows: what was said before its first start is not for it."""
        await self.until(lambda: self.is_followed)
        self.say(text)

    def seen(self) -> Sequence[str]:
        """Return the texts of the bot in the first room."""
        return [str(content["body"]) for content in self.sent()]

    def sent(self, room_id: str = ROOM) -> list[dict[str, Any]]:
        """Return what the bot has sent to a room, as it is seen there."""
        return [event["content"] for _, event in self.rooms[room_id].events if event["sender"] == BOT]

    def say(
        self, body: str, sender: str = ANNA, room_id: str = ROOM, msgtype: str = "m.text", **content: object
    ) -> str:
        """Add a message; return the id of its event."""
        return self.add(room_id, sender, "m.room.message", {"msgtype": msgtype, "body": body, **content})

    def add(self, room_id: str, sender: str, type: str, content: Mapping[str, Any]) -> str:
        """Add an event; return its id."""
        event_id = f"${next(self._ids)}"
        self._stream += 1
        event: dict[str, Any] = {"type": type, "sender": sender, "event_id": event_id, "content": dict(content)}
        event |= {"origin_server_ts": 1_700_000_000_000 + self._stream, "unsigned": {}}
        self.rooms[room_id].events.append((self._stream, event))
        self._notify()
        return event_id

    def redact(self, event_id: str, room_id: str = ROOM) -> None:
        """Let the author delete a message: its content is gone, and an event says so."""
        for _, event in self.rooms[room_id].events:
            if event["event_id"] == event_id:
                event["content"] = {}
        self.add(room_id, ANNA, "m.room.redaction", {"redacts": event_id})

    def invite(self, room_id: str, inviter: str) -> None:
        """Invite the bot to a new room."""
        self.rooms[room_id] = MatrixRoom(members={inviter}, inviter=inviter)
        self._stream += 1
        self._notify()

    async def until(self, condition: Any) -> None:
        """Wait until the condition holds."""
        with trio.fail_after(20):
            while not condition():
                await self._changed.wait()

    # ---------------------------------------------------------------- the API

    async def answer(self, request: ServiceRequest) -> ServiceResponse:
        """Answer a call."""
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            return matrix_error(401, "M_UNKNOWN_TOKEN", "Unknown access token")
        url = urlsplit(request.target)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        path = [unquote(part) for part in url.path.removeprefix("/_matrix/").split("/")]
        is_media = path[-1] == "upload"
        try:
            body = decode_json(request.body) if request.body and not is_media else {}
        except ValueError:
            return matrix_error(400, "M_NOT_JSON", "Content not JSON.")
        response = await self._answer(request, path, query, body)
        self._notify()
        return response

    async def _answer(
        self, request: ServiceRequest, path: list[str], query: Mapping[str, str], body: Any
    ) -> ServiceResponse:
        match [request.method, *path]:
            case ["GET", "client", "v3", "account", "whoami"]:
                return json_response({"user_id": BOT, "device_id": "BRIDGE", "is_guest": False})
            case ["GET", "client", "v3", "sync"]:
                return await self._sync(int(query.get("since", -1)), int(query.get("timeout", 0)))
            case ["POST", "media", "v3", "upload"]:
                return self._upload(request)
            case ["GET", "client", "v1", "media", "download", server, media_id, *_]:
                if server != SERVER or media_id not in self.files:
                    return matrix_error(404, "M_NOT_FOUND", "Not found")
                mime, content = self.files[media_id]
                return ServiceResponse(200, content, {"content-type": mime})
            case ["POST", "client", "v3", "join", room_id]:
                return await self._answer_room(request, room_id, ["join"], query, body)
            case [_, "client", "v3", "rooms", room_id, *call]:
                return await self._answer_room(request, room_id, call, query, body)
        return matrix_error(404, "M_UNRECOGNIZED", "Unrecognized request")

    async def _answer_room(
        self, request: ServiceRequest, room_id: str, call: list[str], query: Mapping[str, str], body: Any
    ) -> ServiceResponse:
        room = self.rooms.get(room_id)
        if room is None or (BOT not in room.members and not (room.inviter and call in (["join"], ["leave"]))):
            return matrix_error(403, "M_FORBIDDEN", f"User {BOT} not in room {room_id}")
        match [request.method, *call]:
            case ["POST", "join"]:
                room.members.add(BOT)
                room.inviter = ""
                return json_response({"room_id": room_id})
            case ["POST", "leave"]:
                del self.rooms[room_id]
            case ["PUT", "send", type, _]:
                return await self._send(request, room_id, type, body)
            case ["GET", "messages"]:
                return self._messages(room, int(query["from"]), int(query["to"]), min(int(query["limit"]), self.page))
            case ["GET", "event", event_id]:
                found = [event for _, event in room.events if event["event_id"] == event_id]
                return json_response({**found[0], "room_id": room_id}) if found else matrix_error(404, "M_NOT_FOUND")
            case ["POST", "receipt", "m.read", event_id]:
                self.read.append(event_id)
            case ["PUT", "typing", user_id] if user_id == BOT:
                self.typing.append((room_id, body["typing"]))
            case _:
                return matrix_error(404, "M_UNRECOGNIZED", "Unrecognized request")
        return json_response({})

    async def _send(self, request: ServiceRequest, room_id: str, type: str, body: Any) -> ServiceResponse:
        if type == "m.room.message" and not (
            isinstance(body.get("body"), str) and isinstance(body.get("msgtype"), str)
        ):
            return matrix_error(400, "M_BAD_JSON", "'body' or 'msgtype' not in content")
        if len(request.body) > MOST_EVENT_BYTES:
            return matrix_error(413, "M_TOO_LARGE", "event too large")
        await self.points.reach(Step.SENDING)
        if request.path not in self._transactions:
            self._transactions[request.path] = self.add(room_id, BOT, type, body)
        await self.points.reach(Step.SENT)
        return json_response({"event_id": self._transactions[request.path]})

    def _upload(self, request: ServiceRequest) -> ServiceResponse:
        if len(request.body) > MOST_UPLOAD_BYTES:
            return matrix_error(413, "M_TOO_LARGE", "Upload request body is too large")
        media_id = f"media{next(self._ids)}"
        self.files[media_id] = (request.headers.get("content-type", "application/octet-stream"), request.body)
        return json_response({"content_uri": f"mxc://{SERVER}/{media_id}"})

    async def _sync(self, since: int, timeout: int) -> ServiceResponse:
        # The newest call counts. An older one is of a bridge that is gone, which must not meet the next step.
        self._syncs += 1
        mine = self._syncs
        self.is_followed = since >= 0
        self._notify()
        if since > self._confirmed:
            await self.points.reach(Step.CONFIRMING)
            self._confirmed = since
            await self.points.reach(Step.CONFIRMED)
        with trio.move_on_after(timeout / 1000):
            while self._stream <= since and mine == self._syncs:
                await self._changed.wait()
        if mine != self._syncs:
            return HANG_UP
        place = self._stream  # before the next step, during which more may be said
        joined = {id: self._joined(room, since) for id, room in self.rooms.items() if BOT in room.members}
        if any(event["sender"] != BOT for room in joined.values() for event in room["timeline"]["events"]):
            await self.points.reach(Step.HANDING_OUT)
        invited = {id: self._invited(room) for id, room in self.rooms.items() if room.inviter}
        changed = {id: room for id, room in joined.items() if since < 0 or room["timeline"]["events"]}
        rooms = {"join": changed, "invite": invited, "leave": {}}
        return json_response({"next_batch": str(place), "rooms": rooms, "device_one_time_keys_count": {}})

    def _joined(self, room: MatrixRoom, since: int) -> dict[str, Any]:
        new = [(place, event) for place, event in room.events if place > since]
        kept = new[-self.most_in_timeline :]
        timeline = {
            "events": [json.loads(json.dumps(event)) for _, event in kept],
            "limited": len(new) > len(kept),
            "prev_batch": str(kept[0][0] - 1 if kept else self._stream),
        }
        summary = {"m.joined_member_count": len(room.members), "m.invited_member_count": 0, "m.heroes": [ANNA]}
        empty: dict[str, Any] = {"events": []}
        more = {"state": empty, "ephemeral": empty, "account_data": empty, "unread_notifications": {}}
        return {"timeline": timeline, "summary": summary, **more}

    def _invited(self, room: MatrixRoom) -> dict[str, Any]:
        event = {"type": "m.room.member", "sender": room.inviter, "state_key": BOT, "content": {"membership": "invite"}}
        return {"invite_state": {"events": [event]}}

    def _messages(self, room: MatrixRoom, end: int, stop: int, limit: int) -> ServiceResponse:
        earlier = [(place, event) for place, event in room.events if stop < place <= end]
        chunk = earlier[-limit:][::-1]
        more = {"end": str(chunk[-1][0] - 1)} if len(earlier) > len(chunk) else {}
        return json_response({"chunk": [event for _, event in chunk], "start": str(end), **more})

    def _notify(self) -> None:
        changed, self._changed = self._changed, trio.Event()
        changed.set()
