"""`FakeChannel`: an adapter that keeps what it is given, for tests in virtual time.

A fake channel is the object that the people behind a channel see, so it outlives the actor that runs it. The
supervision tree may crash and restart the actor, and `kill` and a new world may replace the whole tree, while
the test keeps one object with everything that was ever delivered. That is how tests find replies that came
twice or never.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

from actors import Ref
from pegasus.channels import Adapter, ReplyRefused
from pegasus.messages import OutboundMessage, ReplyDraft, Typing
from pegasus.storage import JournalMessage

PATIENCE: Final = 30 * 86_400.0
"""Seconds of virtual time after which a reply counts as one that never comes."""


class FakeChannel(Adapter):
    """An adapter whose object outlives crashes of the world around it, as the people behind a channel do.

    Example::

        channel = FakeChannel("cli")
        Child("cli", channel.run, journal)
        ...
        assert (await channel.next_reply()).text == "hello"
    """

    def __init__(self, type: str, *, acknowledges: bool = True) -> None:
        super().__init__(type)
        self.acknowledges = acknowledges
        """True if it acknowledges to the journal what it has."""
        self.replies: list[OutboundMessage] = []
        """Every reply that was delivered, each number of an address once."""
        self.typing: list[Typing] = []
        """Typing signs in the order in which they came, repeated ones too."""
        self.drafts: list[ReplyDraft] = []
        """Drafts of streamed replies; each contains the whole text so far."""
        self.failures = 0
        """Number of the next deliveries that crash the adapter."""
        self.refuses: Callable[[OutboundMessage], bool] | None = None
        """Chooses the replies that the service behind the channel refuses for good."""
        self._unread_in, self._unread = trio.open_memory_channel[OutboundMessage](100_000)

    @property
    def texts(self) -> list[str]:
        """The texts of all replies, in order."""
        return [reply.text for reply in self.replies]

    async def next_reply(self) -> OutboundMessage:
        """Wait for the next reply that was not returned yet. Raises trio.TooSlowError if none comes for PATIENCE seconds."""
        with trio.fail_after(PATIENCE):
            return await self._unread.receive()

    async def deliver(self, reply: OutboundMessage) -> None:
        """Keep the reply, or refuse it, or crash, as the attributes say."""
        if self.refuses is not None and self.refuses(reply):
            raise ReplyRefused("the service refuses it")
        if self.failures:
            self.failures -= 1
            raise RuntimeError("a planned failure of this channel")
        self.replies.append(reply)
        self._unread_in.send_nowait(reply)

    async def show_typing(self, typing: Typing) -> None:
        """Keep the typing sign in `typing`."""
        self.typing.append(typing)

    async def show_draft(self, draft: ReplyDraft) -> None:
        """Keep the draft in `drafts`."""
        self.drafts.append(draft)

    async def confirm(self, reply: OutboundMessage, journal: Ref[JournalMessage]) -> None:
        """Acknowledge the reply, unless this channel does not."""
        if self.acknowledges:
            await super().confirm(reply, journal)
