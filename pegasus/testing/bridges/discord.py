"""Discord as a service (https://discord.com/developers/docs, version 10), the service of `examples/discord_bridge.py`.

It has what a bot needs: the gateway with its sessions, which are resumed or over, and of the API the calls for messages, channels,
typing and clicks on buttons. Anything else is refused as Discord refuses it. discord.py, a client of others, works with it.
"""

from __future__ import annotations

import email
import email.policy
import itertools
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import attrs
import h11
import trio

from pegasus.protocol import WebSocketClosed
from pegasus.testing.bridges.service import HttpBridgeService
from pegasus.testing.bridges.steps import OF_SERVICE, Step, StepCut
from pegasus.testing.services.server import ServiceRequest, ServiceResponse, json_response
from pegasus.websocket import BadMessage, Handshake, WebSocket
from pegasus.wire import decode_object, encode_json

TOKEN: Final = "token-of-the-bot"  # noqa: S105 of a fake
BOT: Final = {
    "id": "100",
    "username": "pegasus",
    "discriminator": "0",
    "global_name": None,
    "avatar": None,
    "bot": True,
}
ANNA: Final = {"id": "200", "username": "anna", "discriminator": "0", "global_name": "Anna", "avatar": None}
GUILD: Final = "300"
CHANNEL: Final = "301"
DIRECT: Final = "302"
TEXT_CHANNEL: Final = {"type": 0, "guild_id": GUILD, "name": "general", "position": 0, "permission_overwrites": []}
MESSAGE_INTENTS: Final = 1 << 9 | 1 << 12 | 1 << 15
HEARTBEAT_SECONDS: Final = 41.25
MOST_CHARACTERS: Final = 2000


def discord_error(status: int, code: int, message: str) -> ServiceResponse:
    """Return an error in Discord's form."""
    return json_response({"message": message, "code": code}, status)


@attrs.define(eq=False)
class DiscordSession:
    """A session of the gateway: its events are kept for the connection that resumes it."""

    id: str
    intents: int
    events: list[tuple[str, Any]] = attrs.field(factory=list)
    """Name and data of each; the number of an event is its place, from 1 on."""


