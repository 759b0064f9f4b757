"""Everything is an event (seed 003): what people say goes over the bus too, for whoever observes. Nobody waits for it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, TypeAlias

from actors import ActorError, Ref
from pegasus.messages import InboundMessage
from pegasus.wire import to_wire

if TYPE_CHECKING:
    from pegasus.events import BusMessage

Publish: TypeAlias = Callable[[InboundMessage], None]
"""Makes a message known; never waits, never fails."""


def message_publisher(bus: Ref[BusMessage], clock: Callable[[], int], random: Random) -> Publish:
    """Emits MESSAGE_RECEIVED, marked as handled so that no task is made of it; while no bus runs, nothing.

    clock: wall clock, ms; random: where the events' ids come from.
    """

    def publish(message: InboundMessage) -> None:
        if not bus.alive:
            return
        from pegasus.events import Emit, EventMaker, EventType  # imported already, or there would be no bus

        channel = message.channel
        event = EventMaker(clock, random).create(
            EventType.MESSAGE_RECEIVED,
            f"{channel.type}:{channel.channel_id}",
            {"text": message.text, "channel": to_wire(channel), "handledBy": "main-agent"},
        )
        with suppress(ActorError):  # the bus has no room; those who only look go without
            bus.tell_nowait(Emit(event))

    return publish
