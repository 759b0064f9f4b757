"""Readers, within the process, of what the agent says: they are no clients. The HTTP API uses them.

The hub publishes each reply, draft and sign here, too (`Listeners.publish`). A reader listens to one address, or follows approvals.
It is no recipient: replies still go to the clients and bridges of the address, and nothing is acknowledged by listening.

Nothing that is published waits for a reader. One that is behind by MAX_BEHIND gets `Behind`, and finds in the journal what it has
missed. The object outlives restarts of the gateway; what the agent says while the gateway is down reaches nobody here, so a reader
also asks the journal now and then.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TypeAlias

import trio

from pegasus.messages import Address, ApprovalNotice, OutboundMessage, Progress, Typing

MAX_BEHIND: Final = 100
"""Messages that wait for a reader."""

Said: TypeAlias = OutboundMessage | Progress | Typing


class Behind:
    """Note in place of messages that a reader has missed."""


class Listeners:
    """Readers by address. One writer, the gateway; any number of readers.

    Example::

        with listeners.listen(Address("api", "main")) as said:
            async for message in said: ...
    """

    def __init__(self) -> None:
        self._readers: dict[Address | None, dict[trio.MemorySendChannel[Said | ApprovalNotice | Behind], None]] = {}
        """By address; those of approvals by None."""

    @contextmanager
    def listen(self, address: Address) -> Iterator[trio.MemoryReceiveChannel[Said | ApprovalNotice | Behind]]:
        """Give what is said to this address from now on."""
        with self._listen(address) as messages:
            yield messages

    @contextmanager
    def follow_approvals(self) -> Iterator[trio.MemoryReceiveChannel[Said | ApprovalNotice | Behind]]:
        """Give the approvals that are new or answered from now on."""
        with self._listen(None) as messages:
            yield messages

    @contextmanager
    def _listen(self, key: Address | None) -> Iterator[trio.MemoryReceiveChannel[Said | ApprovalNotice | Behind]]:
        sender, receiver = trio.open_memory_channel[Said | ApprovalNotice | Behind](MAX_BEHIND)
        readers = self._readers.setdefault(key, {})
        readers[sender] = None
        try:
            yield receiver
        finally:
            del readers[sender]
            if not readers and self._readers.get(key) is readers:
                del self._readers[key]
            sender.close()
            receiver.close()

    def publish(self, message: Said | ApprovalNotice) -> None:
        """Give a message to its readers. Never waits."""
        key = None if isinstance(message, ApprovalNotice) else message.channel.address
        for sender in self._readers.get(key, ()):
            if sender.statistics().current_buffer_used < MAX_BEHIND - 1:
                sender.send_nowait(message)
            elif sender.statistics().current_buffer_used < MAX_BEHIND:
                sender.send_nowait(Behind())
