"""The switchboard: the one way out. It pulls replies from the journal's outbox and sends each to the adapter of its channel type.

It never loses a reply, because it owns none: a reply stays in the outbox until its recipient has acknowledged it. What the
switchboard confirms to the journal is only that it was handed over. So every failure has the same cure, reading again:

* The switchboard crashes or is stopped: it starts with position 0 and is given again what was not confirmed.
* An adapter's mailbox stays full for FULL_MAILBOX_TIME seconds: its replies are skipped from then on, and it gets CatchUp as soon as
  it takes messages again. So an adapter that hangs costs the others that time once, not for each reply.
* There is no adapter for a type, or it is down: the replies wait in the outbox. It asks for them when it starts.

The crash of an adapter is not noticed here. Its supervisor restarts it, and it asks the journal for what nobody acknowledged.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import TypeAlias

import trio

from actors import ActorError, Inbox, MailboxFull, Ref
from pegasus.channels.adapter import AdapterMessage, CatchUp, DeliverReply
from pegasus.messages import FileEdit, OutboundMessage, ReplyDraft, TaskProgress, Typing
from pegasus.observe import get_logger
from pegasus.retry import retry
from pegasus.storage import JournalMessage, NextReplies, StorageError

FULL_MAILBOX_TIME = 1.0
"""Seconds that the other channels wait for an adapter whose mailbox is full."""

SwitchboardMessage: TypeAlias = Typing | ReplyDraft | TaskProgress | FileEdit
"""Replies are not sent to the switchboard. It pulls them from the journal's outbox, where they are safe until acknowledged."""

_log = get_logger("switchboard")


async def run_switchboard(
    inbox: Inbox[SwitchboardMessage],
    journal: Ref[JournalMessage],
    adapters: Mapping[str, Ref[AdapterMessage]],
    default: Ref[AdapterMessage] | None = None,
) -> None:
    """Route replies from the journal, and the typing signs, drafts and states of tasks that are sent to this actor.

    adapters: by channel type. default: for all other types, which is the gateway; None: their replies wait.
    Cancelled, stopped or crashed: what was not confirmed to the journal is handed out again.
    """
    async with trio.open_nursery() as nursery:
        routing = _Routing(adapters, default, nursery)
        # Replies and signs are two tasks: a draft does not wait for the journal, and a reply does not wait
        # behind drafts.
        nursery.start_soon(_route_replies, journal, routing)
        async for sign in inbox:
            await routing.show(sign)
        nursery.cancel_scope.cancel()


async def _route_replies(journal: Ref[JournalMessage], routing: _Routing) -> None:
    # The journal confirms by position. After a crash this begins at 0 again, and what was not confirmed comes a
    # second time; adapters know the numbers of their replies.
    handed_over = 0

    def log(error: Exception, seconds: float) -> None:
        _log.error("the outbox cannot be read", error=str(error), seconds=seconds)

    while True:
        replies = await retry(partial(journal.ask, NextReplies, handed_over), StorageError, log)
        for number, outgoing in enumerate(replies):
            if number:
                await trio.lowlevel.checkpoint()  # gives the adapter its turn between two replies of a burst
            await routing.deliver(outgoing.message)
            handed_over = outgoing.position


class _Routing:
    """The adapters by channel type, and which of them are behind."""

    def __init__(
        self, adapters: Mapping[str, Ref[AdapterMessage]], default: Ref[AdapterMessage] | None, nursery: trio.Nursery
    ) -> None:
        self._adapters = adapters
        self._default = default
        self._nursery = nursery
        self._behind: set[Ref[AdapterMessage]] = set()
        """Adapters that missed a reply and have not got their CatchUp yet."""

    async def deliver(self, reply: OutboundMessage) -> None:
        """Hand a reply to its adapter. Never raises, whatever the adapter does.

        An adapter that is behind is passed over. Its replies are confirmed to the journal as handed over all
        the same, because it will read them from the outbox itself.
        """
        address = reply.channel.address
        adapter = self._adapters.get(address.type, self._default)
        if adapter is None:
            _log.warning(
                "no adapter for this channel type; the reply waits in the outbox", to=str(address), seq=reply.seq
            )
        # A reply that could be taken out of order is not even offered while an earlier one is missing.
        elif adapter not in self._behind and not await self._offer(adapter, DeliverReply(reply)):
            _log.warning("an adapter takes no replies; they wait in the outbox", adapter=adapter.path, seq=reply.seq)
            self._behind.add(adapter)
            self._nursery.start_soon(self._send_catch_up, adapter)

    async def show(self, sign: SwitchboardMessage) -> None:
        """Hand a sign to its adapter, unless that is behind. It may be lost.

        A draft that another follows is lost at once if the adapter's mailbox is full: the next one makes up for it, and the drafts
        of other channels must not wait.
        """
        adapter = self._adapters.get(sign.channel.type, self._default)
        if adapter is None or adapter in self._behind:
            return
        if isinstance(sign, ReplyDraft) and not sign.is_last:
            with suppress(ActorError):
                adapter.tell_nowait(sign)
        else:
            await self._offer(adapter, sign)

    async def _offer(self, adapter: Ref[AdapterMessage], message: AdapterMessage) -> bool:
        """Send a message to an adapter; return whether it took it within FULL_MAILBOX_TIME. It only waits where there is no room."""
        try:
            with suppress(MailboxFull):
                adapter.tell_nowait(message)
                return True
            with trio.move_on_after(FULL_MAILBOX_TIME):
                await adapter.tell(message)
                return True
        except ActorError as error:
            _log.warning("a message did not reach its adapter", adapter=adapter.path, error=str(error))
        return False

    async def _send_catch_up(self, adapter: Ref[AdapterMessage]) -> None:
        """Send CatchUp to an adapter that is behind, however long that takes; it is a task of its own for each of them.

        The task ends with the switchboard. The next run begins with no adapter behind, and finds out again.
        """
        await retry(lambda: adapter.tell(CatchUp()), ActorError)  # its mailbox may refuse instead of letting us wait
        self._behind.discard(adapter)
