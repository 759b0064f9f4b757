"""A bridge between Matrix and the agent: rooms that the bot's account has joined become conversations.

    pegasus token add matrix --type matrix --bridge
    MATRIX_URL=https://matrix.example.org MATRIX_TOKEN=… PEGASUS_TOKEN=… python examples/matrix_bridge.py

It speaks Matrix's client-server API (https://spec.matrix.org/latest/client-server-api/). `[channels.matrix]` in pegasus.toml decides
who may write, MATRIX_INVITERS who may invite the bot: people and servers, as "@anna:example.org example.net", or "*". Without it
these are the people of the bot's own server.

Delivery is exactly-once. The place in Matrix's stream (`next_batch`) is noted when the messages before it are on the agent's disk,
and Matrix recognises a message that is sent twice by its transaction id.

Encrypted rooms cannot be read: the bot says so there, once for each start. What was deleted on Matrix before the agent had it is not
heard; the agent keeps what it has.
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import anyio
import httpx2
from markdown_it import MarkdownIt

from pegasus.bridge import Incoming, Messenger, Outgoing, Undeliverable, variables

SYNC_SECONDS = 30
"""Seconds that Matrix holds a request open while nothing happens."""
MOST_FILE_BYTES = 10_000_000
LONGEST_PAUSE = 600.0
"""Seconds after which a server is asked again, however long it wants to be left alone."""
MOST_HTML_BYTES = 30_000
"""An event has 65,536 bytes at most. A text whose HTML is longer is sent without it."""
FILES = {"m.image": "image/", "m.audio": "audio/", "m.video": "video/", "m.file": ""}
"""Kinds of messages with a file, with the beginning of its MIME type."""

log = logging.getLogger("matrix")
markdown = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])


class MatrixMessenger(Messenger):
    type = "matrix"
    delivery = "exactly-once"
    most_characters = 20_000

    def __init__(self, url: str, token: str, inviters: Sequence[str] = ()) -> None:
        headers, timeout = {"Authorization": f"Bearer {token}"}, httpx2.Timeout(30, read=SYNC_SECONDS + 30)
        self.http = httpx2.AsyncClient(base_url=url, headers=headers, timeout=timeout)
        self.inviters = set(inviters)
        self.user_id = ""
        self.members: dict[str, int] = {}
        """By room, how many people are in it."""
        self.told: set[str] = set()
        """Encrypted rooms that were told that they cannot be read."""

    def measure(self, text: str) -> int:
        """Count bytes."""
        return len(text.encode())

    async def call(self, method: str, *path: str, **options: Any) -> httpx2.Response:
        """Call the API; wait where it asks for that. Raises Undeliverable for what would fail again, HTTPError for the rest."""
        place = "/_matrix/" + "/".join([path[0], *(quote(part, safe="") for part in path[1:])])
        while True:
            response = await self.http.request(method, place, **options)
            if response.status_code == 429:
                await anyio.sleep(pause_of(response))
            else:
                return require_success(response)

    # ---------------------------------------------------------------- from Matrix to the agent

    async def listen(self, cursor: str) -> AsyncGenerator[Incoming | str, None]:
        """Yield what people write. The first start hears no history."""
        self.user_id = (await self.call("GET", "client/v3/account/whoami")).json()["user_id"]
        while True:
            params = {"since": cursor, "timeout": SYNC_SECONDS * 1000} if cursor else {"timeout": 0}
            answer = (await self.call("GET", "client/v3/sync", params=params)).json()
            rooms = answer.get("rooms", {})
            for room_id, room in rooms.get("invite", {}).items():
                await self.answer_invitation(room_id, room.get("invite_state", {}).get("events", []))
            for room_id, room in rooms.get("join", {}).items():
                count = room.get("summary", {}).get("m.joined_member_count")
                self.members[room_id] = count or self.members.get(room_id, 2)
                for event in await self.events_of(room_id, room.get("timeline", {}), cursor):
                    try:
                        message = await self.read_event(room_id, event)
                    except (AttributeError, KeyError, TypeError) as error:  # people can put anything into an event
                        log.warning("%s in %s cannot be read: %r", event.get("event_id"), room_id, error)
                        continue
                    if message is not None:
                        yield message
                        await self.mark_read(room_id, event["event_id"])
            cursor = answer["next_batch"]
            yield cursor

    async def events_of(self, room_id: str, timeline: Mapping[str, Any], since: str) -> list[Mapping[str, Any]]:
        """Return what happened in a room since then, the oldest first."""
        events = list(timeline.get("events", [])) if since else []
        place = timeline.get("prev_batch") if since and timeline.get("limited") else None
        while place:  # so much has happened that the answer has only the end of it
            params = {"dir": "b", "from": place, "to": since, "limit": 100}
            page = (await self.call("GET", "client/v3/rooms", room_id, "messages", params=params)).json()
            events[:0] = reversed(page["chunk"])
            place = page.get("end") if page["chunk"] else None
        return events

    async def answer_invitation(self, room_id: str, state: Sequence[Mapping[str, Any]]) -> None:
        """Join, if the bot may be invited by this person, else decline."""
        # Several, if the server of whoever invites has added events of others. So all of them must be allowed to.
        inviters = {event["sender"] for event in state if event.get("state_key") == self.user_id}
        allowed = self.inviters or {self.user_id.partition(":")[2]}
        is_allowed = all({"*", each, each.partition(":")[2]} & allowed for each in inviters or {""})
        try:
            await self.call("POST", "client/v3/rooms", room_id, "join" if is_allowed else "leave", json={})
        except Undeliverable as error:
            log.warning("the invitation of %s to %s was not answered: %s", ", ".join(inviters), room_id, error)

    async def read_event(self, room_id: str, event: Mapping[str, Any]) -> Incoming | None:
        """Return the message of a person, None for anything else."""
        content, sender = event.get("content", {}), event.get("sender")
        if event.get("type") == "m.room.encrypted" and sender != self.user_id:
            await self.say_that_it_is_encrypted(room_id)
        if event.get("type") != "m.room.message" or sender == self.user_id:
            return None
        relation = content.get("m.relates_to", {})
        is_edit = relation.get("rel_type") == "m.replace"
        if is_edit:
            content = content.get("m.new_content", {})
        kind = content.get("msgtype")
        if kind not in {"m.text", "m.emote", *FILES}:
            return None  # notices are what bots say; nothing is left of what was deleted
        text, files, quotes = str(content.get("body", "")), [], []
        if kind in FILES:
            name = str(content.get("filename", text))
            text = text if text != name else ""  # a caption
            try:
                files.append((name, *await self.download(content)))
            except Undeliverable as error:
                text = f"{text}\n[file {name}: {error}]".strip()
        thread = relation.get("event_id") if relation.get("rel_type") == "m.thread" else None
        answered = relation.get("m.in_reply_to", {}).get("event_id")
        if answered and not relation.get("is_falling_back"):
            text = without_fallback(text)
            quotes = await self.quote(room_id, answered)
        is_group = self.members.get(room_id, 2) > 2
        mentions = content.get("m.mentions", {}).get("user_ids", [])
        return Incoming(
            f"(This message was edited. It now reads:)\n{text}" if is_edit else text,
            room_id,
            sender,
            id=event["event_id"],
            thread=thread,
            is_group=is_group,
            is_mentioned=self.user_id in mentions or self.user_id in text,
            files=tuple(files),
            metadata={"quotes": quotes} if quotes else {},
        )

    async def download(self, content: Mapping[str, Any]) -> tuple[str, bytes]:
        """Return MIME type and bytes of a file. Raises Undeliverable."""
        info, place = content.get("info", {}), str(content.get("url", ""))
        server, slash, media_id = place.removeprefix("mxc://").partition("/")
        if not slash:
            raise Undeliverable("it is encrypted, or has no address")
        if info.get("size", 0) > MOST_FILE_BYTES:
            raise Undeliverable("it is too large")
        place = f"/_matrix/client/v1/media/download/{quote(server, safe='')}/{quote(media_id, safe='')}"
        async with self.http.stream("GET", place) as response:
            if response.is_error:
                await response.aread()
            require_success(response)
            data = b""
            with anyio.CancelScope() as scope:
                async for piece in response.aiter_bytes():
                    data += piece
                    if len(data) > MOST_FILE_BYTES:  # whatever its size was said to be
                        scope.cancel()
        if len(data) > MOST_FILE_BYTES:
            raise Undeliverable("it is too large")
        return str(info.get("mimetype", "application/octet-stream")), data

    async def quote(self, room_id: str, event_id: str) -> list[dict[str, str]]:
        """Return the message that was answered, as the agent is shown it; [] if it cannot be had."""
        try:
            event = (await self.call("GET", "client/v3/rooms", room_id, "event", event_id)).json()
        except Undeliverable:
            return []
        body = event.get("content", {}).get("body")
        return [{"kind": "answers", "author": event["sender"], "text": str(body)}] if body else []

    async def mark_read(self, room_id: str, event_id: str) -> None:
        """Tell people that the agent has the message."""
        try:
            await self.call("POST", "client/v3/rooms", room_id, "receipt", "m.read", event_id, json={})
        except Undeliverable as error:
            log.info("no receipt for %s: %s", event_id, error)

    async def say_that_it_is_encrypted(self, room_id: str) -> None:
        """Say it, unless that was done since the start."""
        if room_id not in self.told:
            self.told.add(room_id)
            text = "This room is encrypted, and I cannot read it. Please invite me to a room without encryption."
            try:
                await self.post(room_id, f"encrypted-{room_id}", {"msgtype": "m.notice", "body": text})
            except Undeliverable as error:
                log.warning("%s is encrypted, and could not be told: %s", room_id, error)

    # ---------------------------------------------------------------- from the agent to Matrix

    async def send(self, reply: Outgoing) -> None:
        """Send a part of a reply and its files."""
        contents: list[dict[str, Any]] = []
        if reply.text.strip():
            contents.append({"msgtype": "m.text", "body": reply.text})
            if len((html := markdown.render(reply.text)).encode()) <= MOST_HTML_BYTES:
                contents[0] |= {"format": "org.matrix.custom.html", "formatted_body": html}
        for name, mime, data in reply.files:
            options = {"params": {"filename": name}, "content": data, "headers": {"Content-Type": mime}}
            try:
                address = (await self.call("POST", "media/v3/upload", **options)).json()["content_uri"]
            except Undeliverable as error:  # too large for this server
                contents.append({"msgtype": "m.notice", "body": f"[file {name}: {error}]"})
                continue
            kind = next(kind for kind, begin in FILES.items() if mime.startswith(begin))
            info = {"mimetype": mime, "size": len(data)}
            contents.append({"msgtype": kind, "body": name, "filename": name, "url": address, "info": info})
        for number, content in enumerate(contents):
            if reply.thread:
                content["m.relates_to"] = {"rel_type": "m.thread", "event_id": reply.thread}
            # Mentions are these alone, whatever the text looks like.
            await self.post(reply.channel_id, f"{reply.key}-{number}", {**content, "m.mentions": {}})

    async def post(self, room_id: str, key: str, content: Mapping[str, Any]) -> None:
        """Send an event. The key makes a second time harmless."""
        await self.call("PUT", "client/v3/rooms", room_id, "send", "m.room.message", key, json=content)

    async def show_typing(self, channel_id: str, is_active: bool) -> None:
        """Show that the agent thinks."""
        content = {"typing": True, "timeout": 30_000} if is_active else {"typing": False}
        await self.call("PUT", "client/v3/rooms", channel_id, "typing", self.user_id, json=content)


def without_fallback(body: str) -> str:
    """Remove the quotation that older apps put before an answer."""
    lines = body.split("\n")
    while lines and lines[0].startswith("> "):
        lines.pop(0)
    return "\n".join(lines).lstrip("\n") if len(lines) < body.count("\n") + 1 else body


def require_success(response: httpx2.Response) -> httpx2.Response:
    """Return the answer. Raises Undeliverable for what would fail again, HTTPError for the rest."""
    if 400 <= response.status_code < 500 and response.status_code not in (401, 429):  # a token can be renewed
        problem = read_json(response)
        raise Undeliverable(f"{problem.get('errcode', response.status_code)}: {problem.get('error', '')}")
    return response.raise_for_status()


def pause_of(response: httpx2.Response) -> float:
    """Return for how many seconds the server does not want to be called."""
    try:
        pause = float(response.headers["Retry-After"])
    except (KeyError, ValueError):
        pause = float(read_json(response).get("retry_after_ms", 1000)) / 1000
    return min(LONGEST_PAUSE, pause)


def read_json(response: httpx2.Response) -> dict[str, Any]:
    """Return the JSON object of an answer, {} if it has none."""
    try:
        value = response.json()
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


if __name__ == "__main__":
    settings = variables("MATRIX_URL", "MATRIX_TOKEN", "PEGASUS_TOKEN")
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    inviters = os.environ.get("MATRIX_INVITERS", "").split()
    MatrixMessenger(settings["MATRIX_URL"], settings["MATRIX_TOKEN"], inviters).run()
