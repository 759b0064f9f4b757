"""A channel that only remembers what it was given, for tests in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

from actors import Inbox, Ref
from pegasus.channels import AdapterMessage, CatchUp, DeliverReply
from pegasus.intake import report_undelivered
from pegasus.messages import OutboundMessage, Progress, Typing
from pegasus.storage import Acknowledge, JournalMessage, Unacknowledged

PATIENCE: Final = 30 * 86_400.0
"""Seconds of virtual time until a reply counts as one that never comes."""


class FakeChannel:
    """An adapter that outlives crashes of the world around it, as people do.

    replies: every reply that came, each seq of an address once; typing: the signs of thinking. acknowledges: whether it
    tells the journal what it has.
    """

    def __init__(self, kind: str, *, acknowledges: bool = True) -> None:
        self.kind = kind
        self.acknowledges = acknowledges
        self.replies: list[OutboundMessage] = []
        self.typing: list[Typing] = []
        self.drafts: list[Progress] = []
        self.failures = 0
        """How many of the next deliveries make the adapter crash."""
        self.refuses: Callable[[OutboundMessage], bool] | None = None
        """Which replies the service behind it refuses for good."""
        self._news_in, self._news = trio.open_memory_channel[OutboundMessage](100_000)
        self._last: dict[str, int] = {}

    @property
    def texts(self) -> list[str]:
        """What was said, in order."""
        return [reply.text for reply in self.replies]

    async def next_reply(self) -> OutboundMessage:
        """The next reply that nobody has asked for yet. Raises trio.TooSlowError if none comes for `PATIENCE`."""
        with trio.fail_after(PATIENCE):
            return await self._news.receive()

    async def run(self, inbox: Inbox[AdapterMessage], journal: Ref[JournalMessage]) -> None:
        """The actor: catches up on what it missed, then takes what comes. Crashes as often as `failures` says."""
        await self._catch_up(journal)
        async for message in inbox:
            match message:
                case DeliverReply(reply):
                    if reply.seq > self._last.get(reply.channel.channel_id, 0) + 1:
                        await self._catch_up(journal)
                    await self._take(reply, journal)
                case Typing():
                    self.typing.append(message)
                case Progress():
                    self.drafts.append(message)
                case CatchUp():
                    await self._catch_up(journal)

    async def _catch_up(self, journal: Ref[JournalMessage]) -> None:
        while missed := await journal.ask(Unacknowledged, self.kind, None, tuple(self._last.items())):
            fresh = [reply for reply in missed if reply.seq > self._last.get(reply.channel.channel_id, 0)]
            if not fresh:
                return
            for reply in fresh:
                await self._take(reply, journal)

    async def _take(self, reply: OutboundMessage, journal: Ref[JournalMessage]) -> None:
        if self.refuses is not None and self.refuses(reply):
            await report_undelivered(journal, reply, "the service refuses it")
            self._last[reply.channel.channel_id] = max(reply.seq, self._last.get(reply.channel.channel_id, 0))
            return
        if self.failures:
            self.failures -= 1
            raise RuntimeError("this channel fails as it was told to")
        if reply.seq <= self._last.get(reply.channel.channel_id, 0):
            return
        self._last[reply.channel.channel_id] = reply.seq
        self.replies.append(reply)
        self._news_in.send_nowait(reply)
        if self.acknowledges:
            await journal.tell(Acknowledge(reply.channel.address, reply.seq))
