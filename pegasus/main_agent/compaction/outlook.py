"""What goes on outside the session and must survive its compaction: tasks that are not done, timers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import attrs

from pegasus.messages import Address


@attrs.frozen
class OpenTask:
    """A task that is not done. state: in a word; address: where it was asked for; question: what it wants to know."""

    task_id: str
    kind: str
    state: str
    description: str
    address: Address | None = None
    question: str = ""


class Outlook(Protocol):
    """Asked at every compaction. Either may raise, or take its time: then the session's own knowledge has to do."""

    async def tasks(self) -> Sequence[OpenTask] | None:
        """Tasks that wait, run or are suspended, oldest first; None: nobody knows."""

    async def timers(self) -> Sequence[str]:
        """Scheduled jobs and reminders, a line for each, as people would say it."""


class _Nothing:
    async def tasks(self) -> Sequence[OpenTask] | None:
        return None

    async def timers(self) -> Sequence[str]:
        return ()


NO_OUTLOOK: Final[Outlook] = _Nothing()
"""Where there are neither tasks nor timers."""
