"""One mind over several channels: adapters of the host's own, and a function for what none of them delivers.

This is the other way to use the library, beside iterating over turns. `Agent.send` hands a message over, and whatever the agent says
is brought to where it belongs: by the adapter that is registered for the type of the channel, else by the function of
`Agent.on_reply`.

Each adapter has a task of its own, so a service that is down holds up nobody else's replies. A reply counts as taken when `deliver`
has returned; one that it raised for is logged and brought again after the growing pauses of `pegasus.retry`, and after a restart.
Only `ReplyRefused` ends that.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol, TypeAlias

import trio

from pegasus.channels import ReplyRefused
from pegasus.embedding.bus import OutboundChatMessage
from pegasus.embedding.desk import ReplyDesk
from pegasus.embedding.turn import MessageStream
from pegasus.messages import OutboundMessage
from pegasus.observe import get_logger
from pegasus.retry import retry

OnReply: TypeAlias = Callable[[OutboundChatMessage], Awaitable[None]]
"""Brings a reply to its person; returns when that is done."""

_log = get_logger("embedding")


class ChannelAdapter(Protocol):
    """One kind of channel, as the host connects it. It hands over what people write by `Agent.send`."""

    @property
    def type(self) -> str:
        """The kind of channel, as in `InboundMessage.channel`."""

    async def deliver(self, message: OutboundChatMessage) -> None:
        """Bring a reply to its person; return when the service has it. Raises ReplyRefused if the service will never take it."""


class ReplyRouter:
    """Brings what the agent says to the adapters, or to a function for the rest."""

    def __init__(self, desk: ReplyDesk, nursery: trio.Nursery) -> None:
        self._desk = desk
        self._nursery = nursery
        self._types: set[str] = set()
        """Types of channels that have an adapter."""
        self._rest_is_taken = False
        """Somebody takes the replies to channels without one."""
        desk.on_unasked = self._warn_if_for_nobody

    def register(self, adapter: ChannelAdapter) -> None:
        """Bring replies to channels of this type to an adapter from now on. Raises ValueError if the type has one."""
        if adapter.type in self._types:
            raise ValueError(f"found a second adapter for {adapter.type!r}, allowed: one")
        self._types.add(adapter.type)
        self._serve(adapter.deliver, lambda type: type == adapter.type)

    def on_reply(self, callback: OnReply) -> None:
        """Bring replies to channels without an adapter to this function from now on."""
        self._rest_is_taken = True
        self._serve(callback, self._is_rest)

    def messages(self) -> MessageStream:
        """Return an iterator over replies to channels without an adapter."""
        self._rest_is_taken = True
        return MessageStream(self._desk, self._is_rest)

    def _is_rest(self, type: str) -> bool:
        return type not in self._types

    def _warn_if_for_nobody(self, reply: OutboundMessage) -> None:
        if self._types and self._is_rest(reply.channel.type) and not self._rest_is_taken:
            _log.warning("a reply waits: its channel has no adapter", chat=str(reply.channel.address))

    def _serve(self, deliver: OnReply, wants: Callable[[str], bool]) -> None:
        self._nursery.start_soon(self._deliver_all, deliver, MessageStream(self._desk, wants))

    async def _deliver_all(self, deliver: OnReply, messages: MessageStream) -> None:
        async for message in messages:

            def note(error: Exception, seconds: float, chat: str = message.session_key) -> None:
                _log.warning("a reply was not delivered and is tried again", chat=chat, error=error, seconds=seconds)

            await retry(partial(_deliver_or_refuse, deliver, message), Exception, note)


async def _deliver_or_refuse(deliver: OnReply, message: OutboundChatMessage) -> None:
    try:
        await deliver(message)
    except ReplyRefused as error:
        _log.warning("a reply will never be delivered", chat=message.session_key, error=error)
