"""Ownership: what this node owns, under which tokens, and who has to be told when it does not any more.

Nothing here is durable. The database knows the owner of each key; this is what the node believes, so that it need not ask. A belief
that is wrong does no harm, since the database refuses a change whose token is not the newest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import attrs
import trio

from pegasus.observe import Activity
from pegasus.storage.inbox_messages import LostChats
from pegasus.storage.leases import Lease, LeaseLost, LostLease
from pegasus.storage.messages import StorageError


@attrs.define(eq=False)
class OwnedKey:
    """An owner key that this node owns."""

    token: int
    """Token of the newest lease; 0 while a new one is being taken."""
    newest: int = 0
    """Number of the newest item of the key that was loaded."""
    items: set[int] = attrs.field(factory=set)
    """Items of the key that are in the queue."""
    since: float = attrs.field(factory=trio.current_time)
    """Trio's clock when it last had an item, or a lease of it was taken."""


class Ownership:
    """The keys that this node owns. on_lost: called with each key that it owns no more."""

    def __init__(self, on_lost: Callable[[OwnedKey], None], activity: Activity) -> None:
        self._on_lost = on_lost
        self._activity = activity
        self.keys: dict[str, OwnedKey] = {}
        """Owned keys, with what is known of each."""
        self._lost_chats: LostChats | None = None
        """Open query of whoever runs the agents of chats."""
        self.running: frozenset[str] | None = None
        """Owner keys of the chats that have an agent, as of the last query; None before the first."""
        self._watched: list[LostLease] = []
        """Queries for the loss of leases."""

    def gain(self, lease: Lease) -> bool:
        """Note a lease that the database has given to this node. Return whether the key is new."""
        owned = self.keys.get(lease.owner)
        if owned is None:
            self.keys[lease.owner] = OwnedKey(lease.token)
            self._activity.keys_taken([lease.owner])
        elif owned.token < lease.token:
            owned.token, owned.since = lease.token, trio.current_time()
            self._tell()
        return owned is None

    def lose(self, keys: Iterable[str]) -> None:
        """Note that this node owns these keys no more."""
        for key in keys:
            if (owned := self.keys.pop(key, None)) is not None:
                self._activity.keys_lost([key])
                self._on_lost(owned)
        self._tell()

    def holds(self, lease: Lease) -> bool:
        """Return whether a lease is the newest of its key, as far as this node knows."""
        owned = self.keys.get(lease.owner)
        return owned is not None and owned.token == lease.token > 0

    def is_behind(self, lease: Lease) -> bool:
        """Return whether a lease in the database makes the one that this node has of the key void. One that is being taken has 0."""
        owned = self.keys.get(lease.owner)
        return owned is not None and 0 < owned.token < lease.token

    def check(self, leases: Iterable[Lease]) -> None:
        """Raise LeaseLost if one of these is not the newest of its key."""
        for lease in leases:
            if not self.holds(lease):
                raise LeaseLost(f"somebody else has the lease of {lease.owner}")

    # ------------------------------------------------------------------ who is told

    def watch_lease(self, query: LostLease) -> None:
        """Answer a query when its lease is lost."""
        self._watched = [other for other in self._watched if not other.reply.abandoned]
        self._watched.append(query)
        self._tell()

    def watch_chats(self, query: LostChats) -> None:
        """Answer a query when a lease of its chats is lost. It takes the place of an earlier one, which fails."""
        if self._lost_chats is not None:
            self._lost_chats.reply.fail(StorageError("another LostChats has taken the place of this one"))
        self._lost_chats = query
        self.running = frozenset(lease.owner for lease in query.running.values())
        self._tell()

    def _tell(self) -> None:
        """Answer the queries about what is lost."""
        for watched in [other for other in self._watched if not self.holds(other.lease)]:
            self._watched.remove(watched)
            watched.reply.send(None)
        query = self._lost_chats
        if query is None or query.reply.abandoned:
            return
        lost = tuple(address for address, lease in query.running.items() if not self.holds(lease))
        if lost:
            self._lost_chats = None
            query.reply.send(lost)
