"""Ending tasks for certain: one, those of a channel, all; and letting stages finish when the process stops."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import trio

from actors import ActorError, Ref
from pegasus.messages import Metadata
from pegasus.tasks.messages import Stopped, TaskError
from pegasus.tasks.office import Office
from pegasus.tasks.task_messages import Drain, Halt, TaskMessage

DRAIN: Final = 5.0
"""Seconds that stages which run have to finish when the process stops (trap T24)."""


class Ending:
    """What /stop, cancel and a stop of the process do."""

    def __init__(self, office: Office) -> None:
        self._office = office

    async def cancel(self, task_id: str, by: str) -> Stopped:
        """End it for certain; answered when nothing of it runs. That it was stopped is written down behind that."""
        entry = self._office.registry.get_or_none(task_id)
        if entry is None or (entry.is_done and entry.ref is None) or entry.ending:
            raise TaskError(f"task {task_id!r} is not running")
        what = entry.view.description or entry.view.input_text
        seconds = trio.current_time() - entry.since if entry.working else 0.0
        unfinished = not entry.is_done
        doing = "waiting" if unfinished and not entry.working else ""
        entry.ending = unfinished
        self._office.registry.withdraw(entry)
        if entry.starting is not None:
            await entry.starting.wait()
        if entry.ref is not None:
            with suppress(ActorError):  # it has ended meanwhile, which is all that was wanted
                doing = await entry.ref.ask(Halt)
        if unfinished:
            await self._office.fail(entry, f"stopped by {by}")
        elif not doing:
            raise TaskError(f"task {task_id!r} is not running")
        return Stopped(task_id, what, doing, seconds)

    async def cancel_all(self, by: str, channel: tuple[str, str] | None) -> tuple[Stopped, ...]:
        """All at the same time: the slowest decides."""
        stopped: list[Stopped] = []

        async def one(task_id: str) -> None:
            with suppress(TaskError):
                stopped.append(await self.cancel(task_id, by))

        async with trio.open_nursery() as nursery:
            for entry in self._office.registry:
                if not entry.is_done and (channel is None or _channel_of(entry.view.metadata) == channel):
                    nursery.start_soon(one, entry.task_id)
        return tuple(sorted(stopped, key=lambda each: each.task_id))

    async def drain(self) -> None:
        """Let every stage that runs finish, for as long as a stop may take; what is left is taken up at the next start."""

        async def one(ref: Ref[TaskMessage]) -> None:
            with suppress(ActorError):
                await ref.ask(Drain)

        with trio.move_on_after(DRAIN):
            async with trio.open_nursery() as nursery:
                for entry in self._office.registry:
                    if entry.ref is not None:
                        nursery.start_soon(one, entry.ref)


def _channel_of(metadata: Metadata) -> tuple[str, str] | None:
    channel = metadata.get("channel")
    if not isinstance(channel, dict):
        return None
    return str(channel.get("type")), str(channel.get("channelId"))
