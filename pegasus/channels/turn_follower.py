"""Turns of messages as readers within the process follow them: programs over HTTP, and the program that the agent is embedded in.

A turn ends when the agent needs to do nothing more about the message (`ItemDone` of the journal), with replies or in silence. The key
of a reply says of which message it came. So any number of readers may wait for turns of one conversation at the same time, and each
gets what answers its own message.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias, TypeVar, TypeVarTuple

import attrs
import trio

from actors import ActorError, Ref, Reply, Signal
from pegasus.main_agent import item_of_key
from pegasus.messages import Address, OutboundMessage, ReplyDraft
from pegasus.retry import retry
from pegasus.storage import (
    ItemDone,
    JournalMessage,
    OpenReplies,
    Posted,
    StorageError,
    UnacknowledgedReply,
    load_files,
)

T = TypeVar("T")
Args = TypeVarTuple("Args")

OnSaid: TypeAlias = Callable[[OutboundMessage | ReplyDraft], Awaitable[None]]
"""Takes a draft or a reply. It is not cancelled when the turn ends."""

MOST_REPLIES: Final = 100_000
"""Replies that are looked through for those of a turn."""


@attrs.define(eq=False, repr=False)
class FollowedTurn:
    """The turn of one message, as far as its reader knows it: `take` is given what is said, and `TurnFollower.gather` reads the rest.

    A reader waits for `changed` and looks. States between two looks are skipped, so a slow reader slows nothing down.
    """

    address: Address
    """Conversation of the message."""
    message_id: str
    """Id of the message, by which it can be withdrawn."""
    item: int = 0
    """Number of the message in the queue, once it is accepted."""
    draft: ReplyDraft | None = None
    """The newest draft; None once a reply has ended it."""
    replies: dict[int, OutboundMessage] = attrs.field(factory=dict)
    """Replies that have come, by number."""
    news: deque[OutboundMessage | ReplyDraft] = attrs.field(factory=deque)
    """Replies and drafts that `tell` has not shown. A draft replaces the one before it."""
    is_done: bool = False
    """All replies have come."""
    error: Exception | None = None
    """Reason why no more will come."""
    changed: Signal = attrs.field(factory=Signal)
    """Given when the reader has something to look at."""

    def is_own(self, reply: OutboundMessage) -> bool:
        """Return whether a reply is one to the message, in its conversation."""
        return item_of_key(reply.key) == self.item and reply.channel.address == self.address

    def wants(self, reply: OutboundMessage) -> bool:
        """Return whether the reader is to have this reply."""
        return self.is_own(reply)

    def lacks(self, seq: int) -> bool:
        """Return whether the reply with this number has not come, or without the contents of its files."""
        known = self.replies.get(seq)
        return known is None or bool(known.files) > bool(known.media)

    def take(self, said: object) -> bool:
        """Keep a draft or a reply for the reader; return whether it was wanted. Anything else is left out."""
        match said:
            case ReplyDraft(item=item) if item == self.item:
                self.draft = said
                if self.news and isinstance(self.news[-1], ReplyDraft):
                    self.news.pop()
                self.news.append(said)
            case OutboundMessage() if self.wants(said):
                if said.seq not in self.replies:
                    self.news.append(said)
                if self.lacks(said.seq):
                    self.replies[said.seq] = said
                self.draft = None if self.is_own(said) else self.draft
            case _:
                return False
        self.changed.notify()
        return True

    async def tell(self, on_said: OnSaid, deadline: float = math.inf) -> None:
        """Show drafts and replies as they come, until no more will, or until the deadline on Trio's clock."""
        while True:
            while self.news:
                await on_said(self.news.popleft())
            if self.is_done or self.error is not None:
                return
            with trio.move_on_at(deadline) as waiting:
                await self.changed.wait()
            if waiting.cancelled_caught:
                return

    def end(self, error: Exception | None = None) -> None:
        """Tell the reader that no more will come."""
        self.is_done, self.error = error is None, error
        self.changed.notify()


class TurnFollower:
    """Reads turns from the journal, also while it is being restarted: a turn goes on after that.

    An error would make clients send their message again, which the agent has.
    """

    def __init__(self, journal: Ref[JournalMessage], check: Callable[[], None] = lambda: None) -> None:
        """check: raises when the journal will not come back."""
        self._journal = journal
        self._check = check

    async def ask(self, question: Callable[[Reply[T], *Args], JournalMessage], *args: *Args) -> T:
        """Return the journal's answer. Raises what `check` raises."""

        async def ask() -> T:
            self._check()
            return await self._journal.ask(question, *args)

        return await retry(ask, (ActorError, StorageError))

    async def open_replies(self, address: Address | None) -> Sequence[UnacknowledgedReply]:
        """Return the replies to a conversation, or to all, that were not acknowledged. Raises what `check` raises."""
        return await self.ask(OpenReplies, address, MOST_REPLIES)

    async def load(
        self, keys: Sequence[str], is_wanted: Callable[[OutboundMessage], bool] = lambda reply: True
    ) -> tuple[OutboundMessage, ...]:
        """Return the replies with these keys that are wanted, with their files. Raises what `check` raises."""
        posted = await self.ask(Posted, tuple(keys)) if keys else ()

        async def load() -> tuple[OutboundMessage, ...]:
            self._check()
            return tuple([await load_files(reply, self._journal) for reply in posted if reply and is_wanted(reply)])

        return await retry(load, (ActorError, StorageError))

    async def gather(self, turn: FollowedTurn) -> None:
        """Wait for the end of a turn, and give it the replies that it lacks. Raises what `check` raises.

        A reply that another client of the conversation has acknowledged by then is not found any more, but was said before.
        """
        await self.ask(ItemDone, turn.item)
        found = await self.open_replies(turn.address)
        for reply in await self.load(
            [each.key for each in found if item_of_key(each.key) == turn.item and turn.lacks(each.seq)]
        ):
            turn.take(reply)


class GrowingText:
    r"""Turns the drafts and replies of a turn into pieces of one text, for a reader who can only append. Pure.

    A draft is the whole text so far, and may be taken back: a model begins a sentence and then calls a tool instead. So a draft that
    does not continue what was given out is left out, and the reply then follows whole in a new paragraph.

    >>> text = GrowingText()
    >>> text.draft("Let me"), text.draft("Let me see"), text.reply("Let me see: 4")
    ('Let me', ' see', ': 4')
    >>> text.reply("Anything else?")
    '\n\nAnything else?'
    """

    def __init__(self) -> None:
        self._given = ""
        """Part of the present reply that was given out."""
        self._has_replies = False
        """A reply is complete: the next one begins a paragraph."""

    def draft(self, text: str) -> str:
        """Return what is new of a draft."""
        return self._grow(text) if text.startswith(self._given) else ""

    def reply(self, text: str) -> str:
        """Return what is missing of a reply, which ends it."""
        piece = self._grow(text) if text.startswith(self._given) else f"\n\n{text}"
        self._given, self._has_replies = "", True
        return piece

    def _grow(self, text: str) -> str:
        # A reply after another one is a paragraph of its own.
        begins = self._has_replies and not self._given and text
        piece, self._given = text[len(self._given) :], text
        return f"\n\n{piece}" if begins else piece
