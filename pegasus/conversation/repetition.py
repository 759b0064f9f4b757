"""Calls that are made again and again: when two calls are the same, when their results are, and when it is enough.

A model may repeat the same call for ever, and each repetition costs a model call and brings nothing new. What counts as the same is
decided here for the Main Agent and for tasks:

* Two calls are the same if name and arguments are, whatever the order of the keys. Arguments that could not be parsed are the same
  if their error is.
* Two results are the same if their texts are, without what differs each time: the duration of a call, and the headers of an answer.

`MOST_IN_A_ROW` is the number of calls in a row after which there is nothing left to learn.

* Somebody waits for the Main Agent, so a *circle* ends its turn (`find_loop`): the same call with the same arguments three times in
  a row, whether it fails or not, or three answers whose calls all fail for the same reason. Calls of one answer that fail alike count
  once, since the model has not seen a result between them.
* A task gets a chance to do something else. `RepetitionGuard` puts a note behind the third call whose result is the same; the call is
  then not carried out any more but answered with an error; and a model that makes it once more has its task ended.

All of it is read from the entries of the conversation, which are on disk. So a restart comes to the same conclusions.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from itertools import takewhile
from typing import Final

import attrs

from pegasus.conversation.entry import Entry
from pegasus.formatting import truncate
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
ERROR_LENGTH: Final = 200
"""Characters of a tool's error that a person is shown."""
_VARIABLE: Final = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`|“[^”]*”|\d+")
"""Parts of a reason that differ although it is the same reason: names, ids, positions."""
_MALFORMED: Final = "not valid JSON"
"""Words after which a reason only says where in the arguments the mistake is."""
_NOT_CARRIED_OUT: Final = '{"cancelled"'
"""Beginning of the result of a call that a restart or a /stop has ended. It says nothing about the call."""


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


# ------------------------------------------------------------------ circles of the Main Agent


@attrs.frozen(eq=False, repr=False)
class RepetitionLoop:
    """The end of a circle."""

    tool: str
    """Name of the tool that was called again and again."""
    reason: str
    """Rest of a sentence about the tool."""
    failed: bool = False
    """The calls have failed."""


def find_loop(entries: Sequence[Entry]) -> RepetitionLoop | None:
    """Return the circle that the calls for a message end in; None if they do not.

    entries: those of the message. Calls count in the order in which they were carried out, over all answers.
    """
    answers = _answers(entries)
    calls = [pair for answer in answers for pair in answer]
    begin = len(calls)
    while begin and call_signature(calls[begin - 1][0]) == call_signature(calls[-1][0]):
        begin -= 1
    if len(calls) - begin >= MOST_IN_A_ROW:
        call, result = calls[begin]  # those from the third one on were not carried out
        if result.failed:
            return _failed(call, result)
        reason = f"was called {MOST_IN_A_ROW} times in a row with the same arguments."
        return RepetitionLoop(call.name, reason)
    last = [pair for answer in answers[-MOST_IN_A_ROW:] for pair in answer]
    is_failing = len(answers) >= MOST_IN_A_ROW and all(result.failed for _, result in last)
    if is_failing and len({_reason(result) for _, result in last}) == 1:
        return _failed(*last[-1])
    return None


def _failed(call: ToolCall, result: Entry) -> RepetitionLoop:
    error = truncate(result.content.removeprefix("Error: "), ERROR_LENGTH)
    return RepetitionLoop(call.name, f"failed {MOST_IN_A_ROW} times in a row: {error}", failed=True)


def _answers(entries: Sequence[Entry]) -> list[list[tuple[ToolCall, Entry]]]:
    """Return the calls of each answer with their results; only those behind the last call that was not carried out."""
    results = {entry.call_id: entry for entry in entries if entry.role == "tool"}
    answers: list[list[tuple[ToolCall, Entry]]] = []
    for entry in entries:
        pairs = [(call, results[call.id]) for call in entry.calls if call.id in results]
        if any(result.content.startswith(_NOT_CARRIED_OUT) for _, result in pairs):
            answers.clear()
        elif pairs:
            answers.append(pairs)
    return answers


def is_repeatedly_truncated(entries: Sequence[Entry]) -> bool:
    """Return whether the last three answers for a message were all cut off at the token limit: the model would write for ever."""
    reasons = [entry.metadata.get("stopReason") for entry in entries if entry.role == "assistant"]
    return reasons[-MOST_IN_A_ROW:] == ["length"] * MOST_IN_A_ROW


def first_surplus(entries: Sequence[Entry], calls: Sequence[ToolCall]) -> int:
    """Return the index of the call that is the third of its kind in a row; the number of calls if there is none.

    entries: those of the message so far. calls: those of a new answer, which are not carried out from that index on.
    """
    before = [call_signature(call) for answer in _answers(entries) for call, _ in answer][-MOST_IN_A_ROW:]
    row = [*before, *map(call_signature, calls)]
    for index in range(len(before), len(row)):
        if index + 1 >= MOST_IN_A_ROW and len(set(row[index + 1 - MOST_IN_A_ROW : index + 1])) == 1:
            return index - len(before)
    return len(calls)


def _reason(result: Entry) -> str:
    """Return the reason of a failure without the parts that vary."""
    head, mark, _ = result.content.partition(_MALFORMED)
    return re.sub(_VARIABLE, "…", head + mark)


# ------------------------------------------------------------------ repetitions of a task


@attrs.define(eq=False)
class _CallRow:
    """Calls in a row that are the same."""

    signature: str = ""
    """Tool and arguments of the calls in the row, as `call_signature` returns them; "" before the first call."""
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
        guard = RepetitionGuard(context.messages, {"sleep"})
        for call in calls:
            if call.id in guard.surplus(calls): ...
    """

    def __init__(self, entries: Sequence[Entry], repeating: Collection[str] = ()) -> None:
        """Read the calls of a conversation; those before the last message of a person do not count.

        repeating: names of the tools that may be called again and again, since they wait for something.
        """
        self._repeating = repeating
        self._row = _CallRow()
        for call, result in last_calls(entries):
            self._row.add(self._signature(call), result)

    def _signature(self, call: ToolCall) -> str:
        """Return the signature of a call; a unique one for a tool that may be called again and again."""
        return f"{call.id} {call.name}" if call.name in self._repeating else call_signature(call)

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
