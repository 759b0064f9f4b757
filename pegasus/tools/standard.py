"""The tools and the tool context of an installation, made from its settings, and the named sets of tools.

This is the only file that knows all tools. The sets are tuples of names, so that whoever builds a
set of tools and whoever describes it (a SUBAGENT.md, a listing on the command line) mean the same;
a test compares them with the tools that exist.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from pegasus.formatting import CHARACTERS_PER_TOKEN
from pegasus.memory import Memory
from pegasus.messages import ChannelInfo, Json
from pegasus.models import ToolSpec
from pegasus.sandbox import NO_SANDBOX, Sandbox
from pegasus.settings import LiveValue, ToolSettings
from pegasus.tools.base import Tool, ToolContext
from pegasus.tools.basic import basic_tools
from pegasus.tools.files import real_folders
from pegasus.tools.memory import memory_tools

RESULT_SHARE: Final = 0.05
"""Part of the model's context window that one result may fill: twenty of them fill it."""
MIN_RESULT: Final = 4_000
"""Characters that a result may have however small the window is."""


def standard_tools(
    settings: ToolSettings,
    memory: Memory,
    clock: Callable[[], int],
    sandbox: LiveValue[Sandbox] = LiveValue(NO_SANDBOX),
    archive_prefix_of: Callable[[ChannelInfo | None], str] = lambda chat: "",
) -> tuple[Tool, ...]:
    """Return the tools that tasks work with, except those of the task system itself.

    clock: returns the wall clock in ms since the epoch. sandbox: the walls around commands. archive_prefix_of: as for `memory_tools`.
    """
    # Tasks begin behind the ready line.
    from pegasus.tools.background import background_tools
    from pegasus.tools.files import file_tools
    from pegasus.tools.shell import environment_tools, shell_tools
    from pegasus.tools.web import AddressGuard, download_tool, fetch_tools, page_tool, web_search

    guard = AddressGuard(settings.allowed_hosts, only=settings.web_hosts)
    return (
        *basic_tools(clock),
        *environment_tools(),
        *file_tools(),
        page_tool(guard),
        *fetch_tools(guard),
        download_tool(guard, settings.max_download_mb << 20),
        web_search(settings.web_search, os.environ),
        *shell_tools(sandbox=sandbox),
        *background_tools(sandbox=sandbox),
        *memory_tools(memory, archive_prefix_of),
    )


def result_limit(context_window: int) -> int:
    """Return the characters that the result of a call may have, for a model with this window in tokens."""
    return max(MIN_RESULT, int(context_window * RESULT_SHARE * CHARACTERS_PER_TOKEN))


def base_context(
    workspace: Path,
    allowed_paths: Sequence[str],
    context_window: int,
    closed_paths: Sequence[Path] = (),
    *,
    guests: Path | None = None,
    guest_bytes: int = 0,
) -> ToolContext:
    """Return the context from which the context of each call is derived: `attrs.evolve(base, task_id=…, key=…, env=…)`.

    allowed_paths: as in the settings. [] allows the workspace only, ["/"] everything; relative
    paths start at the workspace. context_window: the model's, in tokens. It bounds the length of
    results. closed_paths: files and folders that are never allowed, but the workspace in them. guests: folder with one
    for each guest. guest_bytes: that such a folder may hold. Reads the file system briefly, to resolve links in the folders.
    """
    [real_workspace] = real_folders((str(workspace),), workspace)
    # No setting means the workspace and nothing else, never everything.
    allowed = real_folders(allowed_paths, workspace) if allowed_paths else (real_workspace,)
    closed = real_folders([str(path) for path in closed_paths], workspace)
    return ToolContext(
        workspace=real_workspace,
        allowed_paths=allowed,
        closed_paths=closed,
        max_result=result_limit(context_window),
        guests=None if guests is None else real_folders((str(guests),), workspace)[0],
        guest_bytes=guest_bytes,
    )


