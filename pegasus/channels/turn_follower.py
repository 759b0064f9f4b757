"""Turns of messages as readers within the process follow them: programs over HTTP, and the program that the agent is embedded in.

A turn ends when the agent needs to do nothing more about the message (`ItemDone` of the journal), with replies or in silence. The key
of a reply says of which message it came. So any number of readers may wait for turns of one conversation at the same time, and each
gets what answers its own message.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar, TypeVarTuple

from actors import ActorError, Ref, Reply
from pegasus.messages import Address, OutboundMessage
from pegasus.retry import retry
from pegasus.storage import JournalMessage, OpenReplies, Posted, StorageError, UnacknowledgedReply, load_files

T = TypeVar("T")
Args = TypeVarTuple("Args")

MOST_REPLIES: Final = 100_000
"""Replies that are looked through for those of a turn."""


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
