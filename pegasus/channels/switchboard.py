"""The one way out: pulls replies from the journal and hands each to the adapter of its channel type.

A reply that could not be handed over is not lost: it stays in the outbox until somebody acknowledges it, and the adapter is
told to CatchUp as soon as it takes messages again. So an adapter that hangs costs the others PATIENCE once, and itself
nothing but time.
"""

from __future__ import annotations

from collections.abc import Mapping

import trio

from actors import ActorError, Inbox, MailboxFull, Ref
from pegasus.channels.messages import AdapterMessage, CatchUp, DeliverReply, SwitchboardMessage
from pegasus.messages import OutboundMessage
from pegasus.observe import get_logger
from pegasus.storage import JournalMessage, NextReplies, QueuedReply, StorageError

PATIENCE = 1.0
"""Seconds the other channels wait for an adapter whose mailbox is full."""
AGAIN = 1.0
"""Seconds before a journal that could not read its outbox is asked again."""

_log = get_logger("switchboard")


async def run_switchboard(
    inbox: Inbox[SwitchboardMessage],
    journal: Ref[JournalMessage],
    adapters: Mapping[str, Ref[AdapterMessage]],
    default: Ref[AdapterMessage] | None = None,
) -> None:
    """Route replies, typing and drafts. adapters: by channel type; default: for all other types, which is the gateway.

    Cancelled, stopped or crashed: what was not confirmed to the journal is handed out again.
    """
    async with trio.open_nursery() as nursery:
        board = _Board(adapters, default, nursery)
        nursery.start_soon(_bring_replies, journal, board)
        async for sign in inbox:
            await board.pass_on(sign.channel.type, sign)
        nursery.cancel_scope.cancel()


async def _bring_replies(journal: Ref[JournalMessage], board: _Board) -> None:
    handed = 0
    while True:
        for outgoing in await _next_replies(journal, handed):
            await board.deliver(outgoing.message)
            handed = outgoing.position
            await trio.lowlevel.checkpoint()  # for the adapter: a client that reads must not be swamped
        await trio.lowlevel.checkpoint()  # for its writer, before the journal has something to do again


async def _next_replies(journal: Ref[JournalMessage], handed: int) -> tuple[QueuedReply, ...]:
    try:
        return await journal.ask(NextReplies, handed)
    except StorageError as error:
        _log.error("the outbox cannot be read", error=str(error))
        await trio.sleep(AGAIN)
        return ()


def _is_taken(adapter: Ref[AdapterMessage], message: AdapterMessage) -> bool:
    """Whether there is room now, as nearly always."""
    try:
        adapter.tell_nowait(message)
    except MailboxFull:
        return False
    return True


class _Board:
    """behind: adapters that missed a reply and were not yet told to catch up."""

    def __init__(
        self, adapters: Mapping[str, Ref[AdapterMessage]], default: Ref[AdapterMessage] | None, nursery: trio.Nursery
    ) -> None:
        self._adapters = adapters
        self._default = default
        self._nursery = nursery
        self._behind: set[Ref[AdapterMessage]] = set()

    async def deliver(self, message: OutboundMessage) -> None:
        """Hand a reply to its adapter; never raises, whatever the adapter does."""
        address = message.channel.address
        adapter = self._adapter(address.type)
        if adapter is None:
            _log.warning(
                "no adapter for this channel type; the reply waits in the outbox", to=str(address), seq=message.seq
            )
        elif adapter not in self._behind and not await self.pass_on(address.type, DeliverReply(message)):
            _log.warning("an adapter takes no replies; they wait in the outbox", adapter=adapter.path, seq=message.seq)
            self._behind.add(adapter)
            self._nursery.start_soon(self._tell_to_catch_up, adapter)

    async def pass_on(self, type: str, message: AdapterMessage) -> bool:
        """Whether the adapter of this type took the message."""
        adapter = self._adapter(type)
        if adapter is None or adapter in self._behind:
            return False
        try:
            if _is_taken(adapter, message):
                return True
            with trio.move_on_after(PATIENCE):
                await adapter.tell(message)
                return True
        except ActorError as error:
            _log.warning("a message did not reach its adapter", adapter=adapter.path, error=str(error))
        return False

    async def _tell_to_catch_up(self, adapter: Ref[AdapterMessage]) -> None:
        while True:
            try:
                await adapter.tell(CatchUp())
            except ActorError:
                await trio.sleep(AGAIN)  # its mailbox refuses instead of letting us wait
            else:
                self._behind.discard(adapter)
                return

    def _adapter(self, type: str) -> Ref[AdapterMessage] | None:
        return self._adapters.get(type, self._default)
