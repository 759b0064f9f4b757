"""Tokens of clients: what each may do, under which name it may speak, and whether it still counts.

The token in the home is the owner's and may all. Every other client gets a token of its own, which can be taken back without touching
the others. It is bound to one conversation, or to a bridge of a type: a client that could name any conversation would hear what is
said to the owner there. Where its owner has fixed no conversation it has one of its own, `token-<name>`, with others below it
(`token-<name>/…`) for a client that keeps several. A channel type may be fixed, too. It has scopes:

* "message": it sends messages, and gets the replies to them.
* "read": it gets replies, and calls methods that only show something.
* "control": it calls all methods, and what an owner's channel says through it counts as said by the owner.

Only a hash of a token is stored, in `data/tokens.json`. A token is 256 random bits, so nobody can find it by trying, and a hash made
for passwords would only slow down each hello. A change is on disk before it takes effect. A revoked token's connections end at once
(`TokenGrant.revoked`).

    book = TokenBook()
    await book.load(journal, clock)
    token = await book.add("phone", scopes=("message",), type="web", channel_id="phone")
    (await book.find_read(token)).name   # "phone"
    await book.revoke("phone")
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Callable, Collection, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final

import attrs

from actors import Ref
from pegasus.access.principal import MESSAGE, OWNER_GRANT, SCOPES, StoredToken, TokenGrant, own_channel_id
from pegasus.formatting import quote
from pegasus.messages import Address, Json
from pegasus.observe import get_logger
from pegasus.storage import JournalMessage, KeyedStore, StorageError, stored_rows
from pegasus.wire import from_wire, to_wire

PREFIX: Final = "pgs_"
"""Beginning of each token, by which it is found in texts that are not to show it (`pegasus.redaction`)."""
MOST_TOKENS: Final = 1000
"""Tokens that may exist. Each hello is compared with all of them."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""Form of a token's name, which stands in the file, in log lines and in commands."""
_log = get_logger("tokens")


class TokenRefused(ValueError):
    """A token cannot be added or revoked. str() says what was found and what to do.

    Raised by `TokenBook.add` and `TokenBook.revoke`; nothing has changed then. The command line prints the text.

    Example: `await book.add("my phone")` raises it, because a name has no blanks.
    """


class TokenBook:
    """The tokens beside that of the home. All changes go through the journal, one after the other."""

    def __init__(self) -> None:
        self._grants: dict[str, TokenGrant] = {}
        """By name, oldest first."""
        self._store = KeyedStore("tokens", _read_token, after_read=self._take_over)
        """Tokens by `tokens/<name>`, and by `revoked/<name>`, the latest last, those that count no more. The conversations of a
        revoked one have not become an owner's by that."""
        self.follow = self._store.follow
        """Reads them again whenever another node has changed them, until cancelled."""
        self._clock: Callable[[], int] = lambda: 0
        """Wall clock, ms; 0 before `load`."""

    async def load(self, journal: Ref[JournalMessage], clock: Callable[[], int]) -> None:
        """Read the tokens, and write changes to this journal from now on. clock: wall clock, ms.

        Entries that cannot be understood do not count. A file that cannot be read is read again before the next change, and when a
        token is shown that may be in it (`find_read`). Never raises.
        """
        self._clock, self._grants = clock, {}
        await self._store.open(journal)

    @property
    def is_read(self) -> bool:
        """True if the tokens in memory are those of the file."""
        return self._store.is_read

    async def ensure_read(self) -> None:
        """Read the file if that has not succeeded yet. Raises StorageError and ActorError."""
        await self._store.ensure_read()

    def _take_over(self) -> None:
        """Make grants of the tokens that were read."""
        # A grant that an earlier read has made stays the same object: connections wait for it to be revoked. Those that
        # are gone were revoked by a change whose answer nobody has waited for.
        known = {(grant.name, grant.token.hash): grant for grant in self._grants.values()}
        tokens = [token for key, token in self._store.rows.items() if key.startswith("tokens/")]
        self._grants = {token.name: known.pop((token.name, token.hash), TokenGrant(token)) for token in tokens}
        for grant in known.values():
            grant.revoked.set()

    def _revoked(self) -> list[StoredToken]:
        """Return the tokens that count no more, the latest last."""
        return [token for key, token in self._store.rows.items() if key.startswith("revoked/")]

    async def find_read(self, token: str) -> TokenGrant | None:
        """Return the rights of a token, None for an unknown token, after reading the file if that has not succeeded yet.

        All hashes are compared, each in constant time, so that the time tells nothing about them.

        Raises StorageError and ActorError if the file cannot be read. A None would make a wrong token of one that may be right.
        """
        if not self._store.is_read:
            try:
                await self.ensure_read()
            except StorageError as error:
                raise StorageError(f"the file of tokens cannot be read: {error}") from error
        if (found := self._find(token)) is None:
            await self._store.read_again()  # another node may have made it a moment ago
            found = self._find(token)
        return found

    def _find(self, token: str) -> TokenGrant | None:
        """Return the rights of a token in memory."""
        found, digest = None, hash_token(token)
        for grant in self._grants.values():
            if hmac.compare_digest(digest, grant.token.hash):
                found = grant
        return found

    def named(self, name: str) -> TokenGrant | None:
        """Return the rights of the token of this name, None if there is none."""
        return self._grants.get(name)

    def is_from_guest(self, address: Address) -> bool:
        """Return whether a client that may not speak for an owner can have this conversation, by its token.

        What is said there reaches it, whatever `agent.owners` says about conversations of this type. So it stays when the token is
        revoked: a new one may get what waits there. It ends with a token of the same name that speaks for an owner.
        """
        type, id = address.type, address.channel_id
        grants = [*self._grants.values(), *map(TokenGrant, self._revoked())]
        guests = [grant for grant in grants if not grant.vouches_for(type)]
        return any(not grant.refusal(type, None if grant.token.bridge else id) for grant in guests)

    def view(self) -> Sequence[StoredToken]:
        """Return all tokens, oldest first."""
        return [grant.token for grant in self._grants.values()]

    async def add(
        self,
        name: str,
        *,
        scopes: Collection[str] = (MESSAGE,),
        type: str = "",
        channel_id: str = "",
        bridge: bool = False,
    ) -> str:
        """Make a token; return it. It is not stored, so nobody can show it again.

        Raises TokenRefused, and StorageError, ActorError if it may not be on disk; nobody knows it then.
        """
        if not _NAME.fullmatch(name):
            raise TokenRefused(f"found the name {quote(name, 80)}; allowed: 1 to 64 letters, digits, '.', '_' and '-'")
        unknown = sorted(set(scopes) - set(SCOPES))
        if unknown or not scopes:
            raise TokenRefused(f"found the scope {', '.join(unknown) or 'none'}; allowed: {', '.join(SCOPES)}")
        if bridge and channel_id:
            raise TokenRefused("a bridge serves all conversations of its type; leave out --channel or --bridge")
        async with self._store.change():
            if name in self._grants:
                raise TokenRefused(f"there is a token {quote(name)} already; revoke it, or choose another name")
            if len(self._grants) >= MOST_TOKENS:
                raise TokenRefused(f"there are {MOST_TOKENS} tokens already; revoke those that are not used")
            token = f"{PREFIX}{secrets.token_urlsafe(32)}"
            ordered = tuple(scope for scope in SCOPES if scope in scopes)
            stored = StoredToken(name, hash_token(token), ordered, type, channel_id, bridge, self._clock())
            # On disk before it counts. If the disk refuses, whoever asked gets the error and no token.
            await self._store.save({f"tokens/{name}": stored}, [f"revoked/{name}"])
            self._grants[name] = TokenGrant(stored)
        _log.info("token added", name=name, scopes=",".join(ordered))
        return token

    async def revoke(self, name: str) -> None:
        """Make a token count no more. Its connections end.

        Raises TokenRefused if there is none of this name, and StorageError, after which it still counts. After an ActorError, and when
        cancelled, it counts if the file says so, which is read before the next change and the next `find_read`.
        """
        async with self._store.change():
            grant = self._grants.get(name)
            if grant is None:
                raise TokenRefused(f"there is no token {quote(name, 80)}; `token list` shows all")
            # The oldest are forgotten beyond the bound, so that the file does not grow with each token that there was.
            revoked = [token.name for token in self._revoked() if token.name != name]
            over = [f"revoked/{old}" for old in revoked[: max(0, len(revoked) + 1 - MOST_TOKENS)]]
            await self._store.save({f"revoked/{name}": grant.token}, [f"tokens/{name}", f"revoked/{name}", *over])
            del self._grants[name]
        # After the write: connections that end before it could come back with the token if the write fails.
        grant.revoked.set()
        _log.info("token revoked", name=name)


