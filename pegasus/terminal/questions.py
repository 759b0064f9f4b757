"""Answers to questions about tool calls, typed as one letter at the prompt: `y`, `n`, `a` or `?`, and Enter.

A letter answers only what a person has surely read: the one question on the screen, if it had been there for a second before the
first key of the line, and the prompt was empty when it came. Otherwise a letter that was meant for something else would say yes to a
call that nobody has looked at. What does not answer is not sent as a message either; the person is told, and types it again.

With several questions a letter does not say which is meant, so the ids are named. A plain "yes" or "no" is a message to the agent as
well as an answer: the person is asked, and Enter on the same line sends it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import attrs

from pegasus.access import APPROVALS, APPROVE, DENY
from pegasus.formatting import plural
from pegasus.messages import ApprovalNotice, ChannelInfo
from pegasus.terminal.tty import neutralise

READING_SECONDS: Final = 1.0
"""Seconds that a question must have been on the screen before the first key of its answer."""
_COMMANDS: Final[Mapping[str, str]] = {"y": f"{APPROVE} {{id}}", "a": f"{APPROVE} {{id}} tool", "n": f"{DENY} {{id}}"}
"""Commands that the letters stand for."""
_PLAIN: Final = frozenset(
    [
        "yes",
        "yes.",
        "yes!",
        "yep",
        "yeah",
        "ok",
        "ok.",
        "okay",
        "sure",
        "go",
        "do it",
        "no",
        "no.",
        "no!",
        "nope",
        "ja",
        "nein",
    ]
)
"""Lines that may be meant for a question."""
KEYS: Final = "y once · n no · a always in this task · ? explains"
"""Letters as the line under the prompt names them."""
KEYS_ONCE: Final = "y once · n no · ? explains"
"""Letters for a question whose yes must not reach further."""
MEANINGS: Final = """\
y  this may be done, once
n  it may not; {deny} ID REASON tells the agent why
a  in this task the tool may be called with any arguments,
   also those that text from outside suggests
{approve} ID and {deny} ID answer any question by its id.
{approve} ID 1,3 allows a part of several calls, {approve} ID hour more than once.
{approvals} lists what waits and what you have allowed."""
"""Answer to `?`, below the question."""


@attrs.frozen
class Remark:
    """Text for a person whose line has answered nothing."""

    text: str
    """Reason and the way on."""
    keeps_line: bool = False
    """True if the line stays on the prompt."""


@attrs.define
class _Shown:
    """A question on the screen."""

    tool: str
    """Name of the tool, neutralised."""
    text: str
    """Question as it was printed."""
    since: float
    """Time at which it was printed."""
    may_widen: bool
    """True if a yes may be for the tool in the whole task."""
    is_readable: bool
    """False if it came while a line was being typed, and its letter would be a guess."""


class OpenQuestions:
    """Questions on the screen that wait for an answer. All times are on one monotonic clock, in seconds."""

    def __init__(self) -> None:
        self._shown: dict[str, _Shown] = {}
        """By id, oldest first."""
        self._doubted = ""
        """Line about which the person was asked whether it was meant for a question."""

    def add(self, id: str, tool: str, text: str, *, now: float, prompt_is_empty: bool, may_widen: bool = True) -> None:
        """Add a question that was printed now. may_widen: a yes may be for the tool in the whole task."""
        self._shown[id] = _Shown(tool, text, now, may_widen, prompt_is_empty)

    def remove(self, id: str) -> None:
        """Remove a question that is answered."""
        self._shown.pop(id, None)

    def clear(self) -> None:
        """Remove all: the agent is away, and shows again what still waits."""
        self._shown.clear()

    def read(self, line: str, *, first_key: float, now: float) -> str | Remark | None:
        """Return the command that a line stands for, a remark about it, or None for a message like any other.

        first_key: time of the first key of the line.
        """
        word = line.strip().lower()
        if not self._shown:
            return None
        if word in _PLAIN:
            if self._doubted == line:
                self._doubted = ""
                return None
            self._doubted = line
            return Remark(
                f"Was that meant for {self._names()}? Then type y or n. Enter sends it as a message.", keeps_line=True
            )
        self._doubted = ""
        if word == "?":
            texts = "\n\n".join(shown.text for shown in self._shown.values())
            return Remark(f"{texts}\n\n{MEANINGS.format(approve=APPROVE, deny=DENY, approvals=APPROVALS)}")
        if word not in _COMMANDS:
            return None
        if len(self._shown) > 1:
            return Remark(f"{len(self._shown)} questions wait: {self._names()}. Name one: {APPROVE} ID, or {DENY} ID.")
        [(id, shown)] = self._shown.items()
        if word == "a" and not shown.may_widen:
            return Remark(f"Not sent: {self._names()} can only be answered for these calls: {KEYS_ONCE}.")
        if not shown.is_readable or first_key - shown.since < READING_SECONDS:
            shown.is_readable, shown.since = True, now
            return Remark(f"Not sent: {self._names()} came while you were typing. Read it, then type {word} again.")
        return _COMMANDS[word].format(id=id)

    def _names(self) -> str:
        return ", ".join(f"{id} ({shown.tool})" for id, shown in self._shown.items())


class WaitingQuestion(NamedTuple):
    """A question that waits, as the line under the prompt and the end of the chat name it."""

    id: str
    """Id of the approval."""
    name: str
    """Subject in few words, neutralised."""
    may_widen: bool = True
    """True if a yes may be for the tool in the whole task."""
    is_here: bool = False
    """True if a task of this conversation waits for the answer."""


def waiting_question(notice: ApprovalNotice, channel: ChannelInfo) -> WaitingQuestion:
    """Return a notice as a question that waits. channel: of this conversation."""
    asked, count = notice.channel, len(notice.all_calls)
    is_here = asked is not None and asked.address == channel.address and bool(notice.task_id)
    name = f"plan of {plural(count, 'call')}" if notice.is_plan else neutralise(notice.tool)
    name += f" +{count - 1}" if count > 1 and not notice.is_plan else ""
    return WaitingQuestion(notice.id, name, "tool" in notice.scopes, is_here)
