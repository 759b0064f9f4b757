"""The task system's part of the tree: persister, bus, agent; and the objects that they work with.

None of it is needed before somebody connects, and importing it takes a while; so the child `tasks` is up at once and grows
behind that. Whoever asks the agent meanwhile finds it not running yet, and waits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Never

import trio

from actors import Child, Inbox, Mailbox, Strategy, open_supervisor
from pegasus.app.commons import AGENT, BUS, LISTENER, PATIENCE, Commons
from pegasus.app.parts import Workshop

if TYPE_CHECKING:
    from actors import Ref
    from pegasus.settings import Settings
    from pegasus.storage import JournalMessage
    from pegasus.tasks import Notify, TaskDeps, TaskLimits

ROOMY = Mailbox(4096)
SHUTDOWN = 12.0
"""Seconds to let stages finish, then to end what is left of them."""


async def task_system(inbox: Inbox[object], make: Callable[[], list[Child[Any]]], workshop: Workshop) -> None:
    """The child `tasks`: a supervisor that grows when it may. Told to stop, it stops its children in order."""
    inbox.started()
    await workshop.wanted.wait()
    children = await trio.to_thread.run_sync(make) if workshop.in_thread else make()
    async with open_supervisor(children, strategy=Strategy.REST_FOR_ONE, intensity=PATIENCE):
        async for _ in inbox:
            pass


def task_child(commons: Commons) -> Child[Never]:
    """The child `tasks` of the root."""
    make = partial(_children, commons)
    return Child("tasks", task_system, make, commons.workshop, shutdown=SHUTDOWN)


def _children(commons: Commons) -> list[Child[Any]]:
    from pegasus.events import event_bus
    from pegasus.tasks import TaskLogs, task_agent, task_persister

    clock, find = commons.parts.clock, commons.find
    recorder = find("tasks/persister")
    deps = make_task_deps(commons)
    return [
        Child("persister", task_persister, commons.journal, clock, mailbox=ROOMY),
        Child("bus", event_bus, mailbox=ROOMY),
        Child("agent", task_agent, deps, TaskLogs(recorder), find(LISTENER), mailbox=ROOMY, shutdown=SHUTDOWN - 2),
    ]


def courier_child(journal: Ref[JournalMessage]) -> Child[Never]:
    """The listener of the task system, beside the Main Agent."""

    async def run(inbox: Inbox[Notify]) -> None:
        from pegasus.main_agent import forward_notifications

        await forward_notifications(inbox, journal)

    return Child("courier", run)


def make_task_deps(commons: Commons) -> TaskDeps:
    """Return everything that the agent and its tasks work with. Slow: it imports every tool."""
    from pegasus.events import EventMaker
    from pegasus.tasks import Doer, Reflector, TaskDeps, Thinker, task_tools
    from pegasus.tools import ToolExecutor, ToolRegistry, base_context

    parts, workshop = commons.parts, commons.workshop
    settings, window = parts.settings, workshop.context_window("subagent")
    memory = commons.memory()
    registry = ToolRegistry((*workshop.tools(memory), *task_tools(commons.find(AGENT))))
    toolbox = ToolExecutor(
        registry, timeout=settings.tools.timeout, timeouts=settings.tools.timeouts, secrets=workshop.secrets
    )
    return TaskDeps(
        bus=commons.find(BUS),
        events=EventMaker(parts.clock, workshop.random),
        clock=parts.clock,
        types=commons.load_task_types(),
        thinker=Thinker(parts.persona, parts.clock),
        doer=Doer(toolbox, parts.clock),
        reflector=Reflector(parts.persona, window),
        toolbox=toolbox,
        model_for=workshop.model_for,
        context=base_context(workshop.workspace, settings.tools.allowed_paths, window),
        memory=memory,
        limits=_task_limits(settings),
    )


def _task_limits(settings: Settings) -> TaskLimits:
    from pegasus.tasks import TaskLimits

    return TaskLimits(
        max_active=settings.tasks.max_active,
        max_queued=settings.tasks.max_queued,
        max_calls=settings.models.max_concurrent_calls,
        max_tools=settings.tasks.max_concurrent_tools,
        max_iterations=settings.tasks.max_iterations,
        timeout=settings.tasks.timeout,
        recovery=settings.tasks.recovery,
    )
