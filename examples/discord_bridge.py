"""A bridge between Discord and the agent: channels, threads and direct messages that the bot can read become conversations.

    pegasus token add discord --type discord --bridge
    DISCORD_TOKEN=… PEGASUS_TOKEN=… python examples/discord_bridge.py

The bot needs the Message Content Intent, a switch on its page in Discord's developer portal. `[channels.discord]` in pegasus.toml
decides who may write. The bridge speaks the HTTP API and the gateway of https://discord.com/developers/docs, version 10.

Nothing is lost: the place in Discord's stream is noted when the agent has a message, a connection that breaks is resumed there, and
after a longer absence what was written meanwhile is read from the channels. A message that is sent twice has the same nonce. Discord
recognises it for some minutes, so only a bridge that was killed while it sent, and comes back later, can show a text twice.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import random
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import anyio
import httpx2

from pegasus.bridge import Incoming, Messenger, Outgoing, Undeliverable, variables
from pegasus.client import open_websocket
from pegasus.protocol import WebSocketClosed
from pegasus.websocket import WebSocket

API = "https://discord.com/api/v10"
INTENTS = 1 << 9 | 1 << 12 | 1 << 15
"""Messages of servers, direct messages, and their content."""
HEARTBEAT, IDENTIFY, RESUME = 1, 2, 6
"""Opcodes of what the bridge sends. It receives 0: an event, 7: connect again, 9: the session is over, 11: a heartbeat has come."""
FINAL = {
    4004: "DISCORD_TOKEN is not the token of a bot",
    4014: "switch on the Message Content Intent for the bot in Discord's developer portal",
}
"""Reasons that a person must remove, by close code. Others from 4010 on are of the same kind."""
FINAL_PAUSE = 600
"""Seconds before such an attempt is repeated: Discord takes the token away from a bot that greets it 1,000 times a day.

