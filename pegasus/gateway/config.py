"""Values that the daemon gives the gateway: its settings, and the methods that clients may call.

The gateway knows no method itself. Each method gets the caller and the parameters of the call and returns a JSON object.
`require_text` and its neighbours read single parameters; what they raise says what was found and what is allowed.

Everything that a client can make the gateway hold is bounded here or next to the code that holds it: connections, bytes of a
frame, frames that wait to be sent, time until the hello, time of one write. The bounds before the hello are the tightest,
because a client that connects has not shown a token yet: at most MAX_NEWCOMERS connections are served that have not greeted, and at
most MAX_PENDING wait for that. Each connection costs a file descriptor, and the journal, the model client and the tools need
descriptors of the same process. So `connections_within` leaves RESERVED_DESCRIPTORS of the process's limit to everybody else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Protocol, TypeAlias

import attrs

from pegasus.access import CONTROL, MESSAGE, OWNER_GRANT, READ, Credentials, TokenGrant
from pegasus.formatting import quote
from pegasus.messages import ApprovalNotice, ChannelInfo, Json
from pegasus.protocol import ClientChannel

MAX_NEWCOMERS = 32
"""Connections that are served without having greeted. Each may cost memory and work, so there are few."""
MAX_PENDING = 512
"""Connections that were accepted and have sent nothing yet, or wait for one of the places for newcomers. Each costs a file
descriptor and a task. Beyond that no connection is accepted; the kernel keeps those that wait."""
SILENT_TIME = 0.5
"""Seconds after which a connection that has sent nothing is cut if others wait to be accepted. A program speaks at once."""
HELLO_BYTES = 8 * 1024
"""Bytes of the hello frame. It must come in one piece."""
RESERVED_DESCRIPTORS = 256
"""File descriptors of the process that the gateway leaves to files, subprocesses and calls of models."""


@attrs.frozen(eq=False, repr=False, kw_only=True)
class GatewayConfig(Credentials):
    """The gateway's behaviour. Made by the daemon from the settings; tests change single values."""

    read_methods: Collection[str] = ()
    """Names of the methods that only show something: a token with the scope "read" may call them. All others need "control"."""
    message_methods: Collection[str] = ()
    """Names of the methods that do no more than a message of the same client could do: the scope "message" is enough for them."""
    agent: str = "Pegasus"
    """The agent's name in `welcome`."""
    origins: frozenset[str] = frozenset()
    """Values of a browser's Origin header that are let in. Programs send none."""
    max_frame_bytes: int = 1 << 20
    """Bytes of a frame after the hello, attachments included (`gateway.max_frame_bytes`)."""
    compression: bool = False
    """Frames are compressed for clients that offer it (`gateway.compression`)."""
    max_media_bytes: int = 20 << 20
    """Bytes of all files of one message (`media.max_bytes`)."""
    max_connections: int = 1000
    """Connections that may be open, greeted or not. The next one is refused as `overloaded`."""
    hello_timeout: float = 2.0
    """Seconds from the TCP connection to a good hello."""
    keepalive: float = 60.0
    """Seconds of silence after which a client is pinged, and again the seconds that it has to answer."""
    send_timeout: float = 30.0
    """Seconds that one write may take. A client that takes longer does not read."""
    close_timeout: float = 5.0
    """Seconds for what is still queued, and for the closing handshake, when a connection ends."""
    queue_frames: int = 256
    """Frames that may wait for one client before it is disconnected. Its replies stay in the outbox."""
    queue_bytes: int = 1 << 20
    """Bytes that may wait for one client, likewise."""

    def scope_of(self, method: str) -> str:
        """Return the scope that a method of the control plane needs."""
        if method in self.message_methods:
            return MESSAGE
        return READ if method in self.read_methods else CONTROL


