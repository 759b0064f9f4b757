"""Sign-in of the web page: sessions behind a cookie, and links that sign in once.

A person signs in with a token (`POST /api/login`) or by a link of `pegasus open`. The browser then has a cookie with a random id,
never the token: what a browser keeps can be read by whoever sits there, and a session can end without a new token.

A session has the rights of the token that it was opened with, and ends with it: when a token is revoked, or that of the home is
changed, its sessions count no more. It also ends SESSION_DAYS after the sign-in, and at a sign-out.

Sessions survive a restart of the daemon, since somebody who reads the page should not have to sign in after each update. So they are
in `data/web/sessions.json`, with a hash in place of the id, as tokens are. Hashes of the codes of links are in `data/web/codes.json`:
behind a proxy the browser may come to another node than the one that was asked for the link.

    sessions = WebSessions(credentials)
    await sessions.load(journal, clock)
    id = await sessions.open(OWNER_GRANT)
    sessions.find(id).is_home          # True
    await sessions.close(id)
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Final

import attrs
import trio

from actors import Ref, Signal
from pegasus.access.principal import OWNER_GRANT, TokenGrant
from pegasus.access.tokens import Credentials, hash_token
from pegasus.messages import Json
from pegasus.observe import get_logger
from pegasus.settings import LiveValue
from pegasus.storage import JournalMessage, KeyedStore
from pegasus.wire import from_wire

SESSION_DAYS: Final = 30
"""Days after which a session ends."""
MOST_SESSIONS: Final = 100
"""Sessions that are kept; a further sign-in ends the oldest. A browser that clears its cookies leaves one behind each time."""
CODE_SECONDS: Final = 300
"""Seconds that the code of a link counts."""
MOST_CODES: Final = 100
"""Codes that are kept; a further one ends the oldest."""

_log = get_logger("web")


@attrs.frozen
class StoredSession:
    """A session as it stands in the file."""

    hash: str = attrs.field(repr=False)
    """SHA-256 of the id in the cookie, in hexadecimal digits."""
    token_name: str
    """Name of the token that it was opened with; "" for that of the home."""
    token_hash: str = attrs.field(repr=False)
    """SHA-256 of that token: another token of the same name does not revive the session."""
    opened: int
    """Wall clock, ms."""


@attrs.frozen
class StoredCode:
    """The code of a link as it stands in the file."""

    hash: str = attrs.field(repr=False)
    """SHA-256 of the code, in hexadecimal digits."""
    until: int
    """Wall clock at which it ends, ms."""


class WebSessions:
    """Sessions of people who are signed in. All changes go through the journal, one after the other."""

    def __init__(self, credentials: LiveValue[Credentials]) -> None:
        """Begin without sessions, which `load` reads. credentials: the tokens that count."""
        self._credentials = credentials
        self._home_hash = hash_token(credentials.now.token)
        self._changed = Signal()
        """Wakes those who wait for the end of a session, whenever the sessions have changed."""
        self._store = KeyedStore("web-sessions", _read_session, after_read=self._changed.notify)
        """By the hash of the id, oldest first."""
        self.follow = self._store.follow
        """Reads them again whenever another node has changed them, until cancelled."""
        self._codes = KeyedStore("web-codes", _read_code)
        """Codes of links by their hash, oldest first."""
        self.follow_codes = self._codes.follow
        """Does for the codes what `follow` does."""
        self._clock: Callable[[], int] = lambda: 0

    async def load(self, journal: Ref[JournalMessage], clock: Callable[[], int]) -> None:
        """Read the sessions, and write changes to this journal from now on. clock: wall clock, ms.

        Entries that cannot be understood do not count. A file that cannot be read is read again when a cookie is shown (`find_read`)
        and before the next change. Never raises.
        """
        self._clock = clock
        await self._store.open(journal)
        await self._codes.open(journal)

    async def find_read(self, id: str) -> TokenGrant | None:
        """Return the rights of a session as `find` does, after reading sessions and tokens if that has not succeeded yet.

        Raises StorageError and ActorError if they cannot be read. A None would sign out a browser whose session may count.
        """
        return await self.find_hashed(hash_token(id))

    async def find_hashed(self, hash: str) -> TokenGrant | None:
        """Do what `find_read` does, for the hash of an id."""
        if not self._store.is_read:
            await self._store.ensure_read()
        if hash not in self._store.rows:
            await self._store.read_again()  # another node may have opened it a moment ago
        session = self._store.rows.get(hash)
        tokens = self._credentials.now.tokens
        if session is not None and session.token_name and not tokens.is_read:
            await tokens.ensure_read()
        return self._grant_of(session) if session is not None else None

    def find(self, id: str) -> TokenGrant | None:
        """Return the rights of a session, None if there is none of this id or it has ended.

        The lookup is by a hash, so its time tells nothing about other ids.
        """
        session = self._store.rows.get(hash_token(id))
        return self._grant_of(session) if session is not None else None

    def _grant_of(self, session: StoredSession) -> TokenGrant | None:
        """Return the rights of the token that the session was opened with, None if the session or the token counts no more."""
        if self._is_old(session):
            return None
        if not session.token_name:
            return OWNER_GRANT if session.token_hash == self._home_hash else None
        grant = self._credentials.now.tokens.named(session.token_name)
        return grant if grant is not None and grant.token.hash == session.token_hash else None

    async def until_ended(self, id: str) -> None:
        """Return when a session has ended by a sign-out, by its age, or in favour of newer ones. Its token ends by itself."""
        hash = hash_token(id)
        while (session := self._store.rows.get(hash)) is not None and not self._is_old(session):
            with trio.move_on_after(max(1.0, (_end_of(session) - self._clock()) / 1000)):
                await self._changed.wait()

    def _is_old(self, session: StoredSession) -> bool:
        """Return whether the time of a session is over."""
        return self._clock() >= _end_of(session)

    def _may_count(self, session: StoredSession) -> bool:
        """Return whether a session counts, or may count when the tokens can be read."""
        is_unknown = bool(session.token_name) and not self._credentials.now.tokens.is_read
        return self._grant_of(session) is not None or (is_unknown and not self._is_old(session))

    async def open(self, grant: TokenGrant) -> str:
        """Sign in with these rights; return the id for the cookie. Raises StorageError, ActorError; nobody knows the id then."""
        id = secrets.token_urlsafe(32)
        name, of_token = ("", self._home_hash) if grant.is_home else (grant.name, grant.token.hash)
        session = StoredSession(hash_token(id), name, of_token, self._clock())
        async with self._store.change():
            living = [key for key, other in self._store.rows.items() if self._may_count(other)]
            kept = living[-(MOST_SESSIONS - 1) :]
            await self._store.save({session.hash: session}, delete=self._store.rows.keys() - kept)
            self._changed.notify()
        _log.info("signed in", token=grant.name)
        return id

    async def close(self, id: str) -> None:
        """Sign out. Raises StorageError, after which the session still counts, and ActorError. One that does not exist is no error."""
        hash = hash_token(id)
        async with self._store.change():
            if hash in self._store.rows:
                await self._store.save(delete=[hash])
                self._changed.notify()

    # ---------------------------------------------------------------- links

    async def make_code(self) -> str:
        """Return a code that signs the owner in, once and within CODE_SECONDS. Raises StorageError and ActorError."""
        code, now = secrets.token_urlsafe(24), self._clock()
        stored = StoredCode(hash_token(code), now + CODE_SECONDS * 1000)
        async with self._codes.change():
            living = [hash for hash, other in self._codes.rows.items() if other.until > now]
            kept = living[-(MOST_CODES - 1) :]
            await self._codes.save({stored.hash: stored}, delete=self._codes.rows.keys() - kept)
        return code

    async def is_code(self, code: str) -> bool:
        """Return whether the code counts, which it goes on doing. Such a code has letters, digits, "-" and "_" only.

        Raises StorageError and ActorError.
        """
        hash = hash_token(code)
        if hash not in self._codes.rows:
            await self._codes.read_again()  # another node may have made it a moment ago
        return self._counts(hash)

    async def redeem(self, code: str) -> bool:
        """Return whether the code counts. It does not from now on. Raises StorageError and ActorError; then nobody is signed in."""
        hash = hash_token(code)
        async with self._codes.change():
            counts = self._counts(hash)
            if counts:
                await self._codes.save(delete=[hash])
        return counts

    def _counts(self, hash: str) -> bool:
        stored = self._codes.rows.get(hash)
        return stored is not None and self._clock() < stored.until


def _read_session(_: str, value: Json) -> tuple[str, StoredSession]:
    """Return hash and session of an entry of the file. Raises WireError."""
    session = from_wire(value, StoredSession)
    return session.hash, session


def _read_code(_: str, value: Json) -> tuple[str, StoredCode]:
    """Return hash and code of an entry of the file. Raises WireError."""
    code = from_wire(value, StoredCode)
    return code.hash, code


def _end_of(session: StoredSession) -> int:
    """Return when a session is too old, in ms."""
    return session.opened + SESSION_DAYS * 86_400_000
