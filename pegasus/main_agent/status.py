"""The status of the agent and of its background tasks: the facts, their texts for the chat, and the command /tasks.

`/status` in a chat, the control call `status` and `pegasus status` show the same facts, because all of them come from
`gather_status`. It asks the task system and waits for it for a bounded time; the rest is known to the one who calls. One line about a
task reads the same in the chat, in `pegasus status` and in the terminal's status line, because all of them are made of the same
`TaskProgress`. The texts are plain and have one fact a line, as those in `chat_commands`.

    /tasks              unfinished tasks, and those that ended within the last day
    /tasks show 3       state, work and result of task 3
    /tasks cancel 3     ends task 3 with every process that it has started

Owners see all tasks. Anybody else sees the tasks of the conversation that the command comes from: what others have asked for is not
their business. Nobody but an owner ends what an owner has asked for. The control lane waits for the answer, so everything here is
bounded. A cancel that takes longer goes on behind the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import attrs
import trio

from actors import ActorError, Ref
from pegasus.formatting import cut_text, format_duration, format_time, plural, truncate
from pegasus.main_agent.chat_commands import AgentStatus
from pegasus.main_agent.delegation import TaskDelegation
from pegasus.main_agent.queue_items import origin_of
from pegasus.messages import ChannelInfo, InboundMessage, Json, TaskProgress
from pegasus.policy import ROLE, Principal, Role, sender_of
from pegasus.tasks import (
    FOR_APPROVAL,
    LATELY,
    AgentMessage,
    Cancel,
    GetTask,
    LatestTasks,
    ListTasks,
    TaskError,
    TaskState,
    TaskView,
    is_visible,
)
from pegasus.wire import to_wire

LISTED_TASKS: Final = 10
"""Unfinished tasks that the status names. Of the others only the number is shown."""
DESCRIPTION_LENGTH: Final = 80
"""Characters of a description that a line has room for."""
EXCERPT: Final = 1500
"""Characters of a text that /tasks show repeats. The whole is in `pegasus tasks show`."""

TASKS: Final = "/tasks"
"""The command."""
PATIENCE: Final = 5.0
"""Seconds that the command waits for the task system, and for a task to end. Other commands wait behind it meanwhile."""
LISTED: Final = 10
"""Newest tasks that are looked at for those that have ended; more are in `pegasus tasks list`."""

_WORDS: Final = {
    "IDLE": "waiting for its turn",
    "REASONING": "thinking",
    "ACTING": "acting",
    "SUSPENDED": "waiting for an answer",
    "COMPLETED": "completed",
    "FAILED": "failed",
}
"""By state of a task, the words for people."""
_USAGE: Final = f"{TASKS}, {TASKS} show N, or {TASKS} cancel N, where N is the number of a task."
_OTHERS: Final = "something of another conversation"
_NO_ANSWER: Final = "The task system does not answer at the moment. Send it again in a few seconds."


# ------------------------------------------------------------------ the agent


@attrs.frozen
class StatusFacts:
    """Facts about what the agent is doing."""

    agent: AgentStatus
    """The Main Agent: its thought, its model, its session."""
    waiting: int
    """Messages that wait, without those that are being worked on."""
    tasks: tuple[TaskProgress, ...] | None
    """Unfinished tasks, oldest first; None if the task system does not run, or did not answer in time."""

    @property
    def working(self) -> int:
        """Number of tasks that are at work, or will be as soon as there is room."""
        return sum(task.state != "SUSPENDED" for task in self.tasks or ())

    def counts(self) -> Mapping[str, Json] | None:
        """Return how many tasks are at work, waiting for their turn, and waiting for an answer; None as in `tasks`."""
        if self.tasks is None:
            return None
        states = [task.state for task in self.tasks]
        return {
            "working": states.count("REASONING") + states.count("ACTING"),
            "waiting": states.count("IDLE"),
            "suspended": states.count("SUSPENDED"),
        }


async def gather_status(
    agent: AgentStatus, not_done: int, work: TaskDelegation | None, now: int, timeout: float
) -> StatusFacts:
    """Return the facts. not_done: messages that are not done. now: wall clock, ms. timeout: seconds for the task system."""
    tasks: Sequence[TaskProgress] | None = () if work is None else None
    if work is not None:
        with trio.move_on_after(timeout):
            views = await work.unfinished()
            tasks = None if views is None else [task_progress(view, now) for view in views]
    return StatusFacts(agent, max(0, not_done - agent.in_hand), None if tasks is None else tuple(tasks))


def seen_by(facts: StatusFacts, person: Principal, thinking_for: ChannelInfo | None) -> StatusFacts:
    """Return the facts as this person may see them: what other conversations are about is for an owner only.

    thinking_for: conversation of the message that is thought about.
    """
    if person.is_owner:
        return facts
    agent, here = facts.agent, None if person.channel is None else person.channel.address
    if agent.thinking_about and thinking_for is not None and thinking_for.address != here:
        agent = attrs.evolve(agent, thinking_about=_OTHERS)
    tasks = tuple(
        task if task.channel.address == here else attrs.evolve(task, description=_OTHERS) for task in facts.tasks or ()
    )
    return attrs.evolve(facts, agent=agent, tasks=None if facts.tasks is None else tasks)


def status_json(facts: StatusFacts) -> dict[str, Json]:
    """Return the facts as the control call `status` gives them. `running` has the fields of the `task` frame."""
    agent = facts.agent
    thinking: Json = None
    if agent.thinking_about is not None:
        thinking = {"about": agent.thinking_about, "seconds": round(agent.thinking_for, 1)}
    return {
        "model": agent.model,
        "speech": agent.speech,
        "window": agent.window,
        "thinking": thinking,
        "waiting": facts.waiting + agent.in_hand,
        "inHand": agent.in_hand,
        "tasks": facts.counts(),
        "running": [to_wire(task) for task in (facts.tasks or ())[:LISTED_TASKS]],
        "handled": agent.turns,
        "sessionEntries": agent.entries,
    }


def doing_text(about: str | None, seconds: float, working: int, *, is_known: bool = True) -> str:
    """Return what the agent is doing, as it follows "I am".

    about: beginning of the message that is thought about, None if there is none. seconds: since that began. working: number of tasks
    at work. is_known: whether the task system has told that.
    """
    if about:
        return f"thinking about “{about}” for {format_duration(seconds)}"
    if working:
        return f"waiting for {plural(working, 'background task')}"
    return "idle" if is_known else "not thinking about a message"


def model_text(model: str, speech: str, window: int) -> str:
    """Return the model with its manner of speaking and its window, as far as they are known."""
    known = [speech, f"window {window:,} tokens" if window else ""]
    facts = "; ".join(fact for fact in known if fact)
    return f"{model} ({facts})" if facts else model


def status_text(facts: StatusFacts, uptime: float, warnings: Sequence[str] = ()) -> str:
    """Return the answer to /status. uptime: seconds since the actor was started, which is less than the process's after a crash.

    warnings: facts about the installation that this person should know.
    """
    agent = facts.agent
    is_known = facts.tasks is not None
    doing = doing_text(agent.thinking_about, agent.thinking_for, facts.working, is_known=is_known)
    lines = [f"I am {doing}.", f"Model: {model_text(agent.model, agent.speech, agent.window)}"]
    if not is_known:
        lines.append("Tasks: the task system does not answer at the moment")
    lines += [f"Task {task_line(task)}" for task in (facts.tasks or ())[:LISTED_TASKS]]
    if facts.tasks and len(facts.tasks) > LISTED_TASKS:
        lines.append(f"… and {plural(len(facts.tasks) - LISTED_TASKS, 'more task')}")
    return "\n".join(
        [
            *lines,
            f"Waiting: {plural(facts.waiting, 'message')}",
            f"Session: {plural(agent.entries, 'entry', 'entries')}",
            f"Up for {format_duration(uptime)}, {plural(agent.turns, 'message')} handled",
            *(f"Note: {warning}" for warning in warnings),
        ]
    )


# ------------------------------------------------------------------ a task


def task_progress(task: TaskView, now: int) -> TaskProgress:
    """Return the state of a task for the people of its conversation. now: wall clock, ms.

    The number of a step counts model calls: one that runs counts, so the tools that it asks for have the same number.
    """
    is_acting = task.state is TaskState.ACTING
    is_waiting = task.state is TaskState.IDLE or not task.started_at
    return TaskProgress(
        channel=origin_of(task.metadata),
        task_id=task.task_id,
        number=task.number,
        description=truncate(task.description or task.input_text, DESCRIPTION_LENGTH),
        state=task.state.name,
        tool=task.doing if is_acting else "",
        step=task.iteration + (task.state is TaskState.REASONING),
        elapsed_ms=0 if is_waiting else max(0, (task.updated_at if task.is_over else now) - task.started_at),
        commands=task.commands,
        waits_for=task.waits_for if task.waits_for == FOR_APPROVAL else "",
    )


def task_name(number: int, task_id: str) -> str:
    """Return the name by which a person can call a task: its number, or its id while it has none."""
    return str(number) if number else task_id


def task_line(task: TaskProgress) -> str:
    """Return a task in one line: `3  shell_exec, step 2, 12 s: find papers`."""
    doing = "waiting for your yes or no" if task.waits_for else task.tool or _WORDS.get(task.state, task.state.lower())
    if task.state in ("REASONING", "ACTING"):
        doing += f", step {task.step}" if task.step else ""
        doing += f", {format_duration(task.elapsed_ms / 1000)}" if task.elapsed_ms else ""
    running = f" (running: {'; '.join(task.commands)})" if task.commands else ""
    return f"{task_name(task.number, task.task_id)}  {doing}: {task.description}{running}"


def tasks_text(tasks: Sequence[TaskView], now: int) -> str:
    """Return the answer to /tasks. tasks: unfinished ones, and those that ended lately. now: wall clock, ms."""
    unfinished = [task_line(task_progress(task, now)) for task in tasks if not task.is_over]
    ended = [_ended_line(task, now) for task in reversed(tasks) if task.is_over]
    lines = ["At work or waiting:" if unfinished else "No task is at work.", *unfinished]
    if ended:
        lines += ["Ended lately:", *ended]
    if unfinished:
        lines.append("/tasks show N tells more, /tasks cancel N ends a task.")
    elif ended:
        lines.append("/tasks show N tells more.")
    return "\n".join(lines)


def _ended_line(task: TaskView, now: int) -> str:
    """Return a task that has ended: `2  completed 3.0 min ago: find papers`."""
    sign = task_progress(task, now)
    ago = format_duration(max(0, now - task.updated_at) / 1000)
    why = f" ({truncate(task.error, DESCRIPTION_LENGTH)})" if task.error else ""
    return f"{task_name(task.number, task.task_id)}  {_WORDS[sign.state]}{why} {ago} ago: {sign.description}"


def task_text(task: TaskView, now: int) -> str:
    """Return the answer to /tasks show N: the state of a task, its work, and its question, result or error. now: wall clock, ms."""
    sign = task_progress(task, now)
    name = task_name(task.number, task.task_id)
    lines = [f"Task {task_line(sign)}", f"Id: {task.task_id}, begun {format_time(task.created_at, local=True)}"]
    if task.is_over:
        took = f" after {format_duration(sign.elapsed_ms / 1000)}" if sign.elapsed_ms else ""
        lines = [f"Task {name}  {_WORDS[sign.state]}{took}: {sign.description}", *lines[1:]]
    for title, text in (
        ("Work", task.input_text),
        ("Question", task.question),
        ("Result", task.result),
        ("Error", task.error),
    ):
        if text:
            lines.append(f"{title}: {cut_text(text, EXCERPT)}")
    if not task.is_over:
        lines.append(f"/tasks cancel {name} ends it.")
    return "\n".join(lines)


# ------------------------------------------------------------------ the command /tasks


@attrs.frozen(eq=False)
class TaskCommand:
    """Answers /tasks.

    Example: `await TaskCommand(task_agent, clock, owners).answer(message)`.
    """

    agent: Ref[AgentMessage]
    """Actor of the task system."""
    clock: Callable[[], int]
    """Wall clock, ms."""
    owners: Iterable[str]
    """The setting `agent.owners`."""

    async def answer(self, message: InboundMessage) -> str:
        """Return the answer. Raises StorageError if a log cannot be read. Cancelled: a cancel that was asked for goes on."""
        person = sender_of(message, self.owners)
        try:
            with trio.move_on_after(PATIENCE):
                match message.text.split()[1:]:
                    case [] | ["list"]:
                        return tasks_text(await self._list(person), self.clock())
                    case ["show", name] | [name] if name != "cancel":
                        return task_text(await self._find(name, person), self.clock())
                    case ["cancel" | "stop", name]:
                        return await self._cancel(name, person, message.channel)
                return _USAGE
        except TaskError as error:
            return _sentence(error)
        except ActorError:
            pass
        return _NO_ANSWER

    async def _list(self, person: Principal) -> Sequence[TaskView]:
        """Return the unfinished tasks that this person may see, and those that ended lately, oldest first."""
        unfinished = [task for task in await self.agent.ask(ListTasks, None) if not task.is_over]
        latest = await self.agent.ask(LatestTasks, LISTED, self.clock() - LATELY)
        ended = [task for task in latest if task.is_over]
        found = {task.task_id: task for task in (*ended, *unfinished) if is_visible(task.metadata, person)}
        return sorted(found.values(), key=lambda task: (task.created_at, task.number))

    async def _find(self, name: str, person: Principal) -> TaskView:
        """Return the task of this number or id. Raises TaskError if there is none, or if it is none of this person's."""
        task = await self.agent.ask(GetTask, name)
        if task is None:
            raise TaskError(f"there is no task {truncate(name, 40)!r}; {TASKS} lists them")
        if not is_visible(task.metadata, person):
            raise TaskError(f"task {truncate(name, 40)} belongs to another conversation")
        return task

    async def _cancel(self, name: str, person: Principal, channel: ChannelInfo) -> str:
        """End a task, and say what was ended when nothing of it runs any more, or that it is still ending."""
        task = await self._find(name, person)
        if not person.is_owner and task.metadata.get(ROLE) != Role.GUEST:
            raise TaskError(f"task {truncate(name, 40)} works for my owner, who alone can end it")
        title = f"task {task_name(task.number, task.task_id)} ({truncate(task.description or task.input_text, 60)})"
        if task.is_over:
            return f"{title[0].upper()}{title[1:]} has {task.state.value} already."
        with trio.move_on_after(PATIENCE - 1):  # the rest is for the answer
            try:
                stopped = await self.agent.ask(Cancel, task.task_id, f"the user ({channel.type})")
            except TaskError:
                return f"{title[0].upper()}{title[1:]} has ended already, or is being ended."
            doing = f"; it was at {stopped.doing}" if stopped.doing not in ("", "waiting") else ""
            ran = f" (ran {format_duration(stopped.seconds)})" if stopped.seconds else ""
            return f"Stopped {title}{ran}{doing}."
        return f"Still ending: {title}, at {task.doing or 'its last step'}. {TASKS} tells when it has ended."


def _sentence(error: TaskError) -> str:
    """Return an error as a sentence."""
    text = str(error)
    return f"{text[:1].upper()}{text[1:]}."
