"""The control plane's methods about who may come in: tokens of clients, people who are not known yet, and browsers of the owner.

`pegasus token …`, `pegasus pair …` and `pegasus open` call them while a daemon runs.

The rights of a caller come from its token, which the gateway checks before a method runs: a token needs the scope
"control", "read" for the names in READ_METHODS, or "message" for those in MESSAGE_METHODS (`scopes`). The methods here are
stricter, since each of them gives rights to somebody else. Tokens and links need the token of the home itself, so a
client cannot give itself more rights than it has. Letting people in needs an owner, who may also ask from a chat service.

Every change is on disk before the answer: a client that gets a token can use it after a crash, too.
"""

from __future__ import annotations

from collections.abc import Collection

import attrs
import trio

from pegasus.access import (
    CONTROL,
    PairingBook,
    RequestRefused,
    TokenBook,
    TokenRefused,
    WebSessions,
    access_view,
    tokens_view,
)
from pegasus.formatting import quote
from pegasus.gateway import BadParams, Caller, Method, NotAllowed, Params, bad_params_for, require_owner, require_text
from pegasus.intake import add_token
from pegasus.main_agent import Place
from pegasus.messages import Address, Json
from pegasus.settings import LiveValue


def address_of(caller: Caller, params: Params) -> Address:
    """Return the conversation that a call is about: `type` and `channelId`; left out: that of the caller. Raises BadParams.

    A client of one conversation need not name it. A bridge serves all conversations of its type and has none of its own.
    """
    kind = require_text(params, "type") if "type" in params else caller.type
    channel_id = require_text(params, "channelId") if "channelId" in params else caller.channel_id
    if channel_id is None:
        raise BadParams("channelId: missing; a bridge must name the conversation")
    return Address(kind, channel_id)


def place_before(params: Params) -> Place | None:
    """Return the param `before`, which an earlier answer has named; None if it is left out. Raises BadParams."""
    if params.get("before") is None:
        return None
    if (place := Place.parse(require_text(params, "before"))) is None:
        raise BadParams(f"before: found {quote(params['before'], 80)}, allowed: what an earlier answer has named")
    return place


@attrs.frozen(eq=False, repr=False)
class TokenMethods:
    """The tokens of clients: `tokens.list`, `tokens.add`, `tokens.revoke`.

    Only the token of the home may call them: a client that could make tokens would give itself more rights than it has.

    Example::

        tokens = TokenMethods(book)
        answer = await tokens.add(caller, {"name": "phone", "type": "web", "scope": "message,read"})
        answer["token"]  # shown this once: the book keeps a hash
    """

    book: TokenBook
    """The tokens."""

    def methods(self) -> dict[str, Method]:
        """Return the methods by the names that they have on the wire."""
        return {"tokens.list": self.list, "tokens.add": self.add, "tokens.revoke": self.revoke}

    async def list(self, caller: Caller, params: Params) -> Json:
        """Return all tokens, without the secrets."""
        _check_home(caller)
        await self.book.ensure_read()
        return tokens_view(self.book.view())

    async def add(self, caller: Caller, params: Params) -> Json:
        """Make the token `name`, and return it. Nobody can show it again."""
        _check_home(caller)
        name, is_bridge = require_text(params, "name"), params.get("bridge") is True
        scope, type, channel = (str(params.get(key) or "") for key in ("scope", "type", "channel"))
        with bad_params_for(TokenRefused):
            token = await add_token(self.book, name, scope=scope, type=type, channel=channel, bridge=is_bridge)
        return {"name": name, "token": token}

    async def revoke(self, caller: Caller, params: Params) -> Json:
        """Make the token `name` count no more. Its connections end."""
        _check_home(caller)
        name = require_text(params, "name")
        with bad_params_for(TokenRefused):
            await self.book.revoke(name)
        return {"name": name}


@attrs.frozen(eq=False, repr=False)
class PairingMethods:
    """People who have written and are not known yet: `pair.list`, `pair.approve`, `pair.revoke`.

    Only owners let people in.

    Example::

        pairing = PairingMethods(book, owners=LiveValue(("cli:*",)))
        answer = await pairing.approve(caller, {"code": "7KQ2MX4P"})  # {"who": "telegram:42"}
    """

    book: PairingBook
    """The people and the codes."""
    owners: LiveValue[Collection[str]]
    """The setting `agent.owners`."""

    def methods(self) -> dict[str, Method]:
        """Return the methods by the names that they have on the wire."""
        return {"pair.list": self.list, "pair.approve": self.approve, "pair.revoke": self.revoke}

    async def list(self, caller: Caller, params: Params) -> Json:
        """Return the people who were let in, and the open codes."""
        require_owner(caller, self.owners.now, "lets people in")
        await self.book.ensure_read()
        return access_view(*self.book.view())

    async def approve(self, caller: Caller, params: Params) -> Json:
        """Let in the person who has `code`; return who that is.

        Raises BadParams for a code that is unknown, used or too old. Cancelled: the person is let in or not; `pair.list` shows
        which.
        """
        require_owner(caller, self.owners.now, "lets people in")
        code = require_text(params, "code")
        with bad_params_for(RequestRefused):
            return {"who": await self.book.approve(code, f"{caller.type}:{caller.channel_id or ''}")}

    async def revoke(self, caller: Caller, params: Params) -> Json:
        """Let in `who` no more."""
        require_owner(caller, self.owners.now, "lets people in")
        who = require_text(params, "who")
        with bad_params_for(RequestRefused):
            await self.book.revoke(who)
        return {"who": who}


class SignInMethod:
    """The method `http.link`: an address that signs a browser in, once. For `pegasus open`.

    The code in the link is short-lived and works once, so that a link in the history of a shell is of no use. The session
    that it begins belongs to the browser.

    Example::

        sign_in = SignInMethod(sessions, LiveValue("http://127.0.0.1:7718"))
        link = await sign_in.call(caller, {})  # {"url": "http://127.0.0.1:7718/login?code=…"}
    """

    def __init__(self, sessions: WebSessions | None, url: LiveValue[str]) -> None:
        """Keep what a link is made of. sessions: make its code; None if there is no HTTP server. url: address of the page."""
        self._sessions = sessions
        self._url = url

    def methods(self) -> dict[str, Method]:
        """Return the methods by the names that they have on the wire."""
        return {"http.link": self.call}

    async def call(self, caller: Caller, params: Params) -> Json:
        """Return `url`. Only the owner's own token may ask, since whoever opens the link has all rights."""
        await trio.lowlevel.checkpoint()
        if self._sessions is None:
            raise BadParams("there is no web page: http.enabled is false")
        if not (caller.grant.is_home and caller.grant.allows(CONTROL)):
            raise NotAllowed("only the token of the home may open the page")
        return {"url": f"{self._url.now}/login?code={await self._sessions.make_code()}"}


def _check_home(caller: Caller) -> None:
    if not caller.grant.is_home:
        raise NotAllowed("only the owner's token, which is in the home directory, may do this")
