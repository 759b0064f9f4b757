"""Services of the task system: tools, limits, and the links to the rest of the tree.

Tasks work with the same memory, models and gate as the Main Agent (`shared_services`), but with tools of their own:
tools for files and commands are theirs alone, since they take longer than a conversation should wait. All that depends on
settings is behind a handle, so that a task which is at work notices a reload at its next call.

The task system knows nothing of chats. `observe_tasks` hears its tasks on the bus: it shows progress where a task was asked for, and
withdraws what owners were asked for a task that is over. Two functions link it the other way: `awaited` tells it which calls wait
for an owner, and `before_resuming` lets a /stop that was accepted before a crash come first. They work on addresses and answer with
nothing while the actor behind an address does not run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

import attrs
import trio

from actors import ActorError, Inbox, MailboxFull, Ref
from pegasus.access import ApprovalMessage, ListApprovals, WithdrawApprovals
from pegasus.app.environment import APPROVALS, BUS
from pegasus.app.other_agents import AGENT_KEYS, delegation_tools
from pegasus.app.shared_services import SPEECH_KEYS, SharedServices
from pegasus.events import BusMessage, Deliver, EventType, Subscribe
from pegasus.messages import FileEdit, TaskProgress
from pegasus.observe import get_logger
from pegasus.settings import SANDBOX_KEYS, Settings
from pegasus.storage import JournalMessage, LaneDone, StorageError
from pegasus.tasks import (
    LimitsChanged,
    Reflector,
    TaskDeps,
    TaskLimits,
    TaskState,
    TaskUpdate,
    TaskView,
    Thinker,
    task_tools,
)
from pegasus.tools import ToolContext, ToolExecutor, base_context, save_attachment_tool

COMMANDS_WITHIN: Final = 10.0
"""Seconds that recovered tasks wait at a start for commands that were accepted before. A /stop waits for 5 s at most itself."""

_log = get_logger("tasks")


def task_deps(shared: SharedServices, find: Callable[[str], Ref[Any]]) -> TaskDeps:
    """Return what the task system works with. Its tools are those of the environment and those about tasks themselves.

    find: returns the address of an actor by its path in the tree; it need not run yet.

    Registers a listener for the limits at `environment.in_force`, so it is called once per tree.
    """
    environment, journal, task_agent = shared.environment, shared.journal, shared.task_agent
    in_force = environment.in_force
    approvals: Ref[ApprovalMessage] = find(APPROVALS)

    def make_toolbox(settings: Settings) -> ToolExecutor:
        """Return the executor for the tools of tasks under these settings."""
        kept = (save_attachment_tool(journal), *shared.speak_tools(settings))
        others = delegation_tools(settings.agents, settings.tools.allowed_hosts)
        tools = (*environment.make_tools(shared.memory), *task_tools(task_agent), *kept, *others)
        return shared.executor(settings, tools)

    def make_context(settings: Settings) -> ToolContext:
        """Return the context in which tools of tasks run: their folders, and the window that results must fit into."""
        window = environment.models.context_window("subagent")
        context = base_context(
            environment.workspace,
            settings.tools.allowed_paths,
            window,
            environment.closed_paths,
            guests=environment.guests,
            guest_bytes=settings.limits.guest_disk_mb << 20,
        )
        return attrs.evolve(
            context, changes=environment.kept_changes, show_edit=partial(_show_edit, find(environment.signs))
        )

    def limits_changed(_: frozenset[str]) -> None:
        """Tell the task system that its limits have changed, so that tasks which were queued may start now."""
        with suppress(ActorError):  # an agent that does not run finds out when it starts
            task_agent.tell_nowait(LimitsChanged())

    in_force.when_changed(limits_changed, "tasks.", "limits.", "models.max_concurrent_calls")
    # The bus is a child of the task system, like the agent. Its address is valid before either runs.
    bus: Ref[BusMessage] = find(BUS)
    return TaskDeps(
        bus=bus,
        new_task_id=lambda: f"{environment.random.getrandbits(64):016x}",
        clock=environment.clock,
        types=shared.types,
        thinker=Thinker(environment.persona, environment.clock, environment.files),
        reflector=Reflector(environment.persona),
        toolbox=in_force.follow(make_toolbox, "tools.", *SANDBOX_KEYS, *SPEECH_KEYS, *AGENT_KEYS),
        model_for=environment.models.client,
        context_window=environment.models.context_window,
        context=in_force.follow(make_context, "tools.allowed_paths", "limits.guest_disk_mb"),
        journal=journal,
        is_shared=environment.is_shared,
        owners=environment.owners,
        make_fence=environment.make_fence,
        traits=environment.models.traits,
        memory=shared.memory,
        # The keys are those that `_task_limits` reads; `limits_changed` above then lets waiting tasks look at them.
        limits=in_force.follow(_task_limits, "tasks.", "limits.guest_tasks", "models.max_concurrent_calls"),
        # Recovery asks for these: a call that waits for an owner has not begun, so it may be made again whatever it does.
        awaited=partial(_awaited_keys, approvals),
        before_resuming=partial(_commands_done, journal),
    )


class TaskProgressSender:
    """Sends the changes of tasks to the switchboard, each once.

    Example: `progress.observe(update.task, update.ends)` for each TASK_UPDATED of the bus.
    """

    def __init__(self, switchboard: Ref[TaskProgress], clock: Callable[[], int]) -> None:
        """Begin without a task that was seen. clock: wall clock, ms."""
        self._switchboard = switchboard
        """Shows the states to the people of each conversation."""
        self._clock = clock
        """Wall clock, ms."""
        self._last: dict[str, TaskProgress] = {}
        """The last state of each unfinished task, without the time that had passed."""

    def observe(self, task: TaskView, ends: bool = False) -> None:
        """Take the view of a task that may have changed, and send its state if it differs from the last one.

        ends: it has ended with this change. Never waits, never fails.
        """
        if task.is_over:
            was_shown = self._last.pop(task.task_id, None) is not None
            if not was_shown and not ends:
                return  # e.g. a reflection on a task that has ended, or one that was found ended at a start
            progress = task.progress(task.updated_at)
        elif task.state is TaskState.COMPLETED:
            return  # its result is not on disk yet
        else:
            progress = task.progress(self._clock())
            # The time goes on by itself, and viewers count it; it is no change.
            present = attrs.evolve(progress, elapsed_ms=0) if progress.elapsed_ms else progress
            if self._last.get(task.task_id) == present:
                return
            self._last[task.task_id] = present
        with suppress(ActorError):
            self._switchboard.tell_nowait(progress)


async def observe_tasks(
    inbox: Inbox[Deliver],
    bus: Ref[BusMessage],
    switchboard: Ref[TaskProgress],
    approvals: Ref[ApprovalMessage],
    clock: Callable[[], int],
) -> None:
    """Run the actor that lets people know of tasks: it shows their progress, and withdraws what was asked for those that are over.

    clock: wall clock, ms. At a start of the task system all tasks are heard anew, those included that are over and whose end may have
    been missed.
    """
    await bus.ask(Subscribe, inbox.ref, frozenset({EventType.TASK_UPDATED}), True)
    progress = TaskProgressSender(switchboard, clock)
    inbox.started()
    async for message in inbox:
        over: list[str] = []
        for update in (event.data for event in message.events):
            if isinstance(update, TaskUpdate):
                progress.observe(update.task, update.ends)
                if update.task.is_over and (update.ends or not update.run) and update.may_have_asked:
                    over.append(update.task.task_id)
        if over:
            _withdraw_approvals(approvals, over)


def _show_edit(switchboard: Ref[FileEdit], edit: FileEdit) -> None:
    """Show people of a chat what a task has changed; called in a thread. A task is never slowed down by people who watch it."""

    def tell() -> None:
        with suppress(ActorError):
            switchboard.tell_nowait(edit)

    trio.from_thread.run_sync(tell)


def _withdraw_approvals(approvals: Ref[ApprovalMessage], task_ids: Sequence[str]) -> None:
    """Withdraw what owners were asked for these tasks. A keeper that does not run finds out at its start that they are over.

    If its mailbox is full, the approvals expire by themselves, as if it could not write that they are withdrawn.
    """
    try:
        approvals.tell_nowait(WithdrawApprovals(tuple(task_ids)))
    except MailboxFull as error:
        _log.warning("the approvals of tasks could not be withdrawn", tasks=", ".join(task_ids), error=str(error))
    except ActorError:
        pass


async def _awaited_keys(approvals: Ref[ApprovalMessage]) -> frozenset[str]:
    """Return the keys of the calls that wait for an owner; none while the keeper does not run.

    The keeper may be between two runs after a crash. The calls are then sought again, and the keeper recognises each by its
    key.
    """
    with suppress(ActorError):
        waiting = await approvals.ask(ListApprovals)
        return frozenset(call.key for approval in waiting for call in approval.request.calls)
    return frozenset()


async def _commands_done(journal: Ref[JournalMessage]) -> None:
    """Wait until no command waits, for at most COMMANDS_WITHIN seconds: a /stop that was accepted before a crash is among them."""
    with trio.move_on_after(COMMANDS_WITHIN), suppress(ActorError, StorageError):
        # A task that is resumed first would be cancelled by the /stop a moment later, and might have called a tool meanwhile.
        await journal.ask(LaneDone, "control")


def _task_limits(settings: Settings) -> TaskLimits:
    return TaskLimits(
        max_active=settings.tasks.max_active,
        max_queued=settings.tasks.max_queued,
        max_tools=settings.tasks.max_concurrent_tools,
        max_iterations=settings.tasks.max_iterations,
        timeout=settings.tasks.timeout,
        recovery=settings.tasks.recovery,
        guest_active=_guest_active(settings),
        guest_tasks=settings.limits.guest_tasks,
    )


def _guest_active(settings: Settings) -> int:
    """Return how many tasks of guests may work at once. A slot and a model call are kept for owners, and a call for people.

    With one slot or very few calls at least one task of a guest may work, or guests would wait for ever.
    """
    return max(1, min(settings.tasks.max_active - 1, settings.models.max_concurrent_calls - 2))
