"""The stand-in and background work: what it delegates, how it does such a job itself, and what it says when one is done.

So that a newcomer sees all of it without a key: a task, its tools, its result. A job is one line: a verb and what it is about.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from pegasus.messages import Metadata
from pegasus.models.base import AssistantTurn, ModelRequest, ToolResult, UserTurn

RESULT_LENGTH: Final = 1500
"""Characters of a tool's output that the stand-in's result may hold."""

Call = tuple[str, Metadata]


@attrs.frozen
class Job:
    """A line of work. tool, arguments: the one call it takes."""

    line: str
    tool: str
    arguments: Metadata


def _quoted(path: str) -> str:
    return f"`{path}`" if " " in path else path


def _run(match: re.Match[str]) -> Job:
    command = match["what"].strip().strip("`")
    return Job(f"run: {command}", "shell_exec", {"command": command})


def _read(match: re.Match[str]) -> Job:
    path = match["what"].strip().strip("`\"'")
    return Job(f"read: {_quoted(path)}", "read_file", {"path": path})


def _list(match: re.Match[str]) -> Job:
    path = (match["what"] or ".").strip().strip("`\"'")
    return Job(f"list: {_quoted(path)}", "list_files", {"path": path})


def _fetch(match: re.Match[str]) -> Job:
    url = match["what"].strip().rstrip(".,")
    return Job(f"fetch: {url}", "http_get", {"url": url})


def _search(match: re.Match[str]) -> Job:
    pattern = match["what"].strip().strip("`\"'")
    return Job(f"search: {pattern}", "grep_files", {"pattern": pattern})


_QUOTED = "`[^`\\n]+`"
_PATTERNS: Final[tuple[tuple[str, Callable[[re.Match[str]], Job]], ...]] = (
    (rf"(?:run|execute)[: ]\s*(?P<what>{_QUOTED}|[^\n]+)", _run),
    (r"fetch[: ]\s*(?P<what>https?://\S+)", _fetch),
    (rf"(?:read|show me|open)[: ]\s*(?:the )?(?:file )?(?P<what>[^\s`]*[./][^\s`]*|{_QUOTED})", _read),
    (rf"list(?: the| all)*(?: files)?(?:[: ]\s*(?:in |of )?(?:the )?(?P<what>{_QUOTED}|\S+))?", _list),
    (rf"search(?: the files)?(?: for)?[: ]\s*(?P<what>{_QUOTED}|[^\n]+)", _search),
)
_JOBS: Final = tuple((re.compile(f"(?:please )?{text}$", re.IGNORECASE), make) for text, make in _PATTERNS)
_NOTIFICATION: Final = re.compile(
    r"\[Task (?P<id>\S+) (?P<what>completed|failed|update|needs information)\]\n?(?P<text>.*)", re.DOTALL
)


def job_in(text: str) -> Job | None:
    """The work that a message asks for, if it is one of the kinds that the stand-in knows."""
    for pattern, make in _JOBS:
        match = pattern.match(text.strip())
        if match:
            return make(match)
    return None


def spawn(job: Job) -> Call:
    """The call that delegates it."""
    return "spawn_subagent", {"description": job.line, "input": job.line}


def notification_in(text: str) -> str | None:
    """What the user is to hear of a task's notification, "" for nothing; None if the text is none."""
    match = _NOTIFICATION.match(text)
    if match is None:
        return None
    said = match["text"].strip()
    match match["what"]:
        case "completed":
            return _response(said)
        case "failed":
            return "" if said.startswith("stopped by ") else f"The task failed: {said}"
        case "update":
            return said
        case _:
            return f"The task asks: {said}"


def _response(text: str) -> str:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    response = value.get("response") if isinstance(value, Mapping) else None
    return str(response) if response else "The task is done; it had nothing to report."


# ------------------------------------------------------------------ inside a task


def is_task(request: ModelRequest) -> bool:
    """Whether the stand-in is a subagent here: it cannot speak, but it can act."""
    names = {tool.name for tool in request.tools}
    return "reply" not in names and "notify" in names


def work(request: ModelRequest) -> tuple[str, tuple[Call, ...]]:
    """The next step of a task: the one call that the job takes, then a report of what came of it."""
    first, last = request.turns[0], request.turns[-1]
    if not isinstance(first, UserTurn) or not isinstance(last, UserTurn):
        return "There is nothing to do.", ()
    asked = last.text or first.text
    if last.results and not last.text:
        return _report(request, last.results), ()
    job = job_in(asked.strip().splitlines()[0]) if asked.strip() else None
    names = {tool.name for tool in request.tools}
    if job is None:
        return (
            "I am a stand-in without a language model: I can run, list, read, search and fetch, one thing a task.",
            (),
        )
    if job.tool not in names:
        return f"A task of this type may not use {job.tool}.", ()
    return f"I {job.line.partition(':')[0]} what was asked.", ((job.tool, job.arguments),)


def _report(request: ModelRequest, results: tuple[ToolResult, ...]) -> str:
    before = request.turns[-2] if len(request.turns) > 1 else None
    names = {call.id: call.name for call in before.calls} if isinstance(before, AssistantTurn) else {}
    return "\n\n".join(_told(names.get(result.call_id, result.name), result) for result in results)


def _told(tool: str, result: ToolResult) -> str:
    if result.is_error:
        return f"That did not work: {_cut(result.content)}"
    try:
        value: Any = json.loads(result.content)
    except ValueError:
        return _cut(result.content)
    if not isinstance(value, dict):
        return _cut(str(value))
    words = _WORDS.get(tool)
    return _cut(words(value) if words is not None else json.dumps(value, ensure_ascii=False, indent=1))


def _shell_words(value: dict[str, Any]) -> str:
    out = "\n".join(str(value[key]).rstrip() for key in ("stdout", "stderr") if value.get(key))
    code = value.get("exitCode")
    return (out or "(no output)") + (f"\n(exit code {code})" if code else "")


def _file_words(value: dict[str, Any]) -> str:
    return f"{value.get('path')}:\n{value.get('content')}"


def _list_words(value: dict[str, Any]) -> str:
    names = [f"{file['name']}{'/' if file.get('isDir') else ''}" for file in value.get("files", ())]
    return "\n".join(names) or "(nothing there)"


def _grep_words(value: dict[str, Any]) -> str:
    lines = [f"{hit['file']}:{hit['lineNumber']}: {str(hit['line']).strip()}" for hit in value.get("matches", ())]
    return "\n".join(lines) or "(no match)"


def _page_words(value: dict[str, Any]) -> str:
    return f"{value.get('url')} ({value.get('status')}):\n{value.get('body')}"


_WORDS: Final[Mapping[str, Callable[[dict[str, Any]], str]]] = {
    "shell_exec": _shell_words,
    "read_file": _file_words,
    "list_files": _list_words,
    "grep_files": _grep_words,
    "http_get": _page_words,
}


def _cut(text: str) -> str:
    return text if len(text) <= RESULT_LENGTH else f"{text[:RESULT_LENGTH]}… ({len(text):,} characters in all)"
