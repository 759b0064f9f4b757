"""Publishing: messages of people go over the event bus too, for observers such as logs and extensions. Nothing waits for it.

The event is marked as handled by the Main Agent, so the task system makes no task of it. It is emitted when the message is done, after
its `Done` was sent to the journal. So an observer may see a message twice after a crash at that moment, or not at all: the bus is for
observation, and the journal alone holds the truth about messages.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import TypeAlias

from actors import ActorError, Ref
from pegasus.events import BusMessage, Emit, EventMaker, EventType
from pegasus.messages import InboundMessage
from pegasus.wire import to_wire

PublishMessage: TypeAlias = Callable[[InboundMessage], None]
"""Makes a message known to observers. Never waits, never fails."""


def message_publisher(bus: Ref[BusMessage], clock: Callable[[], int], random: Random) -> PublishMessage:
    """Return a function that emits MESSAGE_RECEIVED for a message, and does nothing while the bus does not run or has no room.

    clock: returns the wall clock, ms. random: source of the ids of events.
    """
    events = EventMaker(clock, random)

    def publish(message: InboundMessage) -> None:
        if not bus.alive:
            return
        channel = message.channel
        event = events.create(
            EventType.MESSAGE_RECEIVED,
            f"{channel.type}:{channel.channel_id}",
            {"text": message.text, "channel": to_wire(channel), "handledBy": "main-agent"},
        )
        with suppress(ActorError):
            bus.tell_nowait(Emit(event))

    return publish
