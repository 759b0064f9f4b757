"""Submitters hear of their tasks through one listener, in order, until it has taken what it is told."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final, TypeAlias

import trio

from actors import ActorError, Ref
from pegasus.observe import get_logger
from pegasus.tasks.messages import Notification, Notify
from pegasus.tasks.office import Office

TOLD_TOGETHER: Final = 64
"""Notifications that are told before the first of them is answered."""
ASK_AGAIN: Final = 1.0
"""Seconds until a listener that could not be reached is told again."""

_News: TypeAlias = tuple[Notification, bool]
"""What a submitter is to hear, and whether it is the last of its task."""

_log = get_logger("agent")


class Telling:
    """Takes the news that the parts of the agent have."""

    def __init__(self, office: Office, listener: Ref[Notify]) -> None:
        self._office = office
        self._listener = listener

    async def run(self) -> None:
        """Every notification, until it is taken; a task is not pending any more when its end is. Those of one task keep their order.

        Many at a time, so that whoever keeps them can write them together.
        """
        left: _News | None = None
        while True:
            untold, left = self._next_news(left or await self._office.to_tell.receive())
            while untold := await self._tell(untold):  # noqa: ASYNC110 nobody says when it can be taken
                await trio.sleep(ASK_AGAIN)

    def _next_news(self, first: _News) -> tuple[list[_News], _News | None]:
        """This and what waits behind it, of different tasks; and one that must not be told together with those."""
        news = {first[0].task_id: first}
        with suppress(trio.WouldBlock):
            while len(news) < TOLD_TOGETHER:
                one = self._office.to_tell.receive_nowait()
                if one[0].task_id in news:
                    return list(news.values()), one
                news[one[0].task_id] = one
        return list(news.values()), None

    async def _tell(self, news: Sequence[_News]) -> list[_News]:
        """Gives those that were not taken."""
        answers = [(one, await self._listener.request(Notify, one[0])) for one in news]
        refused: list[_News] = []
        for (told, over), answer in answers:
            try:
                await answer.get()
            except ActorError as error:
                _log.info("nobody takes a notification yet", task=told.task_id, why=str(error))
                refused.append((told, over))
                continue
            if over and not self._goes_on(told.task_id):
                await self._office.archive.forget(told.task_id)
        return refused

    def _goes_on(self, task_id: str) -> bool:
        """Whether the task has been resumed since its end, which has made it pending again."""
        entry = self._office.registry.get_or_none(task_id)
        return entry is not None and not (entry.is_done and entry.resumed is None and entry.begin is None)
