"""A bridge between Matrix and the agent: rooms that the bot's account has joined become conversations.

    pegasus token add matrix --type matrix --bridge
    MATRIX_URL=https://matrix.example.org MATRIX_TOKEN=… PEGASUS_TOKEN=… python examples/matrix_bridge.py

It accepts invitations, hears text and files in rooms that are not encrypted, and answers as Markdown. `[channels.matrix]` in
pegasus.toml decides who may write. It speaks Matrix's client-server API (https://spec.matrix.org/latest/client-server-api/).

How nothing gets lost: the place in Matrix's stream (`next_batch`) is written down when the messages before it are on the agent's disk,
and Matrix recognises a reply that is sent twice by its transaction id.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio
import attrs
import httpx2
from markdown_it import MarkdownIt

from pegasus.bridge import Bridge, BridgeRefused, files_of, reply_id
from pegasus.messages import OutboundMessage, Typing

SYNC_SECONDS = 30
"""Seconds that Matrix holds a request open while nothing happens."""
LONGEST_PAUSE = 60.0
MOST_FILE_BYTES = 10_000_000
FILES = {"m.image", "m.file", "m.audio", "m.video"}

log = logging.getLogger("matrix")
markdown = MarkdownIt("commonmark", {"html": False})


class MatrixRefused(Exception):
    """Matrix will never do this, such as writing to a room that the bot has left."""


@attrs.define
class MatrixRooms:
    """The two ways between one Matrix account and a bridge."""

    http: httpx2.AsyncClient
    bridge: Bridge
    state: Path
    """File with the place in Matrix's stream."""
    user_id: str = ""
    members: dict[str, int] = attrs.field(factory=dict)
    """By room, how many people are in it."""

    async def call(self, method: str, path: str, **options: Any) -> httpx2.Response:
        """Call Matrix until it answers: outages and rate limits are waited for. Raises MatrixRefused."""
        pause = 0.5
        while True:
            try:
                response = await self.http.request(method, path, **options)
            except httpx2.TransportError as error:
                log.warning("Matrix is out of reach: %s", type(error).__name__)
            else:
                if response.status_code < 400:
                    return response
                problem = read_json(response)
                if response.status_code < 500 and response.status_code != 429:
                    raise MatrixRefused(f"{problem.get('errcode', response.status_code)}: {problem.get('error', '')}")
                pause = max(pause, float(problem.get("retry_after_ms", 0)) / 1000)
            await anyio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    # ---------------------------------------------------------------- from Matrix to the agent

    async def hear(self) -> None:
        """Hand over what people write, for ever."""
        self.user_id = (await self.call("GET", "/_matrix/client/v3/account/whoami")).json()["user_id"]
        since = self.state.read_text() if self.state.exists() else ""
        while True:
            timeout = SYNC_SECONDS * 1000 if since else 0
            params = {"timeout": timeout, **({"since": since} if since else {})}
            answer = (await self.call("GET", "/_matrix/client/v3/sync", params=params)).json()
            rooms = answer.get("rooms", {})
            for room_id in rooms.get("invite", {}):
                await self.join(room_id)
            for room_id, room in rooms.get("join", {}).items():
                count = room.get("summary", {}).get("m.joined_member_count")
                self.members[room_id] = count or self.members.get(room_id, 2)
                for event in await self.events_of(room_id, room.get("timeline", {}), since):
                    await self.hear_event(room_id, event)
            since = answer["next_batch"]
            write_whole(self.state, since)

    async def events_of(self, room_id: str, timeline: Mapping[str, Any], since: str) -> list[Mapping[str, Any]]:
        """Return what happened in a room since then, the oldest first; nothing of the time before the first start."""
        events = list(timeline.get("events", [])) if since else []
        place = timeline.get("prev_batch") if since and timeline.get("limited") else None
        path = f"/_matrix/client/v3/rooms/{quote(room_id)}/messages"
        while place:  # so much has happened that the answer has only the end of it
            params = {"dir": "b", "from": place, "to": since, "limit": 100}
            page = (await self.call("GET", path, params=params)).json()
            events[:0] = reversed(page["chunk"])
            place = page.get("end") if page["chunk"] else None
        return events

    async def join(self, room_id: str) -> None:
        """Accept an invitation."""
        try:
            await self.call("POST", f"/_matrix/client/v3/join/{quote(room_id)}", json={})
        except MatrixRefused as error:
            log.warning("cannot join %s: %s", room_id, error)

    async def hear_event(self, room_id: str, event: Mapping[str, Any]) -> None:
        """Hand over one event, if it is a message of a person; return when it is on the agent's disk."""
        content = event.get("content", {})
        kind = content.get("msgtype")
        if event.get("type") != "m.room.message" or event["sender"] == self.user_id or kind not in {"m.text", *FILES}:
            return  # notices are what bots say
        text, files = str(content.get("body", "")), []
        if kind in FILES:
            try:
                files.append(await self.download(content))
            except MatrixRefused as error:
                text = f"[file {text}: {error}]"
        relation = content.get("m.relates_to", {})
        thread = relation["event_id"] if relation.get("rel_type") == "m.thread" else None
        is_group = self.members.get(room_id, 2) > 2
        named = self.user_id in content.get("m.mentions", {}).get("user_ids", []) or self.user_id in text
        try:
            await self.bridge.send(
                text,
                room_id,
                user_id=event["sender"],
                reply_to=thread,
                id=event["event_id"],
                metadata={"group": is_group, "mentioned": named or not is_group},
                files=files,
            )
        except BridgeRefused as error:
            log.warning("%s in %s was not heard: %s", event["sender"], room_id, error)

    async def download(self, content: Mapping[str, Any]) -> tuple[str, str, bytes]:
        """Return name, MIME type and bytes of a file."""
        info, place = content.get("info", {}), str(content.get("url", ""))
        if not place.startswith("mxc://"):
            raise MatrixRefused("it is encrypted")
        if info.get("size", 0) > MOST_FILE_BYTES:
            raise MatrixRefused("it is too large")
        response = await self.call("GET", f"/_matrix/client/v1/media/download/{quote(place.removeprefix('mxc://'))}")
        return str(content.get("body", "file")), str(info.get("mimetype", "application/octet-stream")), response.content

    # ---------------------------------------------------------------- from the agent to Matrix

    async def speak(self) -> None:
        """Bring replies to their rooms, for ever. The next one is asked for when Matrix has taken the one before."""
        while True:
            event = await self.bridge.next_event()
            try:
                if isinstance(event, OutboundMessage):
                    await self.post(event)
                elif isinstance(event, Typing):
                    who = f"/_matrix/client/v3/rooms/{quote(event.channel.channel_id)}/typing/{quote(self.user_id)}"
                    await self.call(
                        "PUT", who, json={"typing": event.active, **({"timeout": 30_000} if event.active else {})}
                    )
            except MatrixRefused as error:
                log.warning("%s was not told: %s", event.channel.channel_id, error)

    async def post(self, reply: OutboundMessage) -> None:
        """Send a reply and its files. The transaction ids make a second time harmless."""
        contents: list[dict[str, Any]] = []
        if reply.text.strip():
            html = markdown.render(reply.text)
            contents.append(
                {"msgtype": "m.text", "body": reply.text, "format": "org.matrix.custom.html", "formatted_body": html}
            )
        for name, mime, data in files_of(reply):
            upload = await self.call(
                "POST",
                "/_matrix/media/v3/upload",
                params={"filename": name},
                content=data,
                headers={"Content-Type": mime},
            )
            kind = "m.image" if mime.startswith("image/") else "m.file"
            info = {"mimetype": mime, "size": len(data)}
            contents.append({"msgtype": kind, "body": name, "url": upload.json()["content_uri"], "info": info})
        room = f"/_matrix/client/v3/rooms/{quote(reply.channel.channel_id)}/send/m.room.message"
        for number, content in enumerate(contents):
            if reply.channel.reply_to:
                content["m.relates_to"] = {"rel_type": "m.thread", "event_id": reply.channel.reply_to}
            await self.call("PUT", f"{room}/{reply_id(reply)}-{number}", json=content)


