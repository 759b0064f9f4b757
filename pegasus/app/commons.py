"""What Main Agent and tasks have in common; what is slow to import is made when it is first asked for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import attrs

from actors import Backoff, Intensity
from pegasus.app.parts import Parts, Workshop
from pegasus.observe import get_logger

if TYPE_CHECKING:
    from actors import Ref
    from pegasus.identity import Evolution
    from pegasus.memory import Memory
    from pegasus.storage import JournalMessage
    from pegasus.tasks import TaskTypes

BUS, AGENT, LISTENER = "tasks/bus", "tasks/agent", "main-agent/courier"
"""Where they are in the tree."""
PATIENCE = Intensity(restarts=8, period=60.0)
"""A child that fails more often is in a crash loop; with the pauses of RETRY that takes about half a minute."""
RETRY = Backoff(first=0.1, limit=10.0)

_log = get_logger("commons")


@attrs.frozen(eq=False)
class Commons:
    """find: the address of an actor by its path in the tree. memory, evolution (of the persona): one for all."""

    parts: Parts
    journal: Ref[JournalMessage]
    find: Callable[[str], Ref[Any]]
    memory: Callable[[], Memory]
    evolution: Callable[[], Evolution]

    @property
    def workshop(self) -> Workshop:
        """What tasks are given."""
        return self.parts.workshop

    def load_task_types(self) -> TaskTypes:
        """The built-in kinds of task and the user's own; what is wrong with a file is logged."""
        from pegasus.tasks import BUILT_IN_TYPES, load_task_types

        types, problems = load_task_types(BUILT_IN_TYPES, *self.workshop.subagents)
        for problem in problems:
            _log.warning("a kind of task", problem=problem)
        return types

    async def memory_index(self) -> str:
        """What a session or a task that begins is told of memory."""
        return await or_nothing(self.memory().index_message)


def commons_of(parts: Parts, journal: Ref[JournalMessage], find: Callable[[str], Ref[Any]]) -> Commons:
    """The commons of a tree."""

    def evolution() -> Evolution:
        from pegasus.identity import Evolution

        return Evolution(journal, parts.base or parts.persona, parts.clock)

    return Commons(parts, journal, find, cache(partial(parts.workshop.memory, journal)), cache(evolution))


async def or_nothing(read: Callable[[], Awaitable[str]]) -> str:
    """What is read of memory; "" where it cannot be read, for that must cost nobody a turn or a task."""
    from actors import ActorError
    from pegasus.memory import MemoryRefused
    from pegasus.storage import StorageError

    try:
        return await read()
    except (MemoryRefused, OSError, StorageError, ActorError) as error:
        _log.warning("memory cannot be read", error=str(error))
        return ""
