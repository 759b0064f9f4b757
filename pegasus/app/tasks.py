"""The task system's part of the tree: persister, bus, agent; and the kit that tasks think and act with.

None of it is needed before somebody connects, and importing it takes a while; so the child `tasks` is up at once and grows
behind that. Whoever asks the agent meanwhile finds it not running yet, and waits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Never

import trio

from actors import Child, Inbox, Mailbox, Strategy, open_supervisor
from pegasus.app.commons import AGENT, BUS, LISTENER, PATIENCE, Commons, or_nothing
from pegasus.app.parts import Workshop

if TYPE_CHECKING:
    from actors import Ref
    from pegasus.memory import Memory
    from pegasus.models import LanguageModel
    from pegasus.storage import JournalMessage
    from pegasus.tasks import Notify
    from pegasus.tasks.ports import Kit
    from pegasus.tasks.ports import Memory as Remembered
    from pegasus.tasks.types import TaskType

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
    from pegasus.events import EventMaker
    from pegasus.events.bus import event_bus
    from pegasus.tasks.agent import agent
    from pegasus.tasks.logs import TaskLogs
    from pegasus.tasks.persister import persister
    from pegasus.tasks.ports import Limits, Ports

    settings, clock, find = commons.parts.settings, commons.parts.clock, commons.find
    limits = Limits(
        max_active=settings.tasks.max_active,
        max_queued=settings.tasks.max_queued,
        max_calls=settings.models.max_concurrent_calls,
        max_tools=settings.tasks.max_concurrent_tools,
        max_iterations=settings.tasks.max_iterations,
        timeout=settings.tasks.timeout,
        recovery=settings.tasks.recovery,
    )
    kit = cache(partial(make_kit, commons))
    recorder, bus, ear = find("tasks/persister"), find(BUS), find(LISTENER)
    ports = Ports(bus, EventMaker(clock, commons.workshop.random), clock, kit, limits)
    return [
        Child("persister", persister, commons.journal, clock, mailbox=ROOMY),
        Child("bus", event_bus, recorder, mailbox=ROOMY),
        Child("agent", agent, ports, TaskLogs(recorder), ear, mailbox=ROOMY, shutdown=SHUTDOWN - 2),
    ]


def courier_child(journal: Ref[JournalMessage]) -> Child[Never]:
    """The listener of the task system, beside the Main Agent."""

    async def run(inbox: Inbox[Notify]) -> None:
        from pegasus.main_agent.courier import courier

        await courier(inbox, journal)

    return Child("courier", run)


def make_kit(commons: Commons) -> Kit:
    """What tasks think and act with. Slow: it imports every tool."""
    from pegasus.app.reload import FollowedModel
    from pegasus.tasks.cognition.doer import Doer
    from pegasus.tasks.cognition.reflector import Reflector
    from pegasus.tasks.cognition.thinker import Thinker
    from pegasus.tasks.ports import Kit
    from pegasus.tasks.tools import task_tools
    from pegasus.tools import ToolExecutor, ToolRegistry, base_context

    parts, workshop = commons.parts, commons.workshop
    settings, window = parts.settings, workshop.context_window("subagent")
    memory = commons.memory()
    registry = ToolRegistry((*workshop.tools(memory), *task_tools(commons.find(AGENT))))
    toolbox = ToolExecutor(registry, timeout=settings.tools.timeout, timeouts=settings.tools.timeouts)

    def model_for(task_type: TaskType) -> LanguageModel:
        return workshop.model_for(task_type.model or "subagent")

    return Kit(
        types=commons.load_task_types(),
        thinker=Thinker(parts.persona, parts.clock),
        doer=Doer(toolbox, parts.clock),
        reflector=Reflector(parts.persona, window),
        toolbox=toolbox,
        model_for=model_for,
        reflection_model=FollowedModel(partial(workshop.model_for, "reflection")),
        context=base_context(workshop.workspace, settings.tools.allowed_paths, window),
        memory=_remembered(memory),
    )


def _remembered(memory: Memory) -> Remembered:
    """Memory as tasks meet it: one that cannot be read costs nobody a task."""
    from pegasus.tasks.ports import Memory as Remembered

    index = partial(or_nothing, memory.index_message)
    return Remembered(index, partial(or_nothing, memory.for_reflection), expect=index)
