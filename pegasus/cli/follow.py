"""`pegasus tasks follow`: the log of a task as it grows.

The command first subscribes to the events of the task and then reads its log, so nothing is missed between the two. An event that
was recorded in between comes twice; what the log has shown is left out of the stream. Events of a task are on disk before they are
published, so the log is never behind the stream.

The end of the task ends the command. A task that waits for an answer has not ended: the command waits with it.

Events of log and stream have no number in common. So an event is recognised by its type, time and data, and each one of the log stops
one of the stream: two equal events that both happened are both shown. Where the stream has missed events, a line says so.

The exit code is 0 for a task that has completed, 1 for one that has failed and for a lost connection, and 130 after Ctrl-C, as shells
have it. The task is not ended by any of them. In a log with several ends the last one counts: a task may be resumed after a failure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import trio

from pegasus.cli.commands import program_name
from pegasus.cli.control import (
    ANSWER_SECONDS,
    Answer,
    ask_client,
    describe_refusal,
    json_line,
    open_caller,
    print_text,
    report_failure,
)
from pegasus.client import ClientError, Endpoint, EventFrame, NotConnected
from pegasus.formatting import GOES_ON, format_duration, format_time, truncate
from pegasus.host import print_error
from pegasus.tasks import FOR_PERSON, fail_reason
from pegasus.wire import encode_json

SHORT: Final = 160
"""Characters of a text that is shown in a line. `pegasus tasks replay` shows all of it."""
INTERRUPTED: Final = 130
"""Exit code after Ctrl-C."""

_ENDS: Final = {"TASK_COMPLETED": 0, "TASK_FAILED": 1}
"""By event that ends a task, the exit code."""


def follow_task(daemon: Endpoint, name: str, *, as_json: bool) -> int:
    """Print the log of a task until it has ended; return the exit code. name: number or id. Errors are printed on stderr.

    Ctrl-C is expected here: it ends the command and not the task, and the command to end that is printed.
    """
    try:
        try:
            return trio.run(partial(_follow, daemon, name, as_json=as_json))
        except* KeyboardInterrupt:  # bare, or within a group when a nursery of the client was open
            print_error(f"\nThe task goes on. {program_name()} tasks cancel {name} ends it.")
    except ClientError as error:
        return report_failure(describe_refusal(error, "tasks.log", ("taskId",)))
    return INTERRUPTED


async def _follow(daemon: Endpoint, name: str, *, as_json: bool) -> int:
    """Do the same over one connection. Raises ClientError, also when the connection is lost before the task has ended."""
    params = {"taskId": name}
    async with open_caller(daemon, "events") as client:
        # The order is the promise of this file: subscribed first, read second. The other way an event between would be lost.
        await ask_client(client, "events.subscribe", params, ANSWER_SECONDS)
        log = await ask_client(client, "tasks.log", params, ANSWER_SECONDS)
        printer = LogPrinter(log["task"], as_json=as_json)
        code = printer.print_all(log["events"])
        if code is not None:
            return code
        async for event in client:
            if isinstance(event, EventFrame):
                # Other events of the connection are passed over.
                code = printer.print_new(event.event)
                if code is not None:
                    return code
        # The stream ends without an end of the task only when the connection does.
        raise NotConnected(f"{client.closed or 'the connection was closed'}; an unfinished task goes {GOES_ON}")


def print_log(task: Answer, events: Sequence[Mapping[str, Any]], *, as_json: bool) -> int:
    """Print the log of a task while no daemon runs; return the exit code. An unfinished task is a failure, for it does not go on."""
    code = LogPrinter(task, as_json=as_json).print_all(events)
    if code is None:
        return report_failure(f"no agent is running; the task goes on at the next start: {program_name()} run")
    return code


class LogPrinter:
    """Prints the events of one task, each once.

    It does no I/O but printing, so that the same object serves the stream of a daemon and the files of a home.
    """

    def __init__(self, task: Answer, *, as_json: bool) -> None:
        self._task = task
        self._as_json = as_json
        # A counter and not a set: two equal events that both happened are both shown.
        self._shown: Counter[str] = Counter()
        """Events of the log that may come again in the stream."""

    def print_all(self, events: Sequence[Mapping[str, Any]]) -> int | None:
        """Print a title and the log as it is. Returns the exit code, None if the task has not ended."""
        if not self._as_json:
            name = self._task.get("number") or self._task["taskId"]
            about = self._task.get("description") or self._task.get("inputText") or ""
            print_text(f"Task {name}: {truncate(str(about), SHORT)}")
        for event in events:
            self._shown[_key(event)] += 1
            self._print(event)
        # A resume is an end taken back: with it as the last of these the task goes on.
        ends = [event["type"] for event in events if event["type"] in (*_ENDS, "TASK_RESUMED")]
        return _ENDS.get(ends[-1]) if ends else None

    def print_new(self, event: Mapping[str, Any]) -> int | None:
        """Print an event of the stream, unless the log has shown it. Returns the exit code if the event ends the task."""
        key = _key(event)
        if self._shown[key]:
            self._shown[key] -= 1
            return None
        self._print(event)
        return _ENDS.get(event["type"])

    def _print(self, event: Mapping[str, Any]) -> None:
        """Print one event: as JSON a line, otherwise with its time, and further lines below the first."""
        if self._as_json:
            print_text(json_line(event), always=False)
            return
        # Most types of events say nothing to a person and print nothing.
        lines = event_lines(event)
        if lines:
            at = format_time(event.get("ts", 0), "%H:%M:%S", local=True)
            print_text("\n".join([f"{at}  {lines[0]}", *(f"          {line}" for line in lines[1:])]))


def _key(event: Mapping[str, Any]) -> str:
    """Return what is the same for an event of the log and for the same one of the stream."""
    return encode_json([event.get("type"), event.get("ts"), event.get("data")])


def event_lines(event: Mapping[str, Any]) -> list[str]:
    """Return what an event says to a person, [] for one that says nothing: a line each, the result of the task as it is.

    The result of a task is not shortened, since it is what the command was called for.
    """
    # Fields may be missing: the log may be of an older version, which is no reason to stop.
    data: Mapping[str, Any] = event.get("data") or {}
    if event.get("type") in _LINES:
        return _LINES[event["type"]](data)
    word, field = _WORDS.get(str(event.get("type")), ("", ""))
    return [f"{word}: {_short(data.get(field))}"] if word else []


_WORDS: Final = {
    "TASK_CREATED": ("created", "inputText"),
    "TASK_NOTIFY": ("says", "message"),
    "NEED_MORE_INFO": ("asks", "question"),
    "TASK_RESUMED": ("resumed", "newInput"),
}
"""By type of event, the word before a text, and the field that holds it."""


def _thought_lines(data: Mapping[str, Any]) -> list[str]:
    found = data.get("reasoning")
    reasoning: Mapping[str, Any] = found if isinstance(found, Mapping) else {}
    calls = [f"→ {call.get('name')} {_arguments(call)}" for call in reasoning.get("toolCalls") or ()]
    thought = _short(reasoning.get("response")) if calls else ""
    return [*([f"thought: {thought}"] if thought else []), *calls]


def _call_lines(mark: str, data: Mapping[str, Any]) -> list[str]:
    took = format_duration(float(data.get("durationMs") or 0) / 1000)
    # The messages that the call has added to the conversation: its result, or the error.
    results = [_short(message.get("content")) for message in data.get("newMessages") or ()]
    return [f"{mark} {data.get('toolName')} ({took}): {' '.join(results)}"]


def _suspended_lines(data: Mapping[str, Any]) -> list[str]:
    reason = data.get("suspendReason")
    return ["paused" if reason == FOR_PERSON else f"suspended: {_short(reason)}"]


def _completed_lines(data: Mapping[str, Any]) -> list[str]:
    return ["completed:", *str((data.get("finalResult") or {}).get("response") or "").splitlines()]


def _failed_lines(data: Mapping[str, Any]) -> list[str]:
    error = str(data.get("error"))
    return [error if fail_reason(error, str(data.get("reason"))) else f"failed: {error}"]


_LINES: Final[Mapping[object, Callable[[Mapping[str, Any]], list[str]]]] = {
    "TASK_STATE_CHANGED": lambda data: [f"{data.get('fromState')} → {data.get('toState')}"],
    "REASON_DONE": _thought_lines,
    "TOOL_CALL_COMPLETED": partial(_call_lines, "✓"),
    "TOOL_CALL_FAILED": partial(_call_lines, "✗"),
    "TASK_SUSPENDED": _suspended_lines,
    "TASK_COMPLETED": _completed_lines,
    "TASK_FAILED": _failed_lines,
    "gap": lambda data: ["(some events were missed)"],
}
"""By type of event, the function that words its data."""


def _short(text: object) -> str:
    """Return a text on one line, shortened."""
    return truncate("" if text is None else str(text), SHORT)


def _arguments(call: Mapping[str, Any]) -> str:
    """Return the arguments of a call on one line, shortened."""
    return truncate(encode_json(call.get("arguments") or {}), SHORT)
