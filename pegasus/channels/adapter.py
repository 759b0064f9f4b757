"""`Adapter`: the base class of an adapter, which connects one channel type with the agent from inside the process.

A subclass brings a reply to its service; this class does the rest, which is the same for every service:

* **Each reply once, in order.** Replies are numbered from 1 for each address. A number that was delivered is not delivered
  again, and a gap in the numbers makes the adapter ask the journal for what is missing.
* **Nothing lost.** At its start, and when it is told to catch up, the adapter asks the journal for all replies that nobody has
  acknowledged. A reply is acknowledged only after `deliver` has returned. If the process dies between the two, the reply is
  delivered a second time; no service that does not know our numbers can do better.
* **Refusals.** A reply that the service refuses for good (`ReplyRefused`) is reported to the agent once, and then counts as
  acknowledged, so that it does not hold up those behind it.

Any other exception of `deliver` crashes the actor. Its supervisor starts it again with a delay, and it begins with the first
reply that was not acknowledged. After too many crashes in a row the channel is parked; see `pegasus.app`.

The way in is `pegasus.intake.Intake.submit`, which a subclass calls for each message that it receives from its service.

The gateway takes the same messages (AdapterMessage) without this class: its replies are acknowledged by its clients.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final, TypeAlias

import attrs
import trio

from actors import ActorError, Inbox, Ref
from pegasus.intake import report_undelivered
from pegasus.messages import ApprovalNotice, FileEdit, OutboundMessage, ReplyDraft, Said, TaskProgress, Typing
from pegasus.storage import Acknowledge, Connected, Disconnected, JournalMessage, Unacknowledged, load_files

GOODBYE: Final = 1.0
"""Seconds in which a stopped adapter reports to the journal that it has gone."""


@attrs.frozen
class DeliverReply:
    """Bring this reply to its channel. It may come twice after a crash; `seq` grows by 1 for each address, so it tells.

    Example: `await adapter.tell(DeliverReply(reply))`, sent by the switchboard. There is no answer: what was
    delivered is acknowledged to the journal.
    """

    reply: OutboundMessage


@attrs.frozen
class CatchUp:
    """Ask the journal for `Unacknowledged`: some replies could not be handed over, because the adapter's mailbox was full.

    Example: `await adapter.tell(CatchUp())`, sent by the switchboard once the mailbox takes messages again. The
    adapter then reads what it has missed.
    """


AdapterMessage: TypeAlias = (
    DeliverReply | Typing | ReplyDraft | TaskProgress | FileEdit | ApprovalNotice | Said | CatchUp
)
"""Approvals go to the gateway only. On other channels they are replies."""


class ReplyRefused(Exception):
    """Raised by `Adapter.deliver`: the service will never take this reply. str() is one line for the model."""


class Adapter:
    """One channel type. `run` is the actor; `deliver` is what a subclass must implement.

    The object outlives restarts of its actor, so what it remembers in attributes survives a crash of `run`.

    Example::

        class Sms(Adapter):
            async def deliver(self, reply: OutboundMessage) -> None:
                await self.service.send(reply.channel.channel_id, reply.text)

        Child("sms", Sms("sms").run, journal)
    """

    def __init__(self, type: str) -> None:
        self.type = type
        """The channel type that this adapter serves, as in `ChannelInfo.type`."""
        self._delivered: dict[str, int] = {}
        """The number of the last reply that was delivered, by channelId."""

    # ---------------------------------------------------------------- for a subclass

    async def deliver(self, reply: OutboundMessage) -> None:
        """Bring the reply to its recipient; return when the service has taken it.

        Raises ReplyRefused if the service will never take it. Cancelled, the reply counts as not delivered.
        """
        raise NotImplementedError

    async def show_typing(self, typing: Typing) -> None:
        """Show that the agent thinks, or has stopped; by default nothing. May be lost."""

    async def show_draft(self, draft: ReplyDraft) -> None:
        """Show a reply while it is written; by default nothing. Each draft is the whole text so far; "" withdraws it.

        A service may take a second for it. Drafts that have got old by then are left out.
        """

    async def show_task(self, task: TaskProgress) -> None:
        """Show what a background task of this channel is doing; by default nothing. The newest of a task replaces the others."""

    async def confirm(self, reply: OutboundMessage, journal: Ref[JournalMessage]) -> None:
        """Acknowledge a delivered reply, so that the journal may forget it."""
        await journal.tell(Acknowledge(reply.channel.address, reply.seq))

    # ---------------------------------------------------------------- the actor

    async def run(self, inbox: Inbox[AdapterMessage], journal: Ref[JournalMessage]) -> None:
        """Deliver what was missed, then what comes, until stopped. Raises what `deliver` raises.

        While it runs the journal knows that the channel type is served, so that a reply may go to an id that never wrote.
        """
        await journal.tell(Connected(self.type, None))
        try:
            await self._serve(inbox, journal)
        finally:
            # Shielded, since a crash cancels this too, and bounded, since the journal may be the part that has
            # crashed.
            with trio.CancelScope(shield=True, deadline=trio.current_time() + GOODBYE), suppress(ActorError):
                await journal.tell(Disconnected(self.type, None))

    async def _serve(self, inbox: Inbox[AdapterMessage], journal: Ref[JournalMessage]) -> None:
        await self._catch_up(journal)
        async for message in inbox:
            message = _skip_old_drafts(message, inbox)
            match message:
                case DeliverReply(reply):
                    if reply.seq > self.last_delivered(reply.channel.channel_id) + 1:
                        await self._catch_up(journal)
                    await self.take(reply, journal)
                case Typing():
                    await self.show_typing(message)
                case ReplyDraft():
                    await self.show_draft(message)
                case TaskProgress():
                    await self.show_task(message)
                case CatchUp():
                    await self._catch_up(journal)

    async def _catch_up(self, journal: Ref[JournalMessage]) -> None:
        """Deliver everything that was not acknowledged. To ask for replies after a number acknowledges that number."""
        while missed := await journal.ask(Unacknowledged, self.type, None, tuple(self._delivered.items())):
            # The journal gives a bounded number of replies at a time, so this is repeated until there is
            # nothing new.
            fresh = [reply for reply in missed if reply.seq > self.last_delivered(reply.channel.channel_id)]
            if not fresh:
                return
            for reply in fresh:
                await self.take(reply, journal)

    async def take(self, reply: OutboundMessage, journal: Ref[JournalMessage]) -> None:
        """Deliver a reply, unless that was done before, and acknowledge it."""
        if reply.seq <= self.last_delivered(reply.channel.channel_id):
            return
        try:
            await self.deliver(await self._load(reply, journal))
        except ReplyRefused as error:
            await self._refuse(reply, str(error), journal)
            self._delivered[reply.channel.channel_id] = reply.seq
        else:
            self._delivered[reply.channel.channel_id] = reply.seq
            await self.confirm(reply, journal)

    async def _load(self, reply: OutboundMessage, journal: Ref[JournalMessage]) -> OutboundMessage:
        """Return a reply with the content of its files."""
        return await load_files(reply, journal)

    async def _refuse(self, reply: OutboundMessage, reason: str, journal: Ref[JournalMessage]) -> None:
        """Report a reply that is refused for good, and acknowledge it."""
        await report_undelivered(journal, reply, reason)

    def last_delivered(self, channel_id: str) -> int:
        """Return the number of the last reply that was delivered to a conversation, 0 if none was."""
        return self._delivered.get(channel_id, 0)


def _skip_old_drafts(message: AdapterMessage, inbox: Inbox[AdapterMessage]) -> AdapterMessage:
    """Return the next message that is worth handling: a draft is not if another message waits already, unless it is the last."""
    while isinstance(message, ReplyDraft) and not message.is_last:
        try:
            message = inbox.receive_nowait()
        except (trio.WouldBlock, trio.EndOfChannel):
            break
    return message
