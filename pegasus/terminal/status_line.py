"""Values of what the screen shows of the agent's work: the draft of a reply, and the line under the prompt.

`ChatStatus` and `Draft` are the values; the line is a pure function of a `ChatStatus` and the time. It shows a hint until the next
key, the connection, what waits for the person, the agent's thinking, and the background task that runs. It is empty while all is well
and nothing happens: a line that always shows something is soon not read any more.

    ⠙ thinking for 8 s, Ctrl-C stops · task 3: fetch the report · shell_exec · step 2 · 0:41 · +2 more
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import Final

import attrs

from pegasus.access import APPROVE, DENY
from pegasus.formatting import plural
from pegasus.messages import TaskProgress
from pegasus.terminal.questions import KEYS, KEYS_ONCE, WaitingQuestion
from pegasus.terminal.tty import neutralise

FRAME_SECONDS: Final = 0.2
"""Seconds between two pictures of the spinner: fast enough to show that the chat works, slow enough to cost no CPU."""
TASK_SECONDS: Final = 1.0
"""Seconds between two pictures while only a task runs, whose time is shown in seconds."""
PATIENCE: Final = 5
"""Seconds of thinking after which the line shows for how long, and how to stop it."""
SHORTEST_DESCRIPTION: Final = 12
"""Columns that the description of a task keeps in a narrow window. Step and tool give way before that; the time is said longest."""

_FRAMES: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
"""Pictures of the spinner in turn; none on a terminal without Unicode."""
_WORKING: Final = ("REASONING", "ACTING")
"""States of a task that is at work, as they stand on the wire."""
_WAITING: Final = "IDLE"
"""State of a task that waits for its turn."""


@attrs.frozen
class RunningTask:
    """A background task that is not finished."""

    number: int
    """Number by which people name it."""
    description: str
    """Few words about it, on one line and neutralised."""
    tool: str = ""
    """Tool that runs, "" while none does."""
    step: int = 0
    """Number of the step, 0 while it waits for its turn."""
    since: float | None = None
    """Time at which it got its turn, on the clock of `status_line`; None while it waits."""


@attrs.frozen
class ChatStatus:
    """Facts that the line shows."""

    online: bool = False
    """The gateway has sent its welcome on the present connection."""
    lost: bool = False
    """There was a connection before."""
    gone: bool = False
    """The agent does not run any more."""
    thinking: bool = False
    """The agent works on a message of this conversation."""
    answered: bool = False
    """There was a reply since the agent began to think."""
    waiting: int = 0
    """Messages of this chat that the agent has not answered yet, the one in work included."""
    unsent: int = 0
    """Messages that were typed and are not accepted yet."""
    writing: bool = False
    """A reply is being written, and shown above the prompt as far as it is."""
    activity: str = ""
    """Work in place of thinking, such as "retrying (429), attempt 2"."""
    tasks: tuple[RunningTask, ...] = ()
    """Tasks of this conversation that run or wait for their turn, in the order of `in_order`."""
    questions: tuple[WaitingQuestion, ...] = ()
    """Questions that wait for this person's yes or no, oldest first."""
    asking: tuple[RunningTask, ...] = ()
    """Tasks of this conversation that have asked something and wait for an answer in words, in the order of `in_order`."""

    @property
    def is_busy(self) -> bool:
        """True while something runs whose time is shown, so that the line must be drawn again and again."""
        return self.online and (self.thinking or any(task.since is not None for task in self.tasks))


@attrs.frozen
class Draft:
    """A reply that is being written."""

    agent: str
    """Name of the agent, shown above the text."""
    text: str
    """Markdown as far as it is written; "" while there is only reasoning."""
    reasoning: str = ""
    """End of the model's reasoning, shown dimmed above the text; "" where it is not shown."""


def running_task(state: TaskProgress, now: float) -> RunningTask | None:
    """Return a task that runs, waits for its turn or has asked something, None for any other. now: on the clock of the line.

    A task that a person has paused may rest for days, and is not shown; one that waits for a yes or no is shown by its question.
    """
    if state.state not in (*_WORKING, _WAITING) and not is_asking(state):
        return None
    since = now - state.elapsed_ms / 1000 if state.state in _WORKING else None
    description = " ".join(neutralise(state.description).split())
    return RunningTask(state.number, description, neutralise(state.tool), state.step, since)


def is_asking(state: TaskProgress) -> bool:
    """Return whether a task waits for an answer in words."""
    return state.state == "SUSPENDED" and not state.waits_for


