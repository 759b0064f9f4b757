"""`SessionWork`: background tasks of a session as the editor shows them: a plan with an entry for each task, and their tool calls.

Tool calls are made by tasks, whose events say when one begins and ends. Which tasks belong to the session is known from the `task`
frames of its conversation, and from TASK_CREATED, whose cause is the message or the task that the work comes of.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pegasus.acp.content import code_block, text_block
from pegasus.formatting import truncate
from pegasus.messages import Address, FileEdit, Json, TaskProgress
from pegasus.wire import decode_object

EVENT_TYPES: Final = ("TASK_CREATED", "TOOL_CALL_REQUESTED", "TOOL_CALL_COMPLETED", "TOOL_CALL_FAILED")
"""Events that are followed."""
MOST_TASKS: Final = 200
"""Tasks that are known of a session; the oldest that have ended are forgotten."""
TITLE: Final = 120
"""Characters of the title of a call."""

_KINDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("read_file", "get_file_info", "memory_read", "command_output"), "read"),
    **dict.fromkeys(("list_files", "grep_files", "memory_search", "memory_list"), "search"),
    **dict.fromkeys(("write_file", "edit_file", "save_attachment", "memory_write", "memory_append"), "edit"),
    **dict.fromkeys(("shell_exec", "run_python", "command_start", "command_input", "command_stop"), "execute"),
    **dict.fromkeys(("web_fetch", "web_search", "http_get", "http_post", "http_request", "download"), "fetch"),
    "delete_file": "delete",
    "move_file": "move",
}
"""Kind of a call for the editor, by the name of the tool; others are "other"."""
_SUBJECTS: Final = ("command", "path", "file", "url", "pattern", "query", "source", "code")
"""Arguments that say what a call is about, the most telling first."""
_HUNK: Final = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")


def kind_of(tool: str) -> str:
    """Return the kind of a tool's calls, as editors know it."""
    return _KINDS.get(tool, "other")


def title_of(tool: str, arguments: Mapping[str, Any]) -> str:
    """Return a call in a few words: its tool, and what it is about."""
    about = next((str(arguments[key]) for key in _SUBJECTS if arguments.get(key)), "")
    return truncate(f"{tool}: {' '.join(about.split())}" if about else tool, TITLE)


def locations_of(arguments: Mapping[str, Any], folder: str) -> list[Json]:
    """Return the files that a call names."""
    names = [arguments.get(key) for key in ("path", "file", "source", "destination")]
    return [{"path": os.path.join(folder, name)} for name in names if isinstance(name, str) and name]