# ------------------------------------------------------------------ named sets

MEMORY_TOOLS: Final = (
    *("memory_list", "memory_read", "memory_search"),
    *("memory_write", "memory_patch", "memory_append"),
)
"""Tools of `memory`."""

ALL_TASK_TOOLS: Final = (
    *("current_time", "sleep", "get_env", "set_env"),
    *("read_file", "write_file", "list_files", "delete_file"),
    *("move_file", "get_file_info", "edit_file", "grep_files", "save_attachment"),
    *("web_fetch", "http_get", "http_post", "http_request", "download", "web_search"),
    *("shell_exec", "run_python"),
    *("command_start", "command_output", "command_input", "command_stop", "command_list"),
    *("json_parse", "json_stringify", "base64_encode", "base64_decode"),
    *MEMORY_TOOLS,
    *("task_list", "task_replay", "notify"),  # of the task system itself, defined in `pegasus.tasks`
)
"""Tools of a task of type general."""

REFLECTION_TOOLS: Final = ("memory_read", "memory_write", "memory_patch", "memory_append")
"""Tools for the reflection on a finished task. The prompt already lists memory, so memory_list is
not needed."""

MAIN_AGENT_TOOLS: Final = (
    *("current_time", *MEMORY_TOOLS, "task_list", "task_status", "task_replay", "session_archive_read"),
    *("spawn_subagent", "resume_task", "reply", "use_skill", "cron", "propose_persona_change"),
    *("send_file", "speak"),
)
"""Tools of the Main Agent. It has none for files, commands or the web: tasks do such work, so that
it can always answer."""


# ------------------------------------------------------------------ lean tools of tasks
# Fewer tools with shorter schemas, for a model with a small context window. The schemas of all tools of a task take about 3,300
# tokens, most of a window of 4,096; the lean ones take 700. A lean schema is made from the full one: the first sentence of the
# description, the parameters that are required, and those that SHOWN_WHEN_LEAN names. Tools that are left out can still be called.
# Tools that an installation adds stay as they are, since nobody here knows what matters in them.

SHOWN_WHEN_LEAN: Final[Mapping[str, tuple[str, ...]]] = {
    "read_file": ("offset",),
    "write_file": (),
    "edit_file": (),
    "list_files": ("path",),
    "grep_files": ("path",),
    "web_fetch": ("offset",),
    "web_search": (),
    "shell_exec": (),
    "memory_search": (),
    "notify": (),
}
"""Tools that are shown, with the optional parameters that are."""


def lean_task_specs(specs: Iterable[ToolSpec]) -> tuple[ToolSpec, ...]:
    """Return the lean form of a task's tools, in the same order.

    Example: `lean_task_specs([read_file, get_env])` has only `read_file`, with the parameters `path` and `offset`.
    """
    return tuple(
        _shorten(spec, SHOWN_WHEN_LEAN[spec.name]) if spec.name in SHOWN_WHEN_LEAN else spec
        for spec in specs
        if spec.name in SHOWN_WHEN_LEAN or spec.name not in ALL_TASK_TOOLS
    )


def _shorten(spec: ToolSpec, optional: tuple[str, ...]) -> ToolSpec:
    """Return a tool with the first sentence of its description, its required parameters, and these optional ones.

    The schema of a call stays strict in what it requires. Parameters that are not shown are accepted all the same,
    since arguments are checked against the full schema.
    """
    properties, required = spec.parameters["properties"], spec.parameters.get("required", [])
    assert isinstance(properties, dict)  # noqa: S101 - as `parameters` makes it
    assert isinstance(required, list)  # noqa: S101
    kept: dict[str, Json] = {
        name: schema for name, schema in properties.items() if name in required or name in optional
    }
    sentence = f"{spec.description.partition('. ')[0].rstrip('.')}."
    return ToolSpec(spec.name, sentence, {"type": "object", "properties": kept, "required": required})
