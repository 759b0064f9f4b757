"""Browsers that are to be notified, and what each of them has been shown already.

A subscription belongs to the session of the browser that has made it, and counts as long as that does: whoever signs out, or whose
token is revoked, is told nothing more. It reaches the conversation of the session's token and no other.

A row says how far its browser was told: the number of the last reply, and the approvals whose question stands on its screen. Both are
written when the push service has taken the message. So after a crash that message is sent once more, which replaces the first on the
screen, and none is lost.

    book = PushBook(sessions, journal)
    await book.ensure_read()
    row = await book.add(PushSubscription(...), ChannelInfo("web", "main"))
    await book.note(row.id, replies=13)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from hashlib import sha256
from typing import Final

import attrs

from actors import Ref, Signal
from pegasus.access import TokenGrant, WebSessions
from pegasus.messages import ChannelInfo, Json
from pegasus.storage import JournalMessage, KeyedStore, LastSeq
from pegasus.wire import from_wire

MOST_SUBSCRIPTIONS: Final = 5
"""Subscriptions of a session, which is one browser; a further one ends its oldest."""
MOST_SEEN: Final = 1000
"""Approvals that are remembered as seen on a page."""

JOURNAL_TIMEOUT: Final = 10.0
"""Seconds that the journal may take to answer."""


@attrs.frozen
class PushSubscription:
    """A subscription as it stands in the file."""

    endpoint: str = attrs.field(repr=False)
    """Address at the push service. Whoever knows it can send there, if they have the key of this home as well."""
    p256dh: str = attrs.field(repr=False)
    """Public key of the browser, base64url."""
    auth: str = attrs.field(repr=False)
    """Secret of the browser, base64url."""
    session: str = attrs.field(repr=False)
    """Hash of the session's id."""
    about: str
    """"all", or "approvals" for these alone."""
    text: bool
    """True if a notification shows what was said; False: that something was."""
    since: int
    """Wall clock, ms."""
    replies: int = 0
    """Number of the last reply that its browser was told of, or that was there before."""
    approvals: tuple[str, ...] = ()
    """Ids of the approvals that it was told of, and not yet that they are answered."""

    @property
    def id(self) -> str:
        """Name of the row."""
        return id_of(self.endpoint)


def id_of(endpoint: str) -> str:
    """Return the id of the subscription with this address."""
    return sha256(endpoint.encode()).hexdigest()[:32]


class PushBook:
    """The subscriptions. All changes go through the journal, one after the other."""

    def __init__(self, sessions: WebSessions, journal: Ref[JournalMessage]) -> None:
        self._sessions = sessions
        self._journal = journal
        self.changed = Signal()
        """Given when a subscription has come or gone."""
        self._store = KeyedStore("push-subscriptions", _read_subscription, after_read=self.changed.notify)
        self._store.use(journal)
        self.follow = self._store.follow
        """Reads them again whenever another node has changed them, until cancelled."""
        self._seen: dict[str, None] = {}

    @property
    def rows(self) -> Mapping[str, PushSubscription]:
        """The subscriptions by id, oldest first."""
        return self._store.rows

    async def ensure_read(self) -> None:
        """Read the file if that has not succeeded yet. Raises StorageError and ActorError."""
        await self._store.ensure_read()

    async def grant_of(self, row: PushSubscription) -> TokenGrant | None:
        """Return the rights of a subscription, None if its session has ended. Raises StorageError and ActorError."""
        return await self._sessions.find_hashed(row.session)

    async def add(self, row: PushSubscription, channel: ChannelInfo) -> PushSubscription:
        """Keep a subscription, and return it as it is kept. Raises StorageError and ActorError.

        A new one begins behind what was said in its conversation, `channel`. One that is there goes on where it was, unless it
        belonged to another session: what that was told is nothing to this one.
        """
        last = await self._journal.ask(LastSeq, channel.address, timeout=JOURNAL_TIMEOUT)
        async with self._store.change():
            rows = self._store.rows
            known = rows.get(row.id)
            if known is not None and known.session == row.session:
                row = attrs.evolve(row, replies=known.replies, approvals=known.approvals, since=known.since)
            else:
                row = attrs.evolve(row, replies=last)
            others = [id for id, other in rows.items() if other.session == row.session and id != row.id]
            over = others[: max(0, len(others) + 1 - MOST_SUBSCRIPTIONS)]
            await self._store.save({row.id: row}, delete=over)
        self.changed.notify()
        return row

    async def remove(self, id: str) -> None:
        """Forget a subscription. One that does not exist is no error. Raises StorageError and ActorError."""
        async with self._store.change():
            if id in self._store.rows:
                await self._store.save(delete=[id])
        self.changed.notify()

    async def note(self, id: str, *, replies: int | None = None, approvals: Collection[str] | None = None) -> None:
        """Note what a browser was told. Raises StorageError and ActorError."""
        async with self._store.change():
            row = self._store.rows.get(id)
            if row is None:
                return
            if replies is not None:
                row = attrs.evolve(row, replies=max(replies, row.replies))
            if approvals is not None:
                row = attrs.evolve(row, approvals=tuple(approvals))
            await self._store.save({id: row})

    def mark_seen(self, approvals: Collection[str]) -> None:
        """Note that an owner has these approvals on a page in front of them. In memory only: a page says it again when it connects."""
        self._seen.update(dict.fromkeys(approvals))
        for old in list(self._seen)[: max(0, len(self._seen) - MOST_SEEN)]:
            del self._seen[old]

    def is_seen(self, approval: str) -> bool:
        """Return whether an owner has an approval on a page."""
        return approval in self._seen


def _read_subscription(_: str, value: Json) -> tuple[str, PushSubscription]:
    """Return id and subscription of an entry of the file. Raises WireError."""
    row = from_wire(value, PushSubscription)
    return row.id, row
