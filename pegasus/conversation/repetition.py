"""Calls that are made again and again: when two calls are the same, when their results are, and when it is enough.

A model may repeat the same call for ever, and each repetition costs a model call and brings nothing new. What counts as the same is
decided here for the Main Agent and for tasks:

* Two calls are the same if name and arguments are, whatever the order of the keys. Arguments that could not be parsed are the same
  if their error is.
* Two results are the same if their texts are, without what differs each time: the duration of a call, and the headers of an answer.

`MOST_IN_A_ROW` is the number of calls in a row after which there is nothing left to learn. Somebody waits for the Main Agent, so
the third call in a row ends its turn (`pegasus.main_agent.replies`). A task gets a chance to do something else: `RepetitionGuard`
puts a note behind the third call whose result is the same; the call is then not carried out any more but answered with an error; and a
model that makes it once more has its task ended.

All of it is read from the entries of the conversation, which are on disk. So a restart comes to the same conclusions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from typing import Final

import attrs

from pegasus.conversation.entry import Entry
from pegasus.messages import Json
from pegasus.models import ToolCall
from pegasus.wire import decode_json

MOST_IN_A_ROW: Final = 3
"""Calls in a row that are the same, or fail for the same reason, after which a repetition counts as a circle."""
MOST_CALLS: Final = 64
"""Calls of one answer that are carried out. A model that runs in circles may make thousands in a single answer; each would take
place in the conversation for ever, and its result in every later request."""
LOOK_BACK: Final = 100
"""Calls that are looked at, more than one answer has. A row that is longer counts as this long."""
NOT_REPEATED: Final = "Error: not carried out: this call was made again and again, and its result was always the same"
"""Result of a call that is not carried out any more. It stands in logs, where `RepetitionGuard` recognises it."""
REPEATED: Final = "repeated_call"
"""Type of the note behind the third call, in its metadata."""
_VARYING: Final = frozenset({"durationMs", "headers"})
"""Fields of a result that differ though nothing has changed."""


def call_signature(call: ToolCall) -> str:
    """Return a text that is the same for the same call with the same arguments, and also for the same broken arguments."""
    return f"{call.name} {call.error or _canonical(call.arguments)}"


def _canonical(value: object) -> str:
    """Return a text that is the same for equal JSON, and different for any other."""
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{name!r}:{_canonical(value[name])}" for name in sorted(value)) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_canonical, value)) + "]"
    return repr(value)


def is_same_result(first: Entry, second: Entry) -> bool:
    """Return whether two results say the same."""
    if first.failed != second.failed:
        return False
    return first.content == second.content or _without_varying(first.content) == _without_varying(second.content)


def _without_varying(content: str) -> Json:
    """Return what counts of a result: an object without the fields that vary, any other text as it is."""
    if not content.startswith("{"):
        return content
    try:
        found = decode_json(content)
    except ValueError:  # a result that was cut is no JSON any more
        return content
    return (
        {name: value for name, value in found.items() if name not in _VARYING} if isinstance(found, dict) else content
    )


def last_calls(entries: Sequence[Entry]) -> list[tuple[ToolCall, Entry]]:
    """Return the last calls behind the last message of a person, each with its result, in their order; at most LOOK_BACK.

    The search goes backwards, so that its cost does not grow with the conversation. A message of a person is told from our notes by
    its metadata, which have no type.
    """
    results: dict[str | None, Entry] = {}
    found: list[tuple[ToolCall, Entry]] = []
    for entry in reversed(entries):
        if entry.role == "tool":
            results[entry.call_id] = entry
        elif entry.role == "user" and "type" not in entry.metadata:
            break
        found += [(call, results[call.id]) for call in reversed(entry.calls) if call.id in results]
        if len(found) >= LOOK_BACK:
            break
    return found[:LOOK_BACK][::-1]


@attrs.define(eq=False)
class _CallRow:
    """Calls in a row that are the same."""

    signature: str = ""
    length: int = 0
    """Number of calls whose result is the same, and of those not carried out."""
    last: Entry | None = None
    """The result of the last call that was carried out."""
    refused: int = 0
    """Calls at its end that were not carried out."""

    def add(self, signature: str, result: Entry) -> None:
        """Add a call with its result."""
        if signature != self.signature:
            self.signature, self.length, self.last, self.refused = signature, 0, None, 0
        self.length += 1
        if result.content == NOT_REPEATED:
            self.refused += 1
        elif self.last is not None and not is_same_result(self.last, result):
            self.length = 1  # something has changed: the row begins anew
        self.last = self.last if self.refused else result

    @property
    def is_full(self) -> bool:
        """True if a further call of the row would bring nothing new."""
        return self.length >= MOST_IN_A_ROW


def surplus_note(count: int) -> str:
    """Return the note for the model about the calls of an answer beyond MOST_CALLS. count: of those."""
    return f"({count:,} further calls of this answer were not carried out: {MOST_CALLS} are the limit.)"


class RepetitionGuard:
    """Decides which calls of a task are not carried out any more, and what the model is told.

    Example:
        guard = RepetitionGuard(context.messages, lambda name: name == "sleep")
        for call in calls:
            if call.id in guard.surplus(calls): ...
    """

    def __init__(self, entries: Sequence[Entry], may_repeat: Callable[[str], bool]) -> None:
        """Read the calls of a conversation; those before the last message of a person do not count.

        may_repeat: returns whether a tool of this name may be called again and again, since it waits for something.
        """
        self._may_repeat = may_repeat
        self._row = _CallRow()
        for call, result in last_calls(entries):
            self._row.add(self._signature(call), result)

    def _signature(self, call: ToolCall) -> str:
        """Return the signature of a call; a unique one for a tool that may be called again and again."""
        return f"{call.id} {call.name}" if self._may_repeat(call.name) else call_signature(call)

    @property
    def problem(self) -> str:
        """Reason to end the task: the last call was refused, and made once more; "" if there is none."""
        if self._row.refused < 2:
            return ""
        name = self._row.signature.partition(" ")[0]
        return (
            f"the tool {name} was called {self._row.length} times in a row with the same arguments and the same result"
        )

    def surplus(self, calls: Sequence[ToolCall]) -> frozenset[str]:
        """Return the ids of those among the next calls that are not to be carried out.

        calls: run side by side. They do not count against each other, since the model has seen no result between them.
        """
        if not self._row.is_full:
            return frozenset()
        same = takewhile(lambda call: self._signature(call) == self._row.signature, calls)
        return frozenset(call.id for call in same)

    def note(self, call: ToolCall, result: Entry) -> Entry | None:
        """Add a call with its result. Return the note to be put behind it, None for most."""
        was_full = self._row.is_full and self._row.signature == self._signature(call)
        self._row.add(self._signature(call), result)
        if not self._row.is_full or was_full:
            return None
        text = (
            f"(The tool {call.name} has now been called {MOST_IN_A_ROW} times in a row with the same arguments, and the result "
            "was the same each time. The call is not carried out again: do something else, or answer with what you have.)"
        )
        return Entry(result.ts, "system", text, metadata={"type": REPEATED})
