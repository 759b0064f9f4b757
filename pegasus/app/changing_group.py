"""An actor that supervises children whose set may change: channels and servers of tools, which a reload adds, replaces and removes.

The children are those that a function returns at the moment, so that a restart of the whole group has those of the present settings.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

import attrs
import trio

from actors import ActorError, Child, Inbox, Intensity, Supervisor, open_supervisor
from pegasus.observe import get_logger

_log = get_logger("tree")


@attrs.frozen(eq=False, repr=False)
class ChildChanged:
    """To the group: another child has this name now, or none has. The one that runs is stopped first."""

    name: str
    may_stop: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint
    """Awaited before that: returns when it may be stopped, in a bounded time."""


async def run_changing_group(
    inbox: Inbox[ChildChanged],
    children: Callable[[], Sequence[Child[Any]]],
    intensity: Intensity,
    may_work: trio.Event | None = None,
) -> None:
    """Supervise the children that `children` returns. Changes of one child are carried out in the order in which they came.

    may_work: the children are started when it is set, and the group is up at once; None: the group is up when they are.

    Stopped: stops the children in reverse order.
    """
    if may_work is not None:
        inbox.started()
        await may_work.wait()
    locks: defaultdict[str, trio.Lock] = defaultdict(trio.Lock)
    async with open_supervisor(children(), intensity=intensity) as group, trio.open_nursery() as nursery:
        inbox.started()
        async for message in inbox:
            nursery.start_soon(_renew, group, message, children, locks[message.name])
        nursery.cancel_scope.cancel()


async def _renew(
    group: Supervisor, message: ChildChanged, children: Callable[[], Sequence[Child[Any]]], lock: trio.Lock
) -> None:
    """Stop the child of a name, and start the one that has it now."""
    name = message.name
    async with lock:
        await message.may_stop()
        with suppress(ActorError):  # there is none
            await group.stop_child(name)
        with suppress(ActorError):  # it was forgotten when it stopped
            await group.delete_child(name)
        child = next((child for child in children() if child.name == name), None)
        if child is None:
            return
        try:
            await group.start_child(child)
        except ActorError as error:
            _log.error("cannot be started with the new settings", actor=f"{group.path}/{name}", error=str(error))