No other pause is longer."""
NEW_SESSION = {1000, 1001, 4003, 4007, 4009}
"""Close codes after which nothing can be resumed."""
KEEP_SESSION = 4000
"""Close code that leaves the session to be resumed, which 1000 does not."""
WRITTEN = {0, 19}
"""Types of messages that somebody has written: plain ones and answers."""
MOST_FILE_BYTES = 10 << 20
MOST_FILES = 10

log = logging.getLogger("discord")


class DiscordMessenger(Messenger):
    type = "discord"
    delivery = "at-least-once"
    most_characters = 2000

    def __init__(self, token: str, api: str = API) -> None:
        self.token = token
        self.http = httpx2.AsyncClient(base_url=api, headers={"Authorization": f"Bot {token}"}, timeout=30)
        self.files = httpx2.AsyncClient(timeout=60)  # for another server, which must not see the token
        self.bot_id = ""
        self.session, self.resume_url, self.seq, self.last = "", "", 0, 0
        """Place in the stream: its session, where that is resumed, its last event; and the last message, whatever the session."""
        self.interval, self.beat_at, self.is_answered = 0.0, 0.0, True
        """Seconds between heartbeats, the time of the next one, and whether the last one was answered."""
        self.ended = ""
        """The session that cannot be resumed."""
        self.guilds: list[str] = []
        self.directs: list[str] = []
        """Channels of direct messages, which the API does not list."""

    async def call(self, method: str, path: str, **options: Any) -> Any:
        """Call the API; wait as long as it asks for. Raises Undeliverable for what would fail again, HTTPError for the rest."""
        while True:
            response = await self.http.request(method, path, **options)
            if response.status_code == 429:
                await anyio.sleep(min(FINAL_PAUSE, float(response.json()["retry_after"])))
                continue
            if 400 <= response.status_code < 500 and response.status_code != 401:
                raise Undeliverable(response.text[:200])
            response.raise_for_status()
            if response.headers.get("X-RateLimit-Remaining") == "0":
                await anyio.sleep(float(response.headers["X-RateLimit-Reset-After"]))
            return response.json() if response.content else None

    # ---------------------------------------------------------------- from Discord to the agent

    async def listen(self, cursor: str) -> AsyncGenerator[Incoming | str, None]:
        """Yield what people write, over one connection."""
        self.read_place(cursor)
        url = self.resume_url or (await self.call("GET", "/gateway/bot"))["url"]
        async with open_websocket(f"{url}/?v=10&encoding=json", 30, subprotocol="") as socket:
            try:
                await self.greet(socket)
                while True:
                    event, data = await self.next_event(socket)
                    if event == "READY":
                        self.begin_session(data)
                        for message in await self.missed_messages():
                            yield await self.incoming(message)
                    elif event == "INTERACTION_CREATE":
                        if (clicked := await self.take_click(data)) is not None:
                            yield clicked
                    elif event == "MESSAGE_CREATE" or (event == "MESSAGE_UPDATE" and data.get("edited_timestamp")):
                        self.last = max(self.last, int(data["id"]))
                        if self.is_written_to_us(data):
                            yield await self.incoming(data)
                    yield self.place()
            except WebSocketClosed as error:
                await self.look_at_end(error.code)
                raise
            finally:
                await socket.close(KEEP_SESSION)

    async def greet(self, socket: WebSocket) -> None:
        """Begin a session, or go on in the one that there is."""
        self.interval = json.loads(await socket.receive())["d"]["heartbeat_interval"] / 1000
        self.beat_at, self.is_answered = anyio.current_time() + self.interval * random.random(), True
        if self.session:
            await self.say(socket, RESUME, {"token": self.token, "session_id": self.session, "seq": self.seq})
        else:
            properties = {"os": "linux", "browser": "pegasus", "device": "pegasus"}
            await self.say(socket, IDENTIFY, {"token": self.token, "intents": INTENTS, "properties": properties})

    async def next_event(self, socket: WebSocket) -> tuple[str, dict[str, Any]]:
        """Return name and data of the next event; send a heartbeat whenever it is due. Raises WebSocketClosed."""
        while True:
            frame: dict[str, Any] = {"op": None}
            with anyio.move_on_after(self.beat_at - anyio.current_time()):
                frame = json.loads(await socket.receive())
            match frame["op"]:
                case 0:
                    self.seq = frame["s"]
                    return frame["t"], frame["d"]
                case 7:
                    raise WebSocketClosed(KEEP_SESSION, "Discord asks for another connection")
                case 9:
                    raise WebSocketClosed(KEEP_SESSION if frame["d"] else 4009, "the session is over")
                case 11:
                    self.is_answered = True
                case None if not self.is_answered:
                    raise WebSocketClosed(KEEP_SESSION, "Discord does not answer")
                case None | 1:
                    await self.say(socket, HEARTBEAT, self.seq or None)
                    self.beat_at, self.is_answered = anyio.current_time() + self.interval, False

    async def say(self, socket: WebSocket, op: int, data: Any) -> None:
        await socket.write([json.dumps({"op": op, "d": data})])

    async def look_at_end(self, code: int | None) -> None:
        """Forget a session that cannot be resumed; wait where only a person can help."""
        if code in FINAL or (code or 0) in range(4010, 4015):
            log.error("Discord refuses the bot: %s", FINAL.get(code or 0, f"close code {code}"))
            await anyio.sleep(FINAL_PAUSE)
        if code in NEW_SESSION:
            self.ended = self.session

    # ---------------------------------------------------------------- the place in the stream

    def place(self) -> str:
        """Return it as a cursor."""
        return json.dumps([self.session, self.resume_url, self.seq, self.last, self.bot_id, self.directs])

    def read_place(self, cursor: str) -> None:
        """Take the place from a cursor. What is behind it was not handed over, whatever this process has seen."""
        if cursor:
            self.session, self.resume_url, self.seq, self.last, self.bot_id, self.directs = json.loads(cursor)
        if self.session == self.ended:
            self.session = self.resume_url = ""

    def begin_session(self, ready: Mapping[str, Any]) -> None:
        self.session, self.resume_url = ready["session_id"], ready["resume_gateway_url"]
        self.bot_id, self.guilds = ready["user"]["id"], [guild["id"] for guild in ready["guilds"]]

    async def missed_messages(self) -> list[dict[str, Any]]:
        """Return what was written since the last message that is known. The first start hears no history, and notes its end."""
        lasts = {}
        for guild in self.guilds:
            found = await self.call("GET", f"/guilds/{guild}/channels")
            found += (await self.call("GET", f"/guilds/{guild}/threads/active"))["threads"]
            lasts |= {each["id"]: int(each.get("last_message_id") or 0) for each in found}
        if not self.last:
            self.last = max([1, *lasts.values()])
            return []
        since, missed = self.last, []
        channels = [*self.directs, *(channel for channel, last in lasts.items() if last > since)]
        for channel in channels:
            after, page = since, [{}] * 100
            while len(page) == 100:
                try:
                    page = await self.call("GET", f"/channels/{channel}/messages?limit=100&after={after}")
                except Undeliverable:  # a channel that the bot may not read
                    break
                if channel not in self.directs:
                    page = [{**message, "guild_id": "?"} for message in page]  # which this call leaves out
                missed += page
                after = max((int(message["id"]) for message in page), default=after)
            self.last = max(self.last, after)
        return sorted(filter(self.is_written_to_us, missed), key=lambda message: int(message["id"]))

    # ---------------------------------------------------------------- messages

    def is_written_to_us(self, message: Mapping[str, Any]) -> bool:
        """Return whether a person has written it."""
        is_bot = message["author"].get("bot", False) or "webhook_id" in message
        return not is_bot and message["author"]["id"] != self.bot_id and message.get("type", 0) in WRITTEN

    async def incoming(self, message: Mapping[str, Any]) -> Incoming:
        """Return a message as the agent takes it."""
        channel, is_group = message["channel_id"], "guild_id" in message
        if not is_group and channel not in self.directs:
            self.directs.append(channel)
        text, edited = readable(message), message.get("edited_timestamp")
        answered = message.get("referenced_message") or {}
        quotes = (
            [{"kind": "answers", "author": answered["author"]["username"], "text": readable(answered)}]
            if answered
            else []
        )
        quotes += [
            {"kind": "forwards", "author": "", "text": shot["message"].get("content", "")}
            for shot in message.get("message_snapshots", [])
        ]
        files = []
        for each in message.get("attachments", []):
            try:
                files.append((each["filename"], each.get("content_type") or "", await self.download(each)))
            except (Undeliverable, httpx2.HTTPStatusError) as error:
                text = f"{text}\n[file {each['filename']}: {error}]".strip()
        meant = {each["id"] for each in message.get("mentions", [])} | (
            {answered["author"]["id"]} if answered else set()
        )
        return Incoming(
            f"(This message was edited. It now reads:)\n{text}" if edited else text,
            channel,
            message["author"]["id"],
            id=f"{message['id']}/{edited}" if edited else message["id"],
            is_group=is_group,
            is_mentioned=self.bot_id in meant,
            files=tuple(files),
            metadata={"quotes": [quote for quote in quotes if quote["text"]]},
        )

    async def download(self, attachment: Mapping[str, Any]) -> bytes:
        if attachment["size"] > MOST_FILE_BYTES:
            raise Undeliverable("it is too large")
        return (await self.files.get(attachment["url"])).raise_for_status().content

    async def take_click(self, interaction: Mapping[str, Any]) -> Incoming | None:
        """Answer a click on a button, which Discord waits for 3 seconds; return what the button means."""
        if interaction["type"] != 3:  # a component of a message
            return None
        who = (interaction.get("member") or interaction)["user"]["id"]
        try:
            await self.call(
                "POST", f"/interactions/{interaction['id']}/{interaction['token']}/callback", json={"type": 6}
            )
        except Undeliverable as error:
            log.info("a click was answered too late, and counts all the same: %s", error)
        command = interaction["data"]["custom_id"]
        return Incoming(
            command, interaction["channel_id"], who, id=interaction["id"], is_group="guild_id" in interaction
        )

    # ---------------------------------------------------------------- from the agent to Discord

    async def send(self, reply: Outgoing) -> None:
        """Send a part of a reply and its files."""
        taken = [file for file in reply.files if len(file[2]) <= MOST_FILE_BYTES]
        text = "\n".join(
            [
                reply.text,
                *[f"[file {name}: it is too large]" for name, _, data in reply.files if len(data) > MOST_FILE_BYTES],
            ]
        )
        batches = [taken[at : at + MOST_FILES] for at in range(0, len(taken), MOST_FILES)] or [[]]
        for number, files in enumerate(batches):
            content: dict[str, Any] = {
                # 25 characters at most.
                "nonce": hashlib.sha256(f"{reply.key}-{number}".encode()).hexdigest()[:24],
                "enforce_nonce": True,
                "allowed_mentions": {"parse": []},
            }
            if number == 0:
                content["content"] = text.strip()
                content["components"] = action_row(reply)
            options: dict[str, Any] = {"json": content}
            if files:
                parts = {f"files[{at}]": (name, data, mime) for at, (name, mime, data) in enumerate(files)}
                options = {"files": parts, "data": {"payload_json": json.dumps(content)}}
            await self.call("POST", f"/channels/{reply.channel_id}/messages", **options)

    async def show_typing(self, channel_id: str, is_active: bool) -> None:
        """Show that the agent thinks; Discord ends that by itself."""
        if is_active:
            await self.call("POST", f"/channels/{channel_id}/typing")


def readable(message: Mapping[str, Any]) -> str:
    """Return the text with names where it mentions people."""
    text = str(message.get("content", ""))
    for person in message.get("mentions", []):
        for mention in (f"<@{person['id']}>", f"<@!{person['id']}>"):
            text = text.replace(mention, f"@{person['username']}")
    return text


def action_row(reply: Outgoing) -> list[dict[str, Any]]:
    """Return the buttons of a reply, as Discord wants them."""
    buttons = [{"type": 2, "style": 2, "label": label, "custom_id": command} for label, command in reply.buttons]
    return [{"type": 1, "components": buttons}] if buttons else []


if __name__ == "__main__":
    settings = variables("DISCORD_TOKEN", "PEGASUS_TOKEN")
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    DiscordMessenger(settings["DISCORD_TOKEN"], os.environ.get("DISCORD_URL", API)).run()
