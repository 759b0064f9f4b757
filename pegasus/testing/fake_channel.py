"""A channel that only remembers what it was given, for tests in virtual time."""

from __future__ import annotations

import trio

from actors import Inbox
from pegasus.channels import AdapterMessage, Deliver
from pegasus.messages import OutboundMessage, Typing


class FakeChannel:
    """An adapter. replies: every reply that came, each seq of an address once; typing: the signs of thinking."""

    def __init__(self) -> None:
        self.replies: list[OutboundMessage] = []
        self.typing: list[Typing] = []
        self.failures = 0
        """How many of the next deliveries make the adapter crash."""
        self._news_in, self._news = trio.open_memory_channel[OutboundMessage](100_000)
        self._seen: set[tuple[str, str, int]] = set()

    @property
    def texts(self) -> list[str]:
        """What was said, in order."""
        return [reply.text for reply in self.replies]

    async def next_reply(self) -> OutboundMessage:
        """The next reply that nobody has asked for yet."""
        return await self._news.receive()

    async def run(self, inbox: Inbox[AdapterMessage]) -> None:
        """The actor. Crashes on purpose as often as `failures` says."""
        async for message in inbox:
            match message:
                case Deliver(reply):
                    self._deliver(reply)
                case Typing():
                    self.typing.append(message)

    def _deliver(self, reply: OutboundMessage) -> None:
        if self.failures:
            self.failures -= 1
            raise RuntimeError("this channel fails as it was told to")
        key = (reply.channel.type, reply.channel.channel_id, reply.seq)
        if key not in self._seen:
            self._seen.add(key)
            self.replies.append(reply)
            self._news_in.send_nowait(reply)
