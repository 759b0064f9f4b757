"""The lease of this node: registered once, renewed three times in its length, and lost by the node's own clock.

A node may act for its chats, tasks and channels as long as its lease lasts. The database counts the lease by its own clock from when
it has done the renewal. The node counts it by its monotonic clock from *before* the renewal was sent, and ends a second earlier. So
whatever the clocks show, and however long an answer is on its way, the node stops before another one begins.

A lease that was lost is not renewed. Everything that the node owned is given up, and it registers anew, under another number: what it
owned before may be another's by now. This is also what happens to a process that was paused for longer than the lease.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from functools import partial
from typing import Final

import attrs
import trio

from pegasus.observe import Activity, get_logger
from pegasus.storage.database.calls import DatabaseCalls
from pegasus.storage.database.tables import Database, DatabaseDown, NameTaken, NodeFacts
from pegasus.storage.messages import StorageError
from pegasus.storage.record_log import Report

MARGIN: Final = 1.0
"""Seconds before its end at which the node takes its lease for lost."""
_GHOST_PAUSE: Final = 0.25
"""Seconds between two attempts to register while a node of the same name has not ended."""

_log = get_logger("journal")


class NodeLease:
    """The registration of this process, and until when it counts."""

    def __init__(
        self,
        calls: DatabaseCalls,
        database: Database,
        facts: NodeFacts,
        settings: Callable[[], str],
        lease: float,
        on_lost: Callable[[], None],
        report: Report,
        activity: Activity,
    ) -> None:
        """Know what to register.

        settings: returns the digest of those in force. lease: its length in seconds. on_lost: called when everything that this node
        owned may be another's. activity: is told whether the node is drained.
        """
        self._calls = calls
        self._database = database
        self._facts = facts
        self._settings = settings
        self._lease = lease
        self._on_lost = on_lost
        self._report = report
        self._activity = activity
        self.id = 0
        """Number of the registration; 0 = there is none."""
        self.instance = ""
        """Text that no other registration has."""
        self.is_draining = False
        """True if somebody has asked for everything to be given back."""
        self.living = 0
        """Nodes that live; 0 = it is not known yet, as before the first renewal."""
        self._sent = 0.0
        """Trio's clock before the last registration or renewal was sent."""
        self._until = 0.0
        """Trio's clock at which the lease counts as lost."""

    @property
    def is_alive(self) -> bool:
        """Return whether this node may act for what it owns."""
        return self.id != 0 and trio.current_time() < self._until

    @property
    def seconds_left(self) -> float:
        """Return for how long it may act, if the lease is not renewed."""
        return max(0.0, self._until - trio.current_time()) if self.id else 0.0

    async def begin(self) -> None:
        """Register. Waits while the database is down, and while a node of this name that may be dead has not ended.

        Raises StorageError if another process goes on living under the name.
        """
        # Of this process nothing may be left: a registration whose answer was lost, or one that the clock has ended a second early.
        self.instance = secrets.token_hex(8)
        facts = attrs.evolve(self._facts, instance=self.instance)
        patience = None

        async def register() -> int:
            self._sent = trio.current_time()
            return await self._database.register(attrs.evolve(facts, settings=self._settings()), self._lease)

        while True:
            try:
                self.id = await self._calls.until_done(register, waits=False)
                break
            except NameTaken as error:
                # A process that was killed leaves a lease behind. If it is renewed, its process lives.
                patience = patience or trio.current_time() + self._lease + MARGIN
                if trio.current_time() > patience:
                    raise StorageError(
                        f"another node has the name {self._facts.name!r}; give this one another name ([node] name)"
                    ) from error
                await trio.sleep(_GHOST_PAUSE)
        self._until = self._sent + self._lease - MARGIN

    async def keep(self, began: Callable[[], object]) -> None:
        """Renew the lease for ever, and register anew when it is lost. began: called after each new registration.

        Raises StorageError as `begin` does.
        """
        while True:
            await self._renew_until_lost()
            lost, self.id = self.id, 0
            self._report("this node has lost its lease; its chats and tasks may be another's, and it begins anew")
            self._on_lost()
            await self._calls.until_done(partial(self._database.leave, lost), waits=False)
            await self.begin()
            if self.is_draining:  # until the process is started again
                await self._calls.until_done(partial(self._database.drain, self._facts.name), waits=False)
            began()

    async def _renew_until_lost(self) -> None:
        """Renew the lease until it is lost."""

        async def renew() -> bool:
            sent = trio.current_time()
            renewal = await self._database.renew(self.id, self._lease, self._settings())
            if renewal is None:
                return False
            self._sent, self._until = sent, sent + self._lease - MARGIN
            self.is_draining, self.living = renewal.is_draining, renewal.living
            self._activity.is_draining = self.is_draining
            return True

        while self.is_alive:
            with trio.move_on_at(self._until):
                await trio.sleep_until(self._sent + self._lease / 3)
                if not await self._calls.until_done(renew, waits=False):
                    return

    async def leave(self) -> None:
        """End the registration: everything that it owned is free for others."""
        if self.id:
            lost, self.id = self.id, 0
            self._on_lost()
            try:
                await self._database.leave(lost)
            except DatabaseDown as error:
                _log.warning("this node cannot sign off; its lease ends by itself", error=str(error))
