"""The demo of the stand-in: in about a minute, a background task with visible steps, memory with undo, and how to try a crash.

Everything in it is real: the task is one like any other and its steps are calls of its tools, the fact goes through the memory tools
into the log of memory, and the commands that are shown work in the terminal of the person. The demo keeps nothing: how far it is, it
reads in the conversation, so it goes on after a `kill -9` as any work does.

    "demo" → spawn_subagent {"input": "demo"} → in the task: STEPS, one call after the other
    → notification "[Task … completed]" with DONE → memory_append, memory_write → the last words
"""

from __future__ import annotations

import os
from typing import Final

from pegasus.host import command_name
from pegasus.messages import Metadata

DEMO: Final = "demo"
"""Message that starts the demo, and input of its task."""
DONE: Final = "The demo task is done"
"""Beginning of the task's result."""
FACT_PATH: Final = "facts/demo.md"
"""Memory file that the demo writes and forgets."""
_FACT: Final = "The demo ran here, and this fact is taken back at once."
_REPORT: Final = "demo/report.md"

STEPS: Final[tuple[tuple[str, str, Metadata], ...]] = (
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

INTRODUCTION: Final = (
    "Demo, about a minute. A background task works in steps: it runs a command, waits, writes and searches a file. "
    "Watch its line, or see `/tasks`; you can go on talking to me meanwhile."
)


def begin() -> list[tuple[str, Metadata]]:
    """Return the calls that start the demo: a reply, and the task."""
    return [
        ("reply", {"text": INTRODUCTION}),
        ("spawn_subagent", {"description": "demo: eight small steps", "input": DEMO}),
    ]


def result_of_task() -> str:
    """Return the result of the task."""
    return f"{DONE}: {len(STEPS)} steps, and {_REPORT} in the workspace is what is left of it."


def on_result(text: str) -> list[tuple[str, Metadata]]:
    """Return the calls for the result of the task: it is passed on, and a fact is remembered."""
    return [
        ("reply", {"text": f"{text}\n\nMemory: I remember a fact, and take it back."}),
        ("memory_append", {"path": FACT_PATH, "entry": _FACT, "why": "the demo"}),
    ]


def on_memory(tool: str) -> tuple[str, Metadata]:
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
