"""One signal for "something has changed" (`Signal`)."""

from __future__ import annotations

import trio


class Signal:
    """Wakes the tasks that wait for a change, and can be given again and again.

    ::

        while not queue:
            await added.wait()  # each `queue.append` is followed by `added.notify()`

    Such a loop misses nothing, because there is no await between the look at the queue and the wait. A task that does await
    in between remembers `count` from before its look::

        while True:
            seen = changed.count
            await work_on(state)
            await changed.wait(seen)

    Nothing is handed over, so any number of tasks may wait, and a cancel takes nothing from the others.
    """

    __slots__ = ("_event", "count")

    def __init__(self) -> None:
        self.count = 0
        """Number of calls of `notify`."""
        self._event: trio.Event | None = None
        """Set by the next `notify`; None while nobody waits for it."""

    def notify(self) -> None:
        """Wake all tasks that wait."""
        self.count += 1
        if self._event is not None:
            self._event.set()
            self._event = None

    async def wait(self, seen: int | None = None) -> None:
        """Wait for the next `notify`; not at all if there was one since `count` was `seen`. Always a checkpoint."""
        if seen is None or seen == self.count:
            if self._event is None:
                self._event = trio.Event()
            await self._event.wait()
        else:
            await trio.lowlevel.checkpoint()
