"""Work that one node does at a time: firing the schedule, polling a service, delivering what nobody has acknowledged.

Each piece of such work has an owner key. The nodes that do not own it wait for it, and one of them goes on when the owner has left,
or its lease is over. Where the state is in files there is one node, which has the key at once and for ever.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeVar

import trio

from actors import ActorError, Inbox, Ref
from pegasus.retry import retry
from pegasus.storage.leases import GiveBack, Lease, LeaseLost, LostLease, TakeLease
from pegasus.storage.messages import JournalMessage, NextChange, StorageError

M = TypeVar("M")

LOOK: Final = 0.5
"""Seconds between two attempts to have a key that another node owns."""


async def until_owned(journal: Ref[JournalMessage], key: str) -> Lease:
    """Return a new lease of a key as soon as this node may have one: no other owns it, and this one is registered and not drained."""
    while True:
        try:
            return await retry(lambda: journal.ask(TakeLease, key), StorageError)
        except LeaseLost:
            await trio.sleep(LOOK)


async def while_owner(
    journal: Ref[JournalMessage],
    key: str,
    work: Callable[[], Awaitable[object]],
    meanwhile: Callable[[], Awaitable[object]] = trio.sleep_forever,
) -> None:
    """Do some work whenever this node owns a key. When the key is lost, the work is cancelled, and begun again with the next lease.

    Returns when the work does. Raises what the work raises, but LeaseLost, and ActorError. What the work is about to send when the key
    is lost may be sent by the next owner, too, so it has a key by which it counts once.

    meanwhile: runs while another node owns the key, each time until this node does; when it returns, so does this.

    Example: `await while_owner(journal, "schedule", self._run)`.
    """
    await _work_while_owner(journal, key, lambda lease: work(), meanwhile)


async def _work_while_owner(
    journal: Ref[JournalMessage],
    key: str,
    work: Callable[[Lease], Awaitable[object]],
    meanwhile: Callable[[], Awaitable[object]],
) -> None:
    """Do what `while_owner` does. work: is given the lease."""
    is_done = False
    while not is_done and (lease := await _own(journal, key, meanwhile)) is not None:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_cancel_when_lost, journal, lease, nursery.cancel_scope)
                await work(lease)
                is_done = True
                nursery.cancel_scope.cancel()
        except* LeaseLost:  # a change was refused before the news came
            is_done = False
        finally:
            with suppress(ActorError):
                journal.tell_nowait(GiveBack(lease))


async def _own(journal: Ref[JournalMessage], key: str, meanwhile: Callable[[], Awaitable[object]]) -> Lease | None:
    """Return the lease of a key when this node owns it; None if `meanwhile` has returned before."""
    lease: Lease | None = None
    async with trio.open_nursery() as nursery:

        async def take() -> None:
            nonlocal lease
            lease = await until_owned(journal, key)
            nursery.cancel_scope.cancel()

        nursery.start_soon(take)
        await meanwhile()
        nursery.cancel_scope.cancel()
    return lease


async def until_wanted(journal: Ref[JournalMessage], collection: str, asked: trio.Event) -> None:
    """Return when somebody has asked for some work here, or another node has put the first row into its collection."""
    async with trio.open_nursery() as nursery:

        async def look() -> None:
            await retry(lambda: journal.ask(NextChange, collection, "", 0), StorageError)
            nursery.cancel_scope.cancel()

        nursery.start_soon(look)
        await asked.wait()
        nursery.cancel_scope.cancel()


async def _cancel_when_lost(journal: Ref[JournalMessage], lease: Lease, scope: trio.CancelScope) -> None:
    await journal.ask(LostLease, lease)
    scope.cancel()


async def run_while_owner(
    inbox: Inbox[M],
    journal: Ref[JournalMessage],
    key: str,
    run: Callable[[Inbox[M], Lease], Awaitable[object]],
    absent: Callable[[M], object] = lambda message: None,
) -> None:
    """Run an actor whenever this node owns a key, each time as after a restart. The actor is up in any case.

    run: the actor, which is given the lease. absent: is given the messages that come while another node owns the key; by default they
    are dropped. Raises what the actor raises, but LeaseLost. Stopped: the actor is stopped.
    """
    inbox.started()

    async def answer() -> None:
        async for message in inbox:
            absent(message)

    await _work_while_owner(journal, key, lambda lease: run(inbox, lease), answer)