def read_json(response: httpx2.Response) -> dict[str, Any]:
    """Return the JSON object of an answer, {} if it has none."""
    try:
        value = response.json()
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def write_whole(path: Path, text: str) -> None:
    """Write a small file so that it holds the old or the new text, whatever happens."""
    new = path.with_suffix(".new")
    with new.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


async def run(matrix_url: str, matrix_token: str, pegasus_url: str, pegasus_token: str, state: Path) -> None:
    """Run the bridge until cancelled."""
    headers = {"Authorization": f"Bearer {matrix_token}"}
    timeout = httpx2.Timeout(30, read=SYNC_SECONDS + 30)
    async with (
        httpx2.AsyncClient(base_url=matrix_url, headers=headers, timeout=timeout) as http,
        Bridge(pegasus_url, pegasus_token, "matrix") as bridge,
        anyio.create_task_group() as tasks,
    ):
        rooms = MatrixRooms(http, bridge, state)
        tasks.start_soon(rooms.hear)
        tasks.start_soon(rooms.speak)


def require_variables(*names: str) -> None:
    """End the program with a sentence if variables of the environment are missing."""
    if missing := [name for name in names if not os.environ.get(name)]:
        sys.exit(f"not set: {', '.join(missing)}; the beginning of this file shows how to start it")


if __name__ == "__main__":
    require_variables("MATRIX_URL", "MATRIX_TOKEN", "PEGASUS_TOKEN")
    logging.basicConfig(level=logging.INFO)
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    anyio.run(
        run,
        os.environ["MATRIX_URL"],
        os.environ["MATRIX_TOKEN"],
        os.environ.get("PEGASUS_URL", "ws://127.0.0.1:7717"),
        os.environ["PEGASUS_TOKEN"],
        Path(os.environ.get("MATRIX_STATE", "matrix-bridge.state")),
    )
