"""The way out to the conversations of a service, each with a queue and a task of its own.

A conversation is served while there is something to send or to show: replies first, in the order of their
numbers, then the newest draft, then the typing sign. What fails of a draft or a sign is left out, since it is
not worth holding up a reply. A queue holds MOST_QUEUED replies. The others wait in the journal's outbox, and
are read when there is room.

A task ends when there is nothing to do, so a service with thousands of quiet conversations costs nothing. The
next reply starts a new one. Nothing is lost at that moment: `ChatSenders` removes the conversation without a
checkpoint after its `serve` has returned.

A reply that does not follow the last one is not queued. It is a sign that the conversation is behind (a full
mailbox, a restart), and the journal is read instead, which has all replies in their order. So a queue never has
a gap.

A crash of any of the tasks ends the adapter's actor, and with it all conversations. Its next run reads what was
not acknowledged.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import Final, Protocol

import attrs
import trio

from actors import Ref, Signal
from pegasus.channels.adapter import ReplyRefused
from pegasus.channels.call_pacing import CallPacing
from pegasus.channels.delivery_log import DeliveryLog
from pegasus.channels.service_contract import RateLimited, ServiceDown
from pegasus.messages import OutboundMessage, ReplyDraft, Typing
from pegasus.observe import get_logger
from pegasus.retry import retry
from pegasus.storage import JournalMessage, StorageError, Unacknowledged, UnacknowledgedChannels

MOST_QUEUED: Final = 50
"""Replies of one conversation that are held in memory."""
SIGN_TIMEOUT: Final = 10.0
"""Seconds that showing a draft or a typing sign may take. It is not tried again."""
LONGEST_TYPING: Final = 900.0
"""Seconds after which a typing sign is not repeated any more, whether its end was announced or not."""

_log = get_logger("channels")


class ChatSender(Protocol):
    """The adapter, as its conversations use it.

    Example: every `ServiceAdapter` is one: `ChatSenders(adapter, journal, nursery)`. Tests have a smaller one
    that notes what it is given.
    """

    type: str
    """The channel type, as in `ChannelInfo.type`."""
    typing_pause: float
    """Seconds after which a typing sign must be shown again; 0 = the service has none."""
    log: DeliveryLog
    """Record of what the service has taken."""
    pacing: CallPacing
    """Tells when the next call to a conversation may be made."""

    def last_delivered(self, channel_id: str) -> int:
        """Return the number of the last reply that was delivered."""

    async def take(self, reply: OutboundMessage, journal: Ref[JournalMessage]) -> None:
        """Deliver a reply or report it as refused, however long that takes, and acknowledge it."""

    def draft_pause(self, channel_id: str) -> float:
        """Return the seconds between two states of a draft."""

    async def show_draft(self, draft: ReplyDraft) -> None:
        """Show a reply while it is written."""

    async def show_typing(self, typing: Typing) -> None:
        """Show that the agent thinks."""


@attrs.define(eq=False, repr=False)
class OutgoingChat:
    """The way out to one conversation: `serve` works on what `add`, `show` and `catch_up` have noted.

    Example::

        chat = OutgoingChat("42", adapter, journal)
        chat.add(reply)
        await chat.serve()      # returns when the service has taken everything
    """

    channel_id: str
    """The conversation, as the service calls it."""
    _outlet: ChatSender
    """Delivers and shows."""
    _journal: Ref[JournalMessage]
    """Has the replies that are not queued here."""
    _waiting: deque[OutboundMessage] = attrs.field(factory=deque)
    """Replies to be sent, in the order of seq."""
    _is_behind: bool = False
    """More replies wait in the journal."""
    _draft: ReplyDraft | None = None
    """The newest draft that was not shown yet."""
    _next_draft: float = 0.0
    """Trio's clock from which on a draft may be shown."""
    _typing: Typing | None = None
    """The sign that is shown while the agent thinks."""
    _typing_since: float = 0.0
    """Trio's clock at which the agent has begun to think."""
    _typing_due: float = 0.0
    """Trio's clock at which the sign is to be shown again."""
    _woken: Signal = attrs.field(factory=Signal)
    """Given when there is something new."""

    # ---------------------------------------------------------------- what there is to do

    def add(self, reply: OutboundMessage) -> None:
        """Put a reply into the queue, unless it is there or was delivered. One that does not fit is read from the journal later."""
        last = self._waiting[-1].seq if self._waiting else self._outlet.last_delivered(self.channel_id)
        if reply.seq <= last:
            return
        self._draft = None  # it was a state of this reply
        if self._is_behind or reply.seq != last + 1 or len(self._waiting) >= MOST_QUEUED:
            self._is_behind = True
        else:
            self._waiting.append(reply)
        self._woken.notify()

    def catch_up(self) -> None:
        """Read from the journal what was not delivered."""
        self._is_behind = True
        self._woken.notify()

    def show(self, sign: Typing | ReplyDraft) -> None:
        """Show a draft or a typing sign when there is nothing to send. The newest draft replaces the others."""
        if isinstance(sign, ReplyDraft):
            self._draft = (
                attrs.evolve(sign, text="") if sign.cut else sign
            )  # a message here looks whole, whatever is said of it
        else:
            self._typing = sign
            self._typing_since = self._typing_due = trio.current_time()
        self._woken.notify()

    def end_typing(self) -> None:
        """Show the typing sign no more."""
        self._typing = None

    # ---------------------------------------------------------------- doing it

    async def serve(self) -> None:
        """Send and show what there is; return when there is nothing. Raises what `take` raises."""
        while True:
            seen = self._woken.count
            if self._waiting:
                # The reply stays first in the queue while it is sent: `add` takes the next number from the last
                # one there.
                await self._outlet.take(self._waiting[0], self._journal)
                self._waiting.popleft()
            elif self._is_behind:
                await self._read_waiting()
            elif (due := self._sign_due()) is not None:
                due = max(due, self._outlet.pacing.allowed_at(self.channel_id))
                if due <= trio.current_time():
                    await self._show_next()
                else:
                    await self._wait_until(due, seen)
            elif self._next_draft <= trio.current_time():  # the pause between drafts outlives the draft
                return
            else:
                await self._wait_until(self._next_draft, seen)

    async def _wait_until(self, due: float, seen: int) -> None:
        """Wait until this time, or until there is something new. seen: the count of `_woken` at the last look."""
        with trio.move_on_at(due):
            await self._woken.wait(seen)

    async def _read_waiting(self) -> None:
        """Read the next replies from the journal. What was delivered before is acknowledged by that."""
        # Asking the journal for what comes behind a number acknowledges that number. So what it stands for must
        # be on disk first.
        await self._outlet.log.written()
        self._is_behind = False
        delivered = self._outlet.last_delivered(self.channel_id)
        after = ((self.channel_id, delivered),) if delivered else ()
        ask = partial(self._journal.ask, Unacknowledged, self._outlet.type, self.channel_id, after, MOST_QUEUED)
        missed = await retry(ask, StorageError, self._log_unreadable)
        self._waiting.extend(reply for reply in missed if reply.seq > delivered)
        self._is_behind |= len(missed) >= MOST_QUEUED

    def _log_unreadable(self, error: Exception, seconds: float) -> None:
        _log.error("replies cannot be read", channel=self._outlet.type, error=str(error), seconds=seconds)

    def _sign_due(self) -> float | None:
        """Return Trio's clock at which a draft or the typing sign is to be shown, None if there is neither."""
        due = [self._typing_due] if self._typing is not None else []
        if self._draft is not None:
            # A withdrawal does not wait for the pause: the draft shows something that will not be said.
            due.append(0.0 if self._draft.is_withdrawal else self._next_draft)
        return min(due) if due else None

    async def _show_next(self) -> None:
        """Show a draft or the typing sign, once."""
        try:
            with trio.move_on_after(SIGN_TIMEOUT):
                await self._show(self._take_sign())
        except RateLimited as limit:
            self._outlet.pacing.obey(self.channel_id, limit)
        except ReplyRefused as error:
            self._typing = None
            _log.debug("a sign was refused", channel=self._outlet.type, reason=str(error))
        except ServiceDown as error:
            _log.debug("a sign was not shown", channel=self._outlet.type, reason=str(error))

    def _take_sign(self) -> Typing | ReplyDraft | None:
        """Return what is to be shown now, a draft before the typing sign; None if that has been shown for too long."""
        now = trio.current_time()
        draft, self._draft = self._draft, None
        if draft is not None:
            self._next_draft = now + self._outlet.draft_pause(self.channel_id)
            return draft
        self._typing_due = now + self._outlet.typing_pause
        if now - self._typing_since > LONGEST_TYPING:
            self._typing = None
        return self._typing

    async def _show(self, sign: Typing | ReplyDraft | None) -> None:
        if isinstance(sign, ReplyDraft):
            await self._outlet.show_draft(sign)
        elif sign is not None:
            await self._outlet.show_typing(sign)


