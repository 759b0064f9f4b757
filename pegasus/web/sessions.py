"""Sign-in of the web page: sessions behind a cookie, and links that sign in once.

A person signs in with a token (`POST /api/login`) or by a link of `pegasus open`. The browser then has a cookie with a random id,
never the token: what a browser keeps can be read by whoever sits there, and a session can end without a new token.

A session has the rights of the token that it was opened with, and ends with it: when a token is revoked, or that of the home is
changed, its sessions count no more. It also ends SESSION_DAYS after the sign-in, and at a sign-out.

Sessions survive a restart of the daemon, since somebody who reads the page should not have to sign in after each update. So they are
in `data/web/sessions.json`, with a hash in place of the id, as tokens are. Codes of links are in memory only: they are good for five
minutes, and whoever restarts the daemon can ask for another.

    sessions = WebSessions(gateway_config)
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

from actors import ActorError, Ref
from pegasus.gateway import GatewayConfig
from pegasus.messages import Json
from pegasus.observe import get_logger
from pegasus.policy import OWNER_GRANT, TokenGrant, hash_token
from pegasus.settings import InForce
from pegasus.storage import JournalMessage, ReadFile, ReplaceFile, StorageError
from pegasus.wire import WireError, decode_object, encode_json, from_wire, to_wire

SESSIONS_FILE: Final = "web/sessions.json"
"""File of the sessions, below data/: `{"sessions": [{"hash", "tokenName", "tokenHash", "opened"}]}`."""
SESSION_DAYS: Final = 30
"""Days after which a session ends."""
MOST_SESSIONS: Final = 100
"""Sessions that are kept; a further sign-in ends the oldest. A browser that clears its cookies leaves one behind each time."""
CODE_SECONDS: Final = 300.0
"""Seconds that the code of a link counts."""
MOST_CODES: Final = 100
"""Codes that are kept; a further one ends the oldest."""

_log = get_logger("web")


@attrs.frozen
class StoredSession:
    """A session as it stands in the file.

    Example: `from_wire({"hash": "9f…", "tokenName": "", "tokenHash": "c1…", "opened": 1753000000000},
    StoredSession)`.
    """

    hash: str = attrs.field(repr=False)
    """SHA-256 of the id in the cookie, in hexadecimal digits."""
    token_name: str
    """Name of the token that it was opened with; "" for that of the home."""
    token_hash: str = attrs.field(repr=False)
    """SHA-256 of that token: another token of the same name does not revive the session."""
    opened: int
    """Wall clock, ms."""


class WebSessions:
    """Sessions of people who are signed in. All changes go through the journal, one after the other.

    Example: see the top of this file.
    """

    def __init__(self, config: InForce[GatewayConfig]) -> None:
        """Begin without sessions, which `load` reads. config: knows the tokens."""
        self._config = config
        self._home_hash = hash_token(config.now.token)
        self._sessions: dict[str, StoredSession] = {}
        """By the hash of the id, oldest first."""
        self._codes: dict[str, float] = {}
        """Time at which each code ends, by its hash, oldest first. Trio's clock."""
        self._journal: Ref[JournalMessage] | None = None
        """Writes the file; None before `load`."""
        self._clock: Callable[[], int] = lambda: 0
        self._lock = trio.Lock()
        """Held during a change, so that an older state never replaces a newer one."""

    async def load(self, journal: Ref[JournalMessage], clock: Callable[[], int]) -> None:
        """Read the sessions, and write changes to this journal from now on. clock: wall clock, ms.

        A file that is damaged or cannot be read means that everybody must sign in again, which is logged. Never raises.
        """
        self._journal, self._clock = journal, clock
        try:
            content = await journal.ask(ReadFile, SESSIONS_FILE)
            entries = decode_object(content).get("sessions") if content else []
            if not isinstance(entries, list):
                raise ValueError("there is no list of sessions")
            sessions = [from_wire(entry, StoredSession) for entry in entries]
        except (StorageError, ActorError, ValueError, WireError) as error:
            _log.error("the file of sessions cannot be read: everybody must sign in again", error=str(error))
            return
        self._sessions = {session.hash: session for session in sessions}

    def find(self, id: str) -> TokenGrant | None:
        """Return the rights of a session, None if there is none of this id or it has ended.

        The lookup is by a hash, so its time tells nothing about other ids.
        """
        session = self._sessions.get(hash_token(id))
        return self._grant_of(session) if session is not None else None

    def _grant_of(self, session: StoredSession) -> TokenGrant | None:
        """Return the rights of the token that the session was opened with, None if the session or the token counts no more."""
        if self._clock() >= session.opened + SESSION_DAYS * 86_400_000:
            return None
        if not session.token_name:
            return OWNER_GRANT if session.token_hash == self._home_hash else None
        grant = self._config.now.tokens.named(session.token_name)
        return grant if grant is not None and grant.token.hash == session.token_hash else None

    async def open(self, grant: TokenGrant) -> str:
        """Sign in with these rights; return the id for the cookie. Raises StorageError, ActorError; then nothing has changed."""
        id = secrets.token_urlsafe(32)
        name, of_token = ("", self._home_hash) if grant.is_home else (grant.name, grant.token.hash)
        session = StoredSession(hash_token(id), name, of_token, self._clock())
        async with self._lock:
            living = [other for other in self._sessions.values() if self._grant_of(other) is not None]
            await self._write([*living, session][-MOST_SESSIONS:])
        _log.info("signed in", token=grant.name)
        return id

    async def close(self, id: str) -> None:
        """Sign out. Raises StorageError, ActorError; then the session still counts. One that does not exist is no error."""
        hash = hash_token(id)
        async with self._lock:
            if hash in self._sessions:
                await self._write([other for other in self._sessions.values() if other.hash != hash])

    async def _write(self, sessions: list[StoredSession]) -> None:
        """Replace the sessions, on disk and then here. Raises StorageError and ActorError."""
        if self._journal is not None:
            lines: list[Json] = [to_wire(session) for session in sessions]
            await self._journal.ask(ReplaceFile, SESSIONS_FILE, f"{encode_json({'sessions': lines})}\n".encode())
        self._sessions = {session.hash: session for session in sessions}

    # ---------------------------------------------------------------- links

    def make_code(self) -> str:
        """Return a code that signs the owner in, once and within CODE_SECONDS."""
        code = secrets.token_urlsafe(24)
        self._codes[hash_token(code)] = trio.current_time() + CODE_SECONDS
        if len(self._codes) > MOST_CODES:
            del self._codes[next(iter(self._codes))]
        return code

    def redeem(self, code: str) -> bool:
        """Return whether the code counts. It does not from now on."""
        return self._codes.pop(hash_token(code), 0.0) > trio.current_time()