def connections_within(descriptors: int, servers: int = 1) -> int:
    """Return how many connections each server of a process may have, if the process may open so many file descriptors.

    servers: the gateway, and the HTTP server if there is one. At least MAX_NEWCOMERS, so that a very small limit still lets somebody
    in, and at most 1,000.
    """
    spare = descriptors - RESERVED_DESCRIPTORS - MAX_NEWCOMERS - MAX_PENDING
    return max(MAX_NEWCOMERS, min(1000, spare // servers))


# ------------------------------------------------------------------ the control plane

Params: TypeAlias = Mapping[str, Json]
"""The parameters of a call, as they came. A method checks what it uses."""


@attrs.frozen
class Caller(ClientChannel):
    """The client that calls a method: the channel of its hello, and the rights of its token."""

    grant: TokenGrant = OWNER_GRANT
    """Rights of the token that the client has shown."""

    def is_owner(self, owners: Collection[str]) -> bool:
        """Return whether the caller counts as an owner. owners: the setting `agent.owners`.

        Whoever has shown the owner's token in the terminal, on the page or as a program does in any case.
        """
        return self.grant.is_owner(ChannelInfo(self.type, self.channel_id or "", self.user_id), owners)

    @property
    def has_own_door(self) -> bool:
        """True if an owner speaks here without anybody in between, who may then allow more than single calls."""
        return self.grant.is_own_door(self.channel_id)


def notice_for(notice: ApprovalNotice, *, is_own_door: bool) -> ApprovalNotice:
    """Return an approval as a reader is shown it, with the scopes that their answer may have."""
    return notice if is_own_door else attrs.evolve(notice, scopes=notice.scopes[:1])


class BadParams(Exception):
    """Raised by a method for parameters that it does not take. str() says what was found and what is allowed."""


class NotFound(BadParams):
    """Raised by a method for the name of a thing that does not exist. HTTP answers it with 404."""


class Conflict(BadParams):
    """Raised by a method where the thing has changed since the caller looked at it. HTTP answers it with 409."""


class NotAllowed(BadParams):
    """Raised by a method that the caller may not call, whatever the parameters. HTTP answers it with 403."""


PushEvent: TypeAlias = Callable[[int, Params], Awaitable[None]]
"""Sends an `event` frame with this number and this event to the caller; waits while the caller has too much to read."""


@attrs.frozen(eq=False, repr=False)
class EventStream:
    """A method's result that is followed by `event` frames, over the same connection and for as long as that lasts.

    A stream counts as a running call, so one connection has at most as many of both as it may have calls.

    Example::

        async def run(push: PushEvent) -> None:
            while True:
                await recent.wait_beyond(seen)
                ...  # await push(n, event) for each

        return EventStream({"n": recent.newest}, run)
    """

    result: Json
    """The JSON object of the `result` frame, which comes before all events."""
    run: Callable[[PushEvent], Awaitable[None]]
    """Sends the events. It is cancelled when the client has gone; if it ends by itself, the stream is over."""


class Method(Protocol):
    """A method of the control plane.

    Example::

        async def ping(caller: Caller, params: Params) -> Json:
            if params:
                raise BadParams("params: found some, allowed: none")
            return {"pong": caller.type}
    """

    async def __call__(self, caller: Caller, params: Params) -> Json | EventStream:
        """Return a JSON object, or a stream that begins with one.

        May raise BadParams. It is cancelled after CALL_TIMEOUT, and when its client has gone.
        """


Methods: TypeAlias = Mapping[str, Method]
"""The methods by the names that clients call them by."""


class LateMethods(Mapping[str, Method]):
    """The table of methods, made when somebody asks for the first one.

    make: imports the control plane and returns the table.
    """

    def __init__(self, make: Callable[[], Methods]) -> None:
        self._make = make

    @cached_property
    def _table(self) -> Methods:
        return self._make()

    def __getitem__(self, name: str) -> Method:
        return self._table[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)


# ------------------------------------------------------------------ reading the params of a call


def require_text(params: Params, key: str, allowed: str = "a text") -> str:
    """Return a text that is not empty. `allowed` completes the message of the BadParams that is raised otherwise."""
    value = params.get(key)
    if not isinstance(value, str) or not value:
        raise BadParams(f"{key}: found {quote(value)}, allowed: {allowed}")
    return value


def read_number(params: Params, key: str, default: int) -> int:
    """Return a whole number from 0, or `default` where the key is missing. Raises BadParams."""
    value = params.get(key)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise BadParams(f"{key}: found {quote(value)}, allowed: a whole number from 0")
    return value


def require_owner(caller: Caller, owners: Collection[str], what: str) -> None:
    """Raise NotAllowed unless the caller is an owner.

    owners: the setting `agent.owners`. what: what only an owner does, as in "schedules jobs".
    """
    if not caller.is_owner(owners):
        raise NotAllowed(f"only an owner {what} (agent.owners of the settings)")


def require_all_conversations(caller: Caller) -> None:
    """Raise NotAllowed unless the caller may see all conversations of the owner."""
    if not caller.grant.sees_all_conversations:
        raise NotAllowed("the conversations are the owner's; this token belongs to one conversation")


@contextmanager
def bad_params_for(*refusals: type[Exception], key: str = "") -> Iterator[None]:
    """Turn errors of these types into BadParams within the block; one that says "there is no …" into NotFound.

    key: the param that their texts are about.
    """
    try:
        yield
    except refusals as error:
        kind = NotFound if str(error).lower().startswith("there is no ") else BadParams
        raise kind(f"{key}: {error}" if key else str(error)) from None