class ChatSenders:
    """The conversations of one run of an adapter that have something to send or to show.

    Example::

        chats = OutgoingChats(adapter, journal, nursery)
        await chats.catch_up()
        chats.add(reply)
    """

    def __init__(self, outlet: ChatSender, journal: Ref[JournalMessage], nursery: trio.Nursery) -> None:
        """Begin without conversations. nursery: runs the task of each conversation that gets something to send."""
        self._outlet = outlet
        self._journal = journal
        self._nursery = nursery
        self._chats: dict[str, OutgoingChat] = {}
        """By channelId."""

    def add(self, reply: OutboundMessage) -> None:
        """Queue a reply in its conversation, whose task is started if none runs."""
        self._chat(reply.channel.channel_id).add(reply)

    def show(self, sign: Typing | ReplyDraft) -> None:
        """Show a draft or a typing sign, or end the latter. A sign that the service does not have begins no task."""
        if isinstance(sign, Typing) and (not self._outlet.typing_pause or not sign.active):
            if known := self._chats.get(sign.channel.channel_id):
                known.end_typing()
        else:
            self._chat(sign.channel.channel_id).show(sign)

    async def catch_up(self) -> None:
        """Wake every conversation that has replies in the journal."""
        for channel_id in await retry(
            lambda: self._journal.ask(UnacknowledgedChannels, self._outlet.type), StorageError
        ):
            self._chat(channel_id).catch_up()

    def _chat(self, channel_id: str) -> OutgoingChat:
        """Return the conversation; start its task if there is none."""
        found = self._chats.get(channel_id)
        if found is None:
            found = self._chats[channel_id] = OutgoingChat(channel_id, self._outlet, self._journal)
            self._nursery.start_soon(self._serve, found)
        return found

    async def _serve(self, chat: OutgoingChat) -> None:
        await chat.serve()
        del self._chats[chat.channel_id]  # no checkpoint in between: what comes next begins a new task