def in_order(tasks: Iterable[RunningTask]) -> tuple[RunningTask, ...]:
    """Return the tasks in the order in which they are shown: those at work first, each by number."""
    return tuple(sorted(tasks, key=lambda task: (task.since is None, task.number)))


def status_line(
    status: ChatStatus, seconds: float, hint: str = "", *, now: float = 0.0, width: int = 80, unicode: bool = True
) -> str:
    """Return the text of the line, "" when there is nothing to show.

    seconds: for how long the agent has been thinking. now: time on the clock of the tasks. width: columns that there are.
    """
    dot = " · " if unicode else " - "
    parts = [hint]
    if not status.online:
        parts.append(_connection_text(status))
    elif status.questions:
        parts.append(_questions_text(status.questions))
    if status.online and status.asking:
        parts.append(_asking_text(status.asking))
    if status.online and status.thinking:
        activity = status.activity or ("writing" if status.writing else "thinking")
        parts.append(_activity_text(activity, seconds, unicode))
    text = dot.join(part for part in parts if part)
    if not status.online or not status.tasks:
        return text
    text = text + dot if text else ""
    line = text + _task_text(status.tasks, now, dot, width - _columns(text), unicode=unicode)
    if hint and _columns(line) > width:  # the task wins: it stands in front, without its description
        line = dot.join([_short_text(status.tasks[0], now, dot), *filter(None, parts)])
    return line


def _connection_text(status: ChatStatus) -> str:
    """Return the state of a connection that is not there, and how many messages wait for it."""
    state = "connection lost, trying again" if status.lost else "connecting"
    state = "the agent does not run" if status.gone else state
    return f"{state}; {plural(status.unsent, 'message')} waiting to be sent" if status.unsent else state


def _questions_text(questions: tuple[WaitingQuestion, ...]) -> str:
    """Return what waits for a person, and how to answer."""
    (id, name, may_widen, _), *others = questions
    if others:
        return f"{len(questions)} questions wait for you: {APPROVE} or {DENY} ID"
    return f"{id} {name} waits for you: {KEYS if may_widen else KEYS_ONCE}"


def _asking_text(tasks: tuple[RunningTask, ...]) -> str:
    """Return which tasks wait for an answer in words."""
    if len(tasks) > 1:
        return f"{len(tasks)} tasks wait for your answer"
    return f"{_name(tasks[0])} waits for your answer"


def _activity_text(activity: str, seconds: float, unicode: bool) -> str:
    """Return the spinner, and after some seconds for how long, and how to stop."""
    frame = _FRAMES[int(seconds / FRAME_SECONDS) % len(_FRAMES)] + " " if unicode else ""
    if seconds < PATIENCE:
        return f"{frame}{activity}"
    minutes, rest = divmod(int(seconds), 60)
    duration = f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
    return f"{frame}{activity} for {duration}, Ctrl-C stops"


def _short_text(task: RunningTask, now: float, dot: str) -> str:
    """Return a task without its description."""
    return _name(task) if task.since is None else f"{_name(task)}{dot}{_clock_text(now - task.since)}"


def _name(task: RunningTask) -> str:
    """Return the words by which people name a task."""
    return f"task {task.number}" if task.number else "task"


def _task_text(tasks: tuple[RunningTask, ...], now: float, dot: str, width: int, *, unicode: bool) -> str:
    """Return the first task and how many more there are, with its description shortened, and facts left out, so that the rest fits."""
    task, *others = tasks
    name = f"{_name(task)}: "
    details = [] if task.since is None else [task.tool, f"step {task.step}" if task.step else ""]
    facts = ["waits for its turn" if task.since is None else _clock_text(now - task.since)]
    if others:
        facts.append(f"+{len(others)} more")
    rest = dot + dot.join(filter(None, [*details, *facts]))
    while details and len(name) + SHORTEST_DESCRIPTION + _columns(rest) > width:
        details.pop()
        rest = dot + dot.join(filter(None, [*details, *facts]))
    room = max(SHORTEST_DESCRIPTION, width - len(name) - _columns(rest))
    return name + _cut(task.description, room, "…" if unicode else "...") + rest


def _clock_text(seconds: float) -> str:
    """Return a duration as a clock shows it: 0:41, 12:05, 1:00:00."""
    minutes, rest = divmod(max(0, int(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _columns(text: str) -> int:
    """Return the columns that a text takes: Chinese characters and emoji take two."""
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def _cut(text: str, width: int, mark: str) -> str:
    """Return the text, shortened with the mark to so many columns."""
    if _columns(text) <= width:
        return text
    while _columns(text) > width - len(mark):
        text = text[:-1]
    return text.rstrip() + mark
