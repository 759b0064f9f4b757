"""Hears every event of a tree at once, without a task that reads a stream."""

from __future__ import annotations

import weakref
from collections.abc import Callable

from actors._cell import ActorSystem
from actors._events import Event, Events


class Listener(Events):
    """A stream that keeps nothing. It hears as long as somebody holds it."""

    def __init__(self, hear: Callable[[Event], object]) -> None:
        super().__init__(1)
        self._hear = hear

    def _publish(self, event: Event) -> None:
        self._hear(event)


def listen(system: ActorSystem, hear: Callable[[Event], object]) -> Listener:
    """Call `hear` with each event from now on."""
    listener = Listener(hear)
    system.hub._streams.append(weakref.ref(listener))
    return listener