class SessionWork:
    """The tasks of a session, and their calls."""

    def __init__(self, address: Address, folder: str) -> None:
        self._cause = f"message {address} "
        self._folder = folder
        self._tasks: dict[str, TaskProgress | None] = {}
        """Tasks of the session by id, in order; None for one of which no frame has come."""
        self._editing: dict[str, str] = {}
        """Id of the call under way that may change a file, by task."""
        self._begun: set[str] = set()
        """Ids of calls under way that the editor knows."""
        self._illustrated: set[str] = set()
        """Those that are shown with a difference or a terminal, which say more than their result."""
        self._plan: list[Json] = []
        """The plan as it was shown."""

    def progress(self, task: TaskProgress) -> Iterator[dict[str, Json]]:
        """Yield the update that a changed task leads to."""
        self._tasks[task.task_id] = task
        ended = [id for id, each in self._tasks.items() if each is not None and each.state in ("COMPLETED", "FAILED")]
        for id in ended[: max(0, len(self._tasks) - MOST_TASKS)]:
            del self._tasks[id]
        plan: list[Json] = [_entry(each) for each in self._tasks.values() if each is not None]
        if plan != self._plan:
            self._plan = plan
            yield {"sessionUpdate": "plan", "entries": plan}

    def begin_plan(self) -> None:
        """Leave out of the plan what has ended: another prompt begins."""
        for id, task in list(self._tasks.items()):
            if task is not None and task.state in ("COMPLETED", "FAILED"):
                del self._tasks[id]

    def event(self, event: Mapping[str, Any]) -> Iterator[dict[str, Json]]:
        """Yield the update that an event leads to."""
        task_id, data = event.get("taskId"), event.get("data") or {}
        if not isinstance(task_id, str) or not isinstance(data, Mapping):
            return
        if event.get("type") == "TASK_CREATED":
            cause = str(data.get("cause") or "")
            if cause.startswith(self._cause) or cause.removeprefix("task ") in self._tasks:
                self._tasks.setdefault(task_id, None)
        elif task_id not in self._tasks:
            return
        elif event.get("type") == "TOOL_CALL_REQUESTED":
            yield self._begin(task_id, data)
        else:
            yield from self._end(task_id, data, failed=event.get("type") == "TOOL_CALL_FAILED")

    def edit(self, edit: FileEdit) -> dict[str, Json]:
        """Return the update that shows a changed file: as part of the call that changes it, or as a call of its own."""
        parts = read_diff(edit.diff)
        content: list[Json] = [
            {"type": "diff", "path": edit.path, "oldText": old, "newText": new} for _, old, new in parts
        ] or [{"type": "content", "content": text_block(edit.diff)}]
        location: Json = {"path": edit.path, **({"line": parts[0][0]} if parts else {})}
        if call := self._editing.get(edit.task_id):
            self._illustrated.add(call)
            return {
                "sessionUpdate": "tool_call_update",
                "toolCallId": call,
                "content": content,
                "locations": [location],
            }
        return {
            "sessionUpdate": "tool_call",
            "toolCallId": f"{edit.task_id}/edit/{edit.path}",
            "title": truncate(f"edit {edit.path}", TITLE),
            "kind": "edit",
            "status": "completed",
            "content": content,
            "locations": [location],
        }

    def in_terminal(self, call: str, terminal: str) -> dict[str, Json]:
        """Return the update that shows a terminal as part of a call."""
        self._illustrated.add(call)
        content: list[Json] = [{"type": "terminal", "terminalId": terminal}]
        return {"sessionUpdate": "tool_call_update", "toolCallId": call, "content": content}

    def _begin(self, task_id: str, data: Mapping[str, Any]) -> dict[str, Json]:
        tool, found = str(data.get("toolName")), data.get("params")
        arguments = found if isinstance(found, Mapping) else {}
        id = f"{task_id}/{data.get('callId')}"
        if kind_of(tool) in ("edit", "move", "delete"):
            self._editing[task_id] = id
        if id in self._begun:  # it has waited for an owner, and is made again
            return {"sessionUpdate": "tool_call_update", "toolCallId": id, "status": "in_progress"}
        self._begun.add(id)
        return {
            "sessionUpdate": "tool_call",
            "toolCallId": id,
            "title": title_of(tool, arguments),
            "kind": kind_of(tool),
            "status": "in_progress",
            "locations": locations_of(arguments, self._folder),
            "rawInput": arguments,
        }

    def _end(self, task_id: str, data: Mapping[str, Any], *, failed: bool) -> Iterator[dict[str, Json]]:
        results = data.get("newMessages")
        result = next((each for each in results or () if isinstance(each, Mapping) and each.get("toolCallId")), None)
        if result is None:
            return
        id = f"{task_id}/{result['toolCallId']}"
        update: dict[str, Json] = {
            "sessionUpdate": "tool_call_update",
            "toolCallId": id,
            "status": "failed" if failed else "completed",
        }
        if failed or id not in self._illustrated:
            update["content"] = [
                {"type": "content", "content": text_block(shown_result(str(result.get("content") or "")))}
            ]
        self._begun.discard(id)
        self._illustrated.discard(id)
        if self._editing.get(task_id) == id:
            del self._editing[task_id]
        yield update


def _entry(task: TaskProgress) -> dict[str, Json]:
    """Return a task as an entry of the plan."""
    note = {"FAILED": "stopped" if task.reason else "failed", "SUSPENDED": "waits"}.get(task.state, task.tool)
    status = {"IDLE": "pending", "COMPLETED": "completed", "FAILED": "completed"}.get(task.state, "in_progress")
    content = f"{task.description} ({note})" if note else task.description
    return {"content": content, "priority": "medium", "status": status}


def shown_result(text: str) -> str:
    """Return the result of a call as people read it: what a command printed or a file holds, without the JSON around it."""
    try:
        value = decode_object(text)
    except ValueError:
        return text
    if isinstance(output := value.get("stdout"), str):
        printed = "\n".join(filter(None, (output.rstrip(), str(value.get("stderr") or "").rstrip())))
        return code_block(printed) if printed else f"exit code {value.get('exitCode')}"
    if isinstance(content := value.get("content"), str):
        return code_block(content.rstrip("\n"))
    return text


def read_diff(block: str) -> Sequence[tuple[int, str, str]]:
    """Return the parts of a difference as `FileEdit` has it: first line in the new file, old text, new text."""
    parts: list[tuple[int, list[str], list[str]]] = []
    lines = block.split("\n")[1:-1]
    for line in lines:
        if match := _HUNK.fullmatch(line):
            parts.append((int(match[2]), [], []))
        elif parts and line[:1] in (" ", "-", "+"):
            _, old, new = parts[-1]
            old += [line[1:]] if line[0] in " -" else []
            new += [line[1:]] if line[0] in " +" else []
    return [(max(1, line), "\n".join(old), "\n".join(new)) for line, old, new in parts]