class DiscordService(HttpBridgeService):
    """Discord with a server that has one channel, and the direct messages of Anna."""

    channel_type = "discord"
    steps = OF_SERVICE - {Step.CONFIRMING, Step.CONFIRMED}
    most_characters = MOST_CHARACTERS
    busy = json_response({"message": "You are being rate limited.", "retry_after": 0.05, "global": False}, 429)

    def __init__(self) -> None:
        super().__init__()
        self.messages: dict[str, list[dict[str, Any]]] = {CHANNEL: [], DIRECT: []}
        """By channel, what people see."""
        self.sessions: dict[str, DiscordSession] = {}
        self.greetings: list[str] = []
        """Ways in which connections began: "identify" or "resume"."""
        self.clicks: list[str] = []
        """Clicks that were answered."""
        self.typing: list[str] = []
        self.uploads: dict[str, tuple[str, bytes]] = {}
        """By path, MIME type and content of files."""
        self.allowed_intents = MESSAGE_INTENTS | 1
        self.heartbeat = HEARTBEAT_SECONDS
        self.is_mute = False
        """Heartbeats are not answered."""
        self._ids = itertools.count(1000)
        self._nonces: dict[str, dict[str, Any]] = {}
        self._connections: dict[str, _DiscordConnection] = {}
        """By session, the connection that has it."""
        self._changed = trio.Event()

    # ---------------------------------------------------------------- for the suite and for tests

    def environment(self, folder: Path) -> Mapping[str, str]:
        """Return the variables of the bridge."""
        return {"DISCORD_URL": f"{self.base_url}/api/v10", "DISCORD_TOKEN": TOKEN}

    async def write(self, text: str) -> None:
        """Let Anna write, but not before the bot has a session: what was said before its first start is not for it."""
        await self.until(lambda: bool(self.sessions))
        self.say(text)

    def seen(self) -> Sequence[str]:
        """Return the texts of the bot in the channel."""
        return [message["content"] for message in self.sent()]

    def sent(self, channel_id: str = CHANNEL) -> list[dict[str, Any]]:
        """Return what the bot has sent to a channel, as it is seen there."""
        return [message for message in self.messages[channel_id] if message["author"] == BOT]

    def say(
        self, content: str, author: Mapping[str, Any] = ANNA, channel_id: str = CHANNEL, **more: Any
    ) -> dict[str, Any]:
        """Add a message; return it."""
        message = {
            "id": str(next(self._ids)),
            "type": 0,
            "channel_id": channel_id,
            "author": dict(author),
            "content": content,
            "timestamp": "2026-01-01T12:00:00.000000+00:00",
            "edited_timestamp": None,
            "tts": False,
            "mention_everyone": False,
            "mentions": [],
            "mention_roles": [],
            "attachments": [],
            "embeds": [],
            "pinned": False,
            **more,
        }
        self.messages[channel_id].append(message)
        self._dispatch("MESSAGE_CREATE", self._in_guild(message))
        return message

    def edit(self, message: dict[str, Any], content: str, at: str | None) -> None:
        """Change a message. at: the time; None: Discord itself has changed it, by a preview of a link."""
        message |= {"content": content, "edited_timestamp": at}
        self._dispatch("MESSAGE_UPDATE", self._in_guild(message))

    def click(self, custom_id: str, message: Mapping[str, Any], user: Mapping[str, Any] = ANNA) -> str:
        """Click on a button; return the id of the interaction."""
        id, channel_id = str(next(self._ids)), message["channel_id"]
        is_direct = channel_id == DIRECT
        member: dict[str, Any] = {
            "user": user,
            "roles": [],
            "joined_at": None,
            "deaf": False,
            "mute": False,
            "flags": 0,
            "permissions": "0",
        }
        click = {
            "id": id,
            "application_id": BOT["id"],
            "type": 3,
            "token": f"click-{id}",
            "version": 1,
            "data": {"custom_id": custom_id, "component_type": 2},
            "channel_id": channel_id,
            "channel": {"id": channel_id, "type": 1} if is_direct else {"id": channel_id, **TEXT_CHANNEL},
            "message": message,
            "app_permissions": "0",
            "locale": "en-US",
            "entitlements": [],
            "authorizing_integration_owners": {},
            "attachment_size_limit": 10 << 20,
            **({"user": user} if is_direct else {"member": member, "guild_id": GUILD}),
        }
        self._dispatch("INTERACTION_CREATE", click)
        return id

    def drop_connections(self, code: int | None = None) -> None:
        """End all connections, with this close code or without one."""
        for connection in self._connections.values():
            connection.end(code)

    def end_sessions(self) -> None:
        """Let no session be resumed."""
        self.sessions.clear()
        self.drop_connections()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until the condition holds."""
        with trio.fail_after(20):
            while not condition():
                await self._changed.wait()

    # ---------------------------------------------------------------- the API

    async def answer(self, request: ServiceRequest) -> ServiceResponse:
        """Answer a call."""
        if request.path in self.uploads:
            mime, content = self.uploads[request.path]
            return ServiceResponse(200, content, {"content-type": mime})
        path = request.path.removeprefix("/api/v10").strip("/").split("/")
        if request.headers.get("authorization") != f"Bot {TOKEN}" and path[0] != "interactions":
            return discord_error(401, 0, "401: Unauthorized")
        query = {name: values[0] for name, values in parse_qs(urlsplit(request.target).query).items()}
        response = await self._answer([request.method, *path], query, request)
        self._notify()
        return response

    async def _answer(self, call: list[str], query: Mapping[str, str], request: ServiceRequest) -> ServiceResponse:
        match call:
            case ["GET", "users", "@me"]:
                return json_response(BOT)
            case ["GET", "oauth2", "applications", "@me"]:
                facts = {"icon": None, "description": "", "bot_public": True, "bot_require_code_grant": False}
                return json_response(
                    {"id": BOT["id"], "name": "pegasus", "verify_key": "", "flags": 1 << 19, "owner": ANNA, **facts}
                )
            case ["GET", "gateway", "bot"]:
                limit = {"total": 1000, "remaining": 999, "reset_after": 1, "max_concurrency": 1}
                return json_response({"url": self._gateway_url(), "shards": 1, "session_start_limit": limit})
            case ["GET", "guilds", guild, "channels"] if guild == GUILD:
                last = self.messages[CHANNEL][-1]["id"] if self.messages[CHANNEL] else None
                return json_response([{"id": CHANNEL, "last_message_id": last, **TEXT_CHANNEL}])
            case ["GET", "guilds", guild, "threads", "active"] if guild == GUILD:
                return json_response({"threads": [], "members": []})
            case ["POST", "interactions", id, token, "callback"]:
                if token != f"click-{id}" or id in self.clicks:
                    return discord_error(404, 10062, "Unknown interaction")
                self.clicks.append(id)
                if query.get("with_response") not in ("1", "true"):
                    return ServiceResponse(204)
                return json_response({"interaction": {"id": id, "type": 3}, "resource": {"type": 6}})
            case [_, "channels", channel_id, *_] if channel_id not in self.messages:
                return discord_error(404, 10003, "Unknown Channel")
            case ["POST", "channels", channel_id, "typing"]:
                self.typing.append(channel_id)
                return ServiceResponse(204)
            case ["POST", "channels", channel_id, "messages"]:
                return await self._create_message(channel_id, request)
            case ["GET", "channels", channel_id, "messages"]:
                after, most = int(query.get("after", 0)), int(query.get("limit", 50))
                if not 1 <= most <= 100:
                    return discord_error(400, 50035, "Invalid Form Body")
                found = [message for message in self.messages[channel_id] if int(message["id"]) > after]
                return json_response(found[:most][::-1])
        return discord_error(404, 0, "404: Not Found")

    async def _create_message(self, channel_id: str, request: ServiceRequest) -> ServiceResponse:
        try:
            body, files = _read_form(request)
        except ValueError:
            return discord_error(400, 50109, "The request body contains invalid JSON.")
        content, nonce = body.get("content") or "", body.get("nonce")
        if not content and not files and not body.get("components"):
            return discord_error(400, 50006, "Cannot send an empty message")
        if len(content) > MOST_CHARACTERS or len(str(nonce or "")) > 25 or len(files) > 10:
            return discord_error(400, 50035, "Invalid Form Body")
        await self.points.reach(Step.SENDING)
        if not (nonce and body.get("enforce_nonce") and nonce in self._nonces):
            attachments = []
            for name, mime, data in files:
                path = f"/attachments/{next(self._ids)}/{name}"
                self.uploads[path] = (mime, data)
                address = self.base_url + path
                facts = {
                    "filename": name,
                    "content_type": mime,
                    "size": len(data),
                    "url": address,
                    "proxy_url": address,
                }
                attachments.append({"id": str(next(self._ids)), **facts})
            more = {key: body[key] for key in ("components", "allowed_mentions") if key in body}
            message = self.say(content, BOT, channel_id, attachments=attachments, nonce=nonce, **more)
            self._nonces[str(nonce)] = message
        await self.points.reach(Step.SENT)
        return json_response(self._nonces[str(nonce)])

    # ---------------------------------------------------------------- the gateway

    async def upgrade(self, stream: trio.abc.Stream, request: h11.Request, rest: bytes) -> None:
        """Serve a connection of the gateway."""
        if self.is_down:
            return
        query = parse_qs(urlsplit(request.target.decode()).query)
        socket = WebSocket(stream, 4096)
        async with stream:
            try:
                await socket.accept("", Handshake(request, rest))
                connection = _DiscordConnection(self, socket, query.get("compress") == ["zlib-stream"])
                await connection.run()
            except* (WebSocketClosed, BadMessage, StepCut):
                pass

    def connect(self, session: DiscordSession, connection: _DiscordConnection) -> None:
        """Give a session to a connection, and take it from the one before."""
        self._connections[session.id] = connection
        self._notify()

    def new_session(self, intents: int) -> DiscordSession:
        """Begin a session."""
        session = DiscordSession(f"session-{next(self._ids)}", intents)
        self.sessions[session.id] = session
        url, guilds = self._gateway_url(), [{"id": GUILD, "unavailable": True}]
        more = {"session_id": session.id, "resume_gateway_url": url, "application": {"id": BOT["id"], "flags": 0}}
        session.events.append(("READY", {"v": 10, "user": BOT, "guilds": guilds, **more}))
        return session

    def note_change(self) -> None:
        """Wake up those who wait."""
        self._notify()

    def is_current(self, session: DiscordSession, connection: _DiscordConnection) -> bool:
        """Return whether no other connection has the session now."""
        return self._connections.get(session.id) is connection

    async def change(self) -> None:
        """Wait until something happens."""
        await self._changed.wait()

    def _gateway_url(self) -> str:
        return self.base_url.replace("http://", "ws://")

    def _in_guild(self, message: Mapping[str, Any]) -> dict[str, Any]:
        return {**message, **({} if message["channel_id"] == DIRECT else {"guild_id": GUILD, "member": {"roles": []}})}

    def _dispatch(self, name: str, data: Any) -> None:
        for session in self.sessions.values():
            session.events.append((name, data))
        self._notify()

    def _notify(self) -> None:
        changed, self._changed = self._changed, trio.Event()
        changed.set()


class _DiscordConnection:
    """One connection of the gateway."""

    def __init__(self, service: DiscordService, socket: WebSocket, compresses: bool) -> None:
        self._service = service
        self._socket = socket
        self._deflater = zlib.compressobj() if compresses else None
        self._session: DiscordSession | None = None
        self._nursery: trio.Nursery

    async def run(self) -> None:
        """Serve it until its end."""
        async with trio.open_nursery() as self._nursery:
            await self._send({"op": 10, "d": {"heartbeat_interval": round(self._service.heartbeat * 1000)}})
            while True:
                await self._handle(decode_object(await self._socket.receive()))

    def end(self, code: int | None) -> None:
        """End it, with this close code or without one."""
        if code is None:
            self._nursery.cancel_scope.cancel()
        else:
            self._nursery.start_soon(self._socket.close, code)

    async def _handle(self, frame: Mapping[str, Any]) -> None:
        match frame:
            case {"op": 1} if not self._service.is_mute:
                await self._send({"op": 11})
            case {"op": 1}:
                pass
            case {"op": 2, "d": {"token": token, "intents": int(intents)}} if self._session is None:
                if token != TOKEN:
                    await self._socket.close(4004, "Authentication failed.")
                elif intents & ~self._service.allowed_intents:
                    await self._socket.close(4014, "Disallowed intent(s).")
                else:
                    self._service.greetings.append("identify")
                    self._begin(self._service.new_session(intents), 0)
            case {"op": 6, "d": {"token": token, "session_id": id, "seq": int(seq)}} if self._session is None:
                session = self._service.sessions.get(str(id))
                if token != TOKEN:
                    await self._socket.close(4004, "Authentication failed.")
                elif session is None:
                    await self._send({"op": 9, "d": False})
                elif seq > len(session.events):
                    await self._socket.close(4007, "Invalid seq.")
                else:
                    self._service.greetings.append("resume")
                    self._begin(session, seq)
            case {"op": 3 | 4 | 8}:
                pass
            case _:
                await self._socket.close(4002, "Error while decoding payload.")

    def _begin(self, session: DiscordSession, seq: int) -> None:
        self._session = session
        self._service.connect(session, self)
        self._nursery.start_soon(self._send_events, session, seq)

    async def _send_events(self, session: DiscordSession, seq: int) -> None:
        """Send the events behind this number, and those that come. A session that is resumed gets RESUMED behind the missed ones."""
        missed = len(session.events) if seq else 0
        while self._service.is_current(session, self):
            while seq < len(session.events):
                name, data = session.events[seq]
                if name == "MESSAGE_CREATE" and data["author"] != BOT:
                    await self._service.points.reach(Step.HANDING_OUT)
                seq += 1
                await self._send({"op": 0, "t": name, "s": seq, "d": data})
            if missed:
                missed = 0
                await self._send({"op": 0, "t": "RESUMED", "s": seq, "d": {}})
            await self._service.change()
        self._nursery.cancel_scope.cancel()

    async def _send(self, frame: Mapping[str, Any]) -> None:
        text = encode_json({"t": None, "s": None, **frame})
        if self._deflater is None:
            await self._socket.write([text])
        else:
            await self._socket.write([self._deflater.compress(text.encode()) + self._deflater.flush(zlib.Z_SYNC_FLUSH)])


def _read_form(request: ServiceRequest) -> tuple[dict[str, Any], list[tuple[str, str, bytes]]]:
    """Return the fields and the files of a message. Raises ValueError."""
    kind = request.headers.get("content-type", "")
    if not kind.startswith("multipart/form-data"):
        return decode_object(request.body), []
    head = f"Content-Type: {kind}\r\n\r\n".encode()
    form = email.message_from_bytes(head + request.body, policy=email.policy.HTTP)
    fields: dict[str, Any] = {}
    files = []
    for part in form.iter_parts():
        content = bytes(part.get_payload(decode=True))
        if (name := part.get_filename()) is not None:
            files.append((name, part.get_content_type(), content))
        elif part.get_param("name", header="content-disposition") == "payload_json":
            fields = decode_object(content)
    return fields, files
