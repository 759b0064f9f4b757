"""Background work of the stand-in: which messages are jobs, how a task does one, and how its result is passed on.

A job is one line, a verb and its object: "run: uname -a". The Main Agent's stand-in finds it in a message and spawns a task with that
line as its input. The task's stand-in parses the line again, makes the one tool call that the job needs, and reports the result. Its
report is the task's result, which comes back to the Main Agent as a notification and is passed on to the user.

    message "run `uname -a`"
    → spawn_subagent {"input": "run: uname -a"}
    → in the task: shell_exec {"command": "uname -a"} → "Linux …"
    → notification "[Task ab completed] …" → reply "Linux …"

The same conversation gives the same calls, so tests can predict them, and a task that a crash has interrupted goes on as before: the
next step is computed from the conversation alone. A job takes one tool call. More would need a plan, which takes a model.

The patterns accept little. A message that is taken for a job by mistake would run a command that nobody wanted; a job that is not
recognised costs only an answer that says so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import attrs

from pegasus.messages import Metadata
from pegasus.models.base import AssistantTurn, ModelRequest, ToolResult, UserTurn

RESULT_LENGTH: Final = 1500
"""Characters of a tool's output in a report. It fits into one message of the usual channels."""

PlannedCall: TypeAlias = tuple[str, Metadata]
"""Tool and arguments of a call."""


@attrs.frozen
class StandInJob:
    """A job and the one tool call that it takes.

    Example: `find_job("please run uname -a")` is `StandInJob("run: uname -a", "shell_exec", {"command": "uname -a"})`.
    """

    line: str
    """Verb and object. `find_job` understands this line as well as the message that it came from."""
    tool: str
    """Tool of a subagent that does the job."""
    arguments: Metadata
    """Arguments of its call, always a single one."""


_QUOTED: Final = "`[^`\\n]+`"
_JOBS: Final = (
    ("run", "shell_exec", "command", rf"(?:run|execute)[: ]\s*(?P<what>{_QUOTED}|[^\n]+)"),
    ("fetch", "http_get", "url", r"fetch[: ]\s*(?P<what>https?://\S+?)[.,]*"),
    (
        "read",
        "read_file",
        "path",
        rf"(?:read|show me|open)[: ]\s*(?:the )?(?:file )?(?P<what>[^\s`]*[./][^\s`]*|{_QUOTED})",
    ),
    (
        "list",
        "list_files",
        "path",
        rf"list(?: the| all)*(?: files)?(?:[: ]\s*(?:in |of )?(?:the )?(?P<what>{_QUOTED}|\S+))?",
    ),
    ("search", "grep_files", "pattern", rf"search(?: the files)?(?: for)?[: ]\s*(?P<what>{_QUOTED}|[^\n]+)"),
)
"""Verb, tool, its parameter, and the pattern of a message for each kind of job."""


def find_job(text: str) -> StandInJob | None:
    """Return the job that a message asks for, None if it is not one."""
    for verb, tool, parameter, pattern in _JOBS:
        match = re.fullmatch(f"(?i)(?:please )?{pattern}", text.strip())
        if match:
            value = (match["what"] or ".").strip().strip("`" if tool == "shell_exec" else "`\"'")
            quoted = f"`{value}`" if " " in value and parameter == "path" else value
            return StandInJob(f"{verb}: {quoted}", tool, {parameter: value})
    return None


def spawn_call(job: StandInJob) -> PlannedCall:
    """Return the call that delegates a job to a task."""
    return "spawn_subagent", {"description": job.line, "input": job.line}


def parse_notification(text: str) -> str | None:
    """Return what the user should read of a task's notification, "" for nothing; None if the text is not a notification."""
    match = re.match(
        r"(?s)\[Task (?P<id>\S+) (?P<what>completed|failed|update|needs information)\]\n?(?P<text>.*)", text
    )
    if match is None:
        return None
    content = match["text"].strip()
    match match["what"]:
        case "completed":
            return _parse_response(content)
        case "failed":
            return "" if content.startswith("stopped by ") else f"The task failed: {content}"
        case "update":
            return content
        case _:
            return f"The task asks: {content}"


