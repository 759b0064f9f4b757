"""Work that one node does at a time: firing the schedule, delivering what nobody has acknowledged.

Each piece of such work has an owner key. The nodes that do not own it wait for it, and one of them goes on when the owner has left,
or its lease is over. Where the state is in files there is one node, which has the key at once and for ever.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import trio

from actors import Ref
from pegasus.retry import retry
from pegasus.storage.leases import Lease, LeaseLost, LostLease, TakeLease
from pegasus.storage.messages import JournalMessage, StorageError

LOOK: Final = 0.5
"""Seconds between two attempts to have a key that another node owns."""


async def while_owner(journal: Ref[JournalMessage], key: str, work: Callable[[], Awaitable[object]]) -> None:
    """Do some work whenever this node owns a key. When the key is lost, the work is cancelled, and begun again with the next lease.

    Returns when the work does. Raises what the work raises, and ActorError. What the work is about to send when the key is lost may be
    sent by the next owner, too, so it has a key by which it counts once.

    Example: `await while_owner(journal, "schedule", self._run)`.
    """
    while True:
        try:
            lease = await retry(lambda: journal.ask(TakeLease, key), StorageError)
        except LeaseLost:
            await trio.sleep(LOOK)
            continue
        is_done = False
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_cancel_when_lost, journal, lease, nursery.cancel_scope)
            await work()
            is_done = True
            nursery.cancel_scope.cancel()
        if is_done:
            return


async def _cancel_when_lost(journal: Ref[JournalMessage], lease: Lease, scope: trio.CancelScope) -> None:
    await journal.ask(LostLease, lease)
    scope.cancel()
