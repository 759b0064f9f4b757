"""The stand-in at work: the job that it understands, its next step in a task, and the demo.

A message that asks for a command becomes a task, whose input is the command again; in the task `task_step` runs it and then reports
the result.

The demo shows in about a minute a background task with visible steps, memory with undo, and how to try a crash. Everything in it is
real: the task is one like any other and its steps are calls of its tools, the fact goes through the memory tools into the log of
memory, and the commands that are shown work in the terminal of the person. The demo keeps nothing: how far it is, it reads in the
conversation, so it goes on after a `kill -9` as any work does.

    "demo" → spawn_subagent {"input": "demo"} → in the task: DEMO_STEPS, one call after the other
    → notification "[Task … completed]" with DEMO_DONE → memory_append, memory_write → the last words
"""

from __future__ import annotations

import json
import os
import re
from typing import Final, TypeAlias

from pegasus.host import command_name
from pegasus.messages import Json, Metadata
from pegasus.models.base import ModelError, ToolCall, ToolResult, UserTurn

_RESULT_LENGTH: Final = 1500
"""Characters of a tool's output that a reply shows. It fits into one message of the usual channels."""

PlannedCall: TypeAlias = tuple[str, Metadata]
"""Tool and arguments of a call. A reply without a channel goes to the newest message."""
Decision: TypeAlias = tuple[str, list[PlannedCall]]
"""A thought, and the calls in the order in which they are to be carried out. Without calls the work on the message ends."""


# ------------------------------------------------------------------ the job

JOB: Final = "shell_exec"
"""Tool of the job."""


def find_job(text: str) -> str | None:
    """Return the command that a message asks to run, None if it asks for something else.

    It accepts little: a message that is taken for a job by mistake would run a command that nobody wanted.
    Example: `find_job("please run uname -a")` is "uname -a", and so is `find_job("run: uname -a")`.
    """
    match = re.fullmatch(r"(?i)(?:please )?run[: ]\s*(\S[^\n]*)", text.strip())
    return match[1].strip().strip("`") if match else None


def task_step(first: str, last: UserTurn, calls: list[ToolCall], tools: set[str]) -> Decision:
    """Return text and calls of a task's next step: first the call of its job, then a report of the result.

    A step without calls ends the task, and its text is the task's result. A later message to the task is a new job. Only the first
    line of the input is read: what follows is memory and other context, which is meant for a model.
    """
    if first.strip().partition("\n")[0] == DEMO:
        return _demo_step(len(calls), tools)
    if last.results and not last.text:
        report = "\n\n".join(map(_describe, last.results))
        if any(map(_has_failed, last.results)):
            raise ModelError(report, kind="request")
        return report, []
    command = find_job((last.text or first).strip().partition("\n")[0])
    if command is None:
        return "I am a stand-in without a language model: I can run a command, one in a task.", []
    if JOB not in tools:
        return f"A task of this type may not use {JOB}.", []
    return "I run what was asked.", [(JOB, {"command": command})]


# ------------------------------------------------------------------ results of tools, for people


def _has_failed(result: ToolResult) -> bool:
    """Return whether the call did not do what was asked for: it has failed, or its command ended with another code than 0."""
    return result.is_error or bool((parse_object_or_none(result.content) or {}).get("exitCode"))


def _describe(result: ToolResult) -> str:
    """Return the result of a command as text for a person: its output, and its exit code if that is not 0."""
    value = parse_object_or_none(result.content)
    if result.is_error or value is None:
        return failure_text(result) if result.is_error else shorten(result.content)
    output = "\n".join(str(value[key]).rstrip() for key in ("stdout", "stderr") if value.get(key))
    code = value.get("exitCode")
    return shorten((output or "(no output)") + (f"\n(exit code {code})" if code else ""))


def parse_object_or_none(content: str) -> dict[str, Json] | None:
    """Return the JSON object in a text, None if it is something else."""
    try:
        value = json.loads(content)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def failure_text(result: ToolResult) -> str:
    """Return what is said of a call that has failed, without the mark that is meant for models."""
    return f"That did not work: {shorten(result.content.removeprefix('Error: '))}"