def _parse_response(text: str) -> str:
    """Return the text in the result of a completed task."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    response = value.get("response") if isinstance(value, Mapping) else None
    return str(response) if response else "The task is done; it had nothing to report."


# ------------------------------------------------------------------ inside a task


def is_task(request: ModelRequest) -> bool:
    """Return True if the request comes from a task: it has the tools of a subagent, which cannot reply."""
    names = {tool.name for tool in request.tools}
    return "reply" not in names and "notify" in names


def next_step(request: ModelRequest) -> tuple[str, tuple[PlannedCall, ...]]:
    """Return text and calls of a task's next step: first the call of its job, then a report of the result.

    A step without calls ends the task, and its text is the task's result. A later message to the task is a new job. Only the first
    line of the input is read: what follows is memory and other context, which is meant for a model.
    """
    first, last = request.turns[0], request.turns[-1]
    if not isinstance(first, UserTurn) or not isinstance(last, UserTurn):
        return "There is nothing to do.", ()
    if last.results and not last.text:
        return _report(request, last.results), ()
    lines = (last.text or first.text).strip().splitlines()
    job = find_job(lines[0]) if lines else None
    if job is None:
        text = "I am a stand-in without a language model: I can run, list, read, search and fetch, one thing a task."
        return text, ()
    if job.tool not in {tool.name for tool in request.tools}:
        return f"A task of this type may not use {job.tool}.", ()
    return f"I {job.line.partition(':')[0]} what was asked.", ((job.tool, job.arguments),)


def _report(request: ModelRequest, results: tuple[ToolResult, ...]) -> str:
    """Return a text about the results of the task's call."""
    before = request.turns[-2] if len(request.turns) > 1 else None
    names = {call.id: call.name for call in before.calls} if isinstance(before, AssistantTurn) else {}
    return "\n\n".join(_describe(names.get(result.call_id, result.name), result) for result in results)


def _describe(tool: str, result: ToolResult) -> str:
    """Return a tool's result as text for a person."""
    if result.is_error:
        return f"That did not work: {_shorten(result.content)}"
    try:
        value: Any = json.loads(result.content)
    except ValueError:
        return _shorten(result.content)
    if not isinstance(value, dict):
        return _shorten(str(value))
    describe = _DESCRIPTIONS.get(tool)
    return _shorten(describe(value) if describe is not None else json.dumps(value, ensure_ascii=False, indent=1))


def _describe_shell(value: dict[str, Any]) -> str:
    """Return the output of a command, and its exit code if that is not 0."""
    output = "\n".join(str(value[key]).rstrip() for key in ("stdout", "stderr") if value.get(key))
    code = value.get("exitCode")
    return (output or "(no output)") + (f"\n(exit code {code})" if code else "")


def _describe_file(value: dict[str, Any]) -> str:
    """Return a file's path and content."""
    return f"{value.get('path')}:\n{value.get('content')}"


def _describe_list(value: dict[str, Any]) -> str:
    """Return the names in a folder, one a line."""
    names = [f"{file['name']}{'/' if file.get('isDir') else ''}" for file in value.get("files", ())]
    return "\n".join(names) or "(nothing there)"


def _describe_matches(value: dict[str, Any]) -> str:
    """Return the matches of a search, one a line."""
    lines = [f"{hit['file']}:{hit['lineNumber']}: {str(hit['line']).strip()}" for hit in value.get("matches", ())]
    return "\n".join(lines) or "(no match)"


def _describe_page(value: dict[str, Any]) -> str:
    """Return a page's address, status and body."""
    return f"{value.get('url')} ({value.get('status')}):\n{value.get('body')}"


_DESCRIPTIONS: Final[Mapping[str, Callable[[dict[str, Any]], str]]] = {
    "shell_exec": _describe_shell,
    "read_file": _describe_file,
    "list_files": _describe_list,
    "grep_files": _describe_matches,
    "http_get": _describe_page,
}
"""By tool, the function that describes its result. The result of any other tool is shown as JSON."""


def _shorten(text: str) -> str:
    """Cut a long output; the report says how long it was."""
    return text if len(text) <= RESULT_LENGTH else f"{text[:RESULT_LENGTH]}… ({len(text):,} characters in all)"
