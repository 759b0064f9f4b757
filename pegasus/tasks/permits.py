"""What tasks share: so many calls at a time, and who is told how they stand."""

from __future__ import annotations

import attrs
import trio

from actors import Ref
from pegasus.tasks.task_messages import Doing, Moved


@attrs.frozen(eq=False)
class Permits:
    """What all tasks share: calls of models and of tools, waiting in order; held for one call, never longer (trap T33).

    agent: who is told how tasks stand.
    """

    calls: trio.Semaphore
    tools: trio.Semaphore
    agent: Ref[Moved | Doing]


class permit:
    """Hold one of the semaphore's permits: without giving others a turn where one is free, else waiting in order."""

    def __init__(self, semaphore: trio.Semaphore) -> None:
        self._semaphore = semaphore

    async def __aenter__(self) -> None:
        try:
            self._semaphore.acquire_nowait()
        except trio.WouldBlock:
            await self._semaphore.acquire()

    async def __aexit__(self, *_: object) -> None:
        self._semaphore.release()