def hash_token(token: str) -> str:
    """Return the SHA-256 of a token, in hexadecimal digits."""
    return sha256(token.encode("utf-8", "replace")).hexdigest()


def _read_token(name: str, value: Json) -> tuple[str, StoredToken]:
    """Return key and token of an entry of the file. name: its list, "tokens" or "revoked". Raises ValueError."""
    token = from_wire(value, StoredToken)
    if not _NAME.fullmatch(token.name) or not re.fullmatch("[0-9a-f]{64}", token.hash):
        raise ValueError("name or hash is none")
    if not set(token.scopes) <= set(SCOPES):
        raise ValueError("a scope that does not exist")
    return f"{name}/{token.name}", token


def stored_tokens(data: Path) -> Collection[StoredToken]:
    """Return the tokens of a home, for a process that is not the daemon. data: folder of the journal. Raises OSError."""
    rows, _ = stored_rows(data, "tokens", _read_token)
    return [token for key, token in rows.items() if key.startswith("tokens/")]


def tokens_view(tokens: Collection[StoredToken]) -> dict[str, Json]:
    """Return tokens as the control plane and the command line show them, without their hashes."""
    shown = [token if token.bridge else attrs.evolve(token, channel_id=own_channel_id(token)) for token in tokens]
    return {"tokens": [{key: value for key, value in to_wire(token).items() if key != "hash"} for token in shown]}


@attrs.frozen(eq=False, repr=False, kw_only=True)
class Credentials:
    """The tokens that count: that of the home, and those of other clients."""

    token: str
    """The secret of the home's owner. Raises ValueError if it is empty, which everybody would know."""
    tokens: TokenBook = attrs.field(factory=TokenBook)
    """The tokens of other clients, with what each of them may do."""

    def __attrs_post_init__(self) -> None:
        if not self.token:
            raise ValueError("Credentials.token is empty, which everybody would know")

    async def find_grant(self, token: str) -> TokenGrant | None:
        """Return the rights of a token, None if it is none that counts.

        The token of the home is compared in constant time, so that its characters cannot be guessed one by one. Raises StorageError
        and ActorError while it cannot be known whether another one counts.
        """
        if hmac.compare_digest(token.encode("utf-8", "replace"), self.token.encode()):
            return OWNER_GRANT
        return await self.tokens.find_read(token)
