"""The question that is asked when somebody leaves the chat while work is running, and what must be known for it.

A chat that has joined a running agent leaves it running; a chat that has started the agent stops it. In both cases a person who
leaves while something runs must be able to choose what becomes of it, and know what each choice does.

What counts is tasks, messages that the agent has not answered yet, and other chats that would lose their agent.

Ctrl-D once more takes the way that leaving takes without a question, so that an impatient person is not held up.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from contextlib import suppress
from enum import Enum
from typing import Final

import attrs

from pegasus.client import ClientError, Conversation
from pegasus.formatting import GOES_ON
from pegasus.terminal.questions import WaitingQuestion
from pegasus.terminal.status_line import ChatStatus


class Leave(Enum):
    """Way to leave the chat, and what becomes of the agent's work."""

    LEAVE = "the agent goes on if it was joined, and stops if this chat has started it"
    KEEP = "the agent goes on in the background although this chat has started it"
    STOP = "the work of this conversation is stopped first, then as LEAVE"


NOTHING_RUNS: Final = "Nothing is running any more"
"""Beginning of the hint that takes the place of the question when the work has ended."""
STAY: Final = "stay"
"""Text of the key that ends the question."""
OTHERS_SECONDS: Final = 1.0
"""Seconds that the agent may take to say who else is connected, which a person who leaves waits for."""
_INDENT: Final = 10
"""Columns before the text of a key."""


@attrs.frozen(kw_only=True)
class LeaveRules:
    """Facts that decide what leaving does. Made when somebody wants to leave, from the settings and the connection."""

    stops_agent: bool = False
    """Leaving stops the agent."""
    others: int = 0
    """Other chats that are connected to the agent."""
    resumes: bool = True
    """Work that the end of the agent interrupts goes on at the next start (`tasks.recovery`)."""


@attrs.frozen
class LeaveQuestion:
    """The question: what is running, and what each key does."""

    running: str
    """Sentence that names what is running."""
    keys: Mapping[str, tuple[str, Leave]]
    """Description and effect by key, in the order in which they are shown."""

    def lines(self, width: int) -> list[str]:
        """Return the lines to show, wrapped between words. width: columns that there are."""
        texts = [(key, text) for key, (text, _) in self.keys.items()]
        lines = textwrap.wrap(self.running, max(width, 2 * _INDENT), break_on_hyphens=False)
        for key, text in [*texts, ("Esc", STAY)]:
            first, *more = textwrap.wrap(text, max(width - _INDENT, _INDENT), break_on_hyphens=False)
            lines += [f"  {key:<7} {first}", *(" " * _INDENT + line for line in more)]
        return lines


def leave_question(status: ChatStatus, rules: LeaveRules) -> LeaveQuestion | None:
    """Return the question to ask before leaving, None while nothing runs or nobody knows.

    An agent that has replied often thinks on for a moment; nobody waits for that. But while other messages wait, their answers are to
    come.
    """
    # `waiting` counts messages of this chat; `thinking` may be about one that was sent elsewhere in this conversation.
    awaited = max(status.waiting, int(status.thinking and not status.answered))
    asking = [question for question in status.questions if question.is_here]
    # Other chats lose nothing as long as the agent goes on.
    lost = rules.others if rules.stops_agent else 0
    loss = f"{'Another chat is' if lost == 1 else f'{lost} other chats are'} connected to this agent." if lost else ""
    parts = _open_work(status, awaited, asking)
    if not status.online or not (parts or lost):
        return None
    if not parts:
        return LeaveQuestion(
            loss,
            {
                "l": ("leave the agent running in the background", Leave.KEEP),
                "q": ("stop the agent, as Ctrl-D does", Leave.LEAVE),
            },
        )
    only_asks = not (status.tasks or awaited)
    doing = "waiting" if only_asks else "running"
    several = len(status.tasks) + awaited + len(asking) > 1
    them = "them" if several else "it"
    running = " ".join(filter(None, [f"Still {'open' if only_asks else doing}: {', and '.join(parts)}.", loss]))
    if not rules.stops_agent:
        return LeaveQuestion(
            running,
            {
                "l": (f"leave {them} {doing}; so does Ctrl-D", Leave.LEAVE),
                "s": (f"stop {them} and leave", Leave.STOP),
            },
        )
    if only_asks:
        outcome = "the question comes again at the next start"
    elif not rules.resumes:
        outcome = "tasks then count as failed"
    else:
        outcome = f"{'they go' if several else 'it goes'} {GOES_ON if status.tasks else 'on at the next start'}"
    return LeaveQuestion(
        running,
        {
            "l": (f"leave {them} {doing} in the background", Leave.KEEP),
            "s": (f"give {them} up, and stop the agent", Leave.STOP),
            "q": (f"only stop the agent, as Ctrl-D does; {outcome}", Leave.LEAVE),
        },
    )


def _open_work(status: ChatStatus, awaited: int, asking: Sequence[WaitingQuestion]) -> list[str]:
    """Return what is not finished, in words. awaited: messages whose answers are to come. asking: questions of this chat's tasks."""
    parts = []
    if status.tasks:
        task, *others = status.tasks
        name = f"task {task.number}" if task.number else "a task"
        parts.append(f"{name} ({task.description})" + (f" and {len(others)} more" if others else ""))
    if awaited:
        parts.append(f"the answers to {awaited} messages" if awaited > 1 else "the answer to your message")
    if asking:
        ids = ", ".join(f"{question.id} ({question.name})" for question in asking)
        parts.append(f"{'tasks that wait' if len(asking) > 1 else 'a task that waits'} for your answer to {ids}")
    return parts


async def count_other_clients(conversation: Conversation) -> int:
    """Return how many other chats are connected to the agent, of this conversation or others; 0 if it does not say so."""
    with suppress(ClientError):
        answer = await conversation.call("clients", timeout=OTHERS_SECONDS)
        # This chat is among them, which is why one is taken off.
        clients = answer.get("clients") if isinstance(answer, Mapping) else None
        return max(0, len(clients) - 1) if isinstance(clients, Sequence) and not isinstance(clients, str) else 0
    return 0
