"""Uses Discord with discord.py as a bot would; prints a line for each thing that works. Run with URL, token, channel."""

from __future__ import annotations

import asyncio
import io
import sys

import discord  # type: ignore[import-not-found]
import yarl


def check(what: str, condition: object) -> None:
    print(f"{'passed' if condition else 'FAILED'} {what}", flush=True)


class Bot(discord.Client):  # type: ignore[misc]
    def __init__(self, channel: int) -> None:
        super().__init__(intents=discord.Intents(guild_messages=True, dm_messages=True, message_content=True))
        self.channel = channel
        self.messages: asyncio.Queue[discord.Message] = asyncio.Queue()
        self.clicks: asyncio.Queue[discord.Interaction] = asyncio.Queue()
        self.resumed = asyncio.Event()

    async def on_message(self, message: discord.Message) -> None:
        if message.author != self.user:
            self.messages.put_nowait(message)

    async def on_interaction(self, interaction: discord.Interaction) -> None:
        self.clicks.put_nowait(interaction)

    async def on_resumed(self) -> None:
        self.resumed.set()

    async def setup_hook(self) -> None:
        self.task = asyncio.create_task(self.try_out())

    async def try_out(self) -> None:
        try:
            await self.wait_until_ready()
            await self.use()
        except Exception as error:
            check(f"{type(error).__name__}: {error}", False)
        await self.close()

    async def use(self) -> None:
        check("a session", self.user and self.user.name == "pegasus")
        channel = self.get_partial_messageable(self.channel)
        print("write", flush=True)
        said = await self.messages.get()
        check("a message", said.content == "hello grüße" and said.author.name == "anna")
        sent = [
            await channel.send("once", nonce="n1", allowed_mentions=discord.AllowedMentions.none()) for _ in range(2)
        ]
        check("a nonce", sent[0].content == "once" and sent[0].id == sent[1].id)
        file = await channel.send("see", file=discord.File(io.BytesIO(b"hi"), "a.txt"))
        check("a file", file.attachments[0].filename == "a.txt" and await file.attachments[0].read() == b"hi")
        async with channel.typing():
            check("typing", True)
        try:
            await self.get_partial_messageable(999).send("lost")
        except discord.NotFound as error:
            check("a refusal", error.code == 10003)
        history = [message async for message in channel.history(after=discord.Object(said.id - 1), oldest_first=True)]
        check("earlier messages", [message.content for message in history][:2] == ["hello grüße", "once"])
        print("click", flush=True)
        click = await self.clicks.get()
        await click.response.defer()
        check("a click", click.data["custom_id"] == "/approve a1")
        print("drop", flush=True)
        check("a message after the loss of the connection", (await self.messages.get()).content == "again")
        await asyncio.wait_for(self.resumed.wait(), 20)
        check("a session that is resumed", True)


def main(url: str, token: str, channel: str) -> None:
    discord.http.Route.BASE = f"{url}/api/v10"
    discord.gateway.DiscordWebSocket.DEFAULT_GATEWAY = yarl.URL(url.replace("http://", "ws://"))
    Bot(int(channel)).run(token, log_handler=None)


main(*sys.argv[1:])
