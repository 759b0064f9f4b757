"""The status of the agent: the facts, and their text for the chat.

`/status` in a chat, the control call `status` and `pegasus status` show the same facts, because all of them come from
`gather_status`. It asks the task system and waits for it for a bounded time; the rest is known to the one who calls. The text is
plain and has one fact a line, as those in `chat_commands`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import attrs
import trio

from pegasus.access import Principal
from pegasus.formatting import format_duration, plural
from pegasus.main_agent.chat_commands import AgentStatus
from pegasus.main_agent.delegation import TaskDelegation
from pegasus.main_agent.services import AgentServices
from pegasus.main_agent.task_status import task_line
from pegasus.main_agent.toolset import choose_speech_mode
from pegasus.messages import Address, ChannelInfo, Json, TaskProgress
from pegasus.tasks import FOR_PERSON
from pegasus.wire import to_wire

LISTED_TASKS: Final = 10
"""Unfinished tasks that the status names. Of the others only the number is shown."""


_OTHERS: Final = "something of another conversation"
"""Description of work that a person may know of, and not what it is about."""


@attrs.frozen(eq=False, repr=False)
class StatusFacts:
    """Facts about what the agent is doing.

    Example::

        facts = await gather_status(status, not_done=3, work=work, now=clock(), timeout=2.0)
        agent_status_text(facts, uptime=60.0)  # I am thinking about “…” for 12 s. …
        status_json(facts)["waiting"]          # 3
    """

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
        """Return how many tasks are at work, waiting for their turn, waiting for an answer, and paused if any; None as in `tasks`."""
        if self.tasks is None:
            return None
        # "IDLE" is a task that waits for its turn; what has ended is not among the tasks.
        states = [task.state for task in self.tasks]
        paused = sum(task.waits_for == FOR_PERSON for task in self.tasks)
        return {
            "working": states.count("REASONING") + states.count("ACTING"),
            "waiting": states.count("IDLE"),
            "suspended": states.count("SUSPENDED") - paused,
            **({"paused": paused} if paused else {}),
        }


def idle_status(services: AgentServices) -> AgentStatus:
    """Return the status of an agent with these services that does nothing."""
    manner = choose_speech_mode(services.config.now.speech, services.traits.get(services.model.name))
    window = services.context_window("default")
    return AgentStatus(services.model.name, 0, 0, None, 0.0, speech=manner.speech, window=window)


async def gather_status(
    agent: AgentStatus, not_done: int, work: TaskDelegation | None, now: int, timeout: float
) -> StatusFacts:
    """Return the facts. not_done: messages that are not done. now: wall clock, ms. timeout: seconds for the task system."""
    tasks: Sequence[TaskProgress] | None = () if work is None else None
    if work is not None:
        # A task system that hangs makes `tasks` None, and the status says so instead of waiting.
        with trio.move_on_after(timeout):
            views = await work.unfinished()
            tasks = None if views is None else [view.progress(now) for view in views]
    return StatusFacts(agent, max(0, not_done - agent.in_hand), None if tasks is None else tuple(tasks))


def seen_by(
    facts: StatusFacts, person: Principal, thinking_for: ChannelInfo | None, chat: Address | None = None
) -> StatusFacts:
    """Return the facts as this person may see them: what other conversations are about, and the model, are for an owner only.

    thinking_for: conversation of the message that is thought about. chat: the chat that the agent is for, whose tasks alone are named;
    None: it is for all.
    """
    if chat is not None and facts.tasks is not None:
        facts = attrs.evolve(facts, tasks=tuple(task for task in facts.tasks if task.channel.address == chat))
    if person.is_owner:
        return facts
    agent = attrs.evolve(facts.agent, model="", speech="", window=0)
    own_address = None if person.channel is None else person.channel.address
    # That the agent is busy, and with how many tasks, is for everybody; with what is not.
    if agent.thinking_about and thinking_for is not None and thinking_for.address != own_address:
        agent = attrs.evolve(agent, thinking_about=_OTHERS)
    tasks = tuple(
        task if task.channel.address == own_address else attrs.evolve(task, description=_OTHERS)
        for task in facts.tasks or ()
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
        # Programs get all messages that are not done, and beside it how many of them are in hand.
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


def agent_status_text(facts: StatusFacts, uptime: float, warnings: Sequence[str] = (), node: str = "") -> str:
    """Return the answer to /status. uptime: seconds since the actor was started, which is less than the process's after a crash.

    warnings: facts about the installation that this person should know. node: name of the node that works on the conversation.
    """
    agent = facts.agent
    is_known = facts.tasks is not None
    doing = doing_text(agent.thinking_about, agent.thinking_for, facts.working, is_known=is_known)
    lines = [f"I am {doing}."]
    if agent.model:
        lines.append(f"Model: {model_text(agent.model, agent.speech, agent.window)}")
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
            f"Up for {format_duration(uptime)}"
            + (f", {plural(agent.turns, 'message')} handled" if agent.turns else ""),
            *([f"Node: {node}"] if node else []),
            *(f"Note: {warning}" for warning in warnings),
        ]
    )