def shorten(text: str) -> str:
    """Cut a long output; the report says how long it was."""
    return text if len(text) <= _RESULT_LENGTH else f"{text[:_RESULT_LENGTH]}… ({len(text):,} characters in all)"


# ------------------------------------------------------------------ the demo

DEMO: Final = "demo"
"""Message that starts the demo, and input of its task."""
DEMO_DONE: Final = "The demo task is done"
"""Beginning of the task's result."""
FACT_PATH: Final = "facts/demo.md"
"""Memory file that the demo writes and forgets."""
_FACT: Final = "The demo ran here, and this fact is taken back at once."
_REPORT: Final = "demo/report.md"

DEMO_STEPS: Final[tuple[tuple[str, str, Metadata], ...]] = (
    ("I look at this machine.", "shell_exec", {"command": "uname -sr; date"}),
    ("I look around in the workspace.", "list_files", {"path": "."}),
    ("I wait, so that you can watch.", "sleep", {"duration": 6}),
    (
        "I write a report.",
        "write_file",
        {"path": _REPORT, "content": "# Report\n\nstep: looked around\nstep: waited\n"},
    ),
    ("I say how far I am.", "notify", {"message": f"The demo is half done: the report is in {_REPORT}."}),
    ("I wait once more.", "sleep", {"duration": 6}),
    ("I search my report.", "grep_files", {"pattern": "step", "path": "demo"}),
    ("I read what I wrote.", "read_file", {"path": _REPORT}),
)
"""Thought, tool and arguments of each step. With the answer they are one less than the model calls that a task may make."""

DEMO_INTRODUCTION: Final = (
    "Demo, about a minute. A background task works in steps: it runs a command, waits, writes and searches a file. "
    "Watch its line, or see `/tasks`; you can go on talking to me meanwhile."
)


def begin_demo() -> list[PlannedCall]:
    """Return the calls that start the demo: a reply, and the task."""
    return [
        ("reply", {"text": DEMO_INTRODUCTION}),
        ("spawn_subagent", {"description": "demo: eight small steps", "input": DEMO}),
    ]


def _demo_result() -> str:
    """Return the result of the task."""
    return f"{DEMO_DONE}: {len(DEMO_STEPS)} steps, and {_REPORT} in the workspace is what is left of it."


def continue_demo(text: str) -> list[PlannedCall]:
    """Return the calls for the result of the task: it is passed on, and a fact is remembered."""
    return [
        ("reply", {"text": f"{text}\n\nMemory: I remember a fact, and take it back."}),
        ("memory_append", {"path": FACT_PATH, "entry": _FACT, "why": "the demo"}),
    ]


def demo_memory_call(tool: str) -> PlannedCall:
    """Return the call behind a change of the demo's fact by this tool: it is forgotten, then the last words are said."""
    if tool == "memory_append":
        return "memory_write", {"path": FACT_PATH, "content": "", "why": "the demo takes it back"}
    command = command_name()
    text = (
        f"Remembered and forgotten. `{command} memory log` shows both changes with their author and reason, and "
        f"`{command} memory undo N` takes back any of them.\n\n"
        "Recovery: say `demo` again, and while its task works, type in another terminal:\n\n"
        f"```sh\nkill -9 {os.getpid()}\n{command}\n```\n\n"
        "The task goes on with the step it was at, you get its result, and nothing is done twice."
    )
    return "reply", {"text": text}


def _demo_step(number: int, tools: set[str]) -> Decision:
    """Return the step of the demo's task behind so many calls; a tool that the task may not use ends it."""
    if number >= len(DEMO_STEPS):
        return _demo_result(), []
    thought, tool, arguments = DEMO_STEPS[number]
    return (thought, [(tool, arguments)]) if tool in tools else (f"A task of this type may not use {tool}.", [])
