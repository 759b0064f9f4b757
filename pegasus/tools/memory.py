"""Tools for long-term memory: memory_list, memory_read, memory_write, memory_patch, memory_append."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import attrs

from pegasus.memory import Memory, MemoryRefused
from pegasus.messages import Json, Metadata
from pegasus.models.base import ToolSpec
from pegasus.storage import StorageError
from pegasus.tools.base import Effect, Tool, ToolContext, ToolError, parameters

_PATH: Final = {"type": "string", "description": "such as facts/user.md or episodes/2026-02.md"}
_TEXT: Final = {"type": "string"}

_LIST: Final = ToolSpec("memory_list", "List all memory files with their summaries and sizes.", parameters({}))
_READ: Final = ToolSpec("memory_read", "Read one memory file.", parameters({"path": _PATH}, "path"))
_WRITE: Final = ToolSpec(
    "memory_write",
    "Create or overwrite a memory file: `# Title`, a line `> Summary: …` of less than ten words, then the content.",
    parameters({"path": _PATH, "content": _TEXT}, "path", "content"),
)
_PATCH: Final = ToolSpec(
    "memory_patch",
    "Change a part of a memory file. old_str must be there exactly once; new_str is taken literally.",
    parameters({"path": _PATH, "old_str": _TEXT, "new_str": _TEXT}, "path", "old_str", "new_str"),
)
_APPEND: Final = ToolSpec(
    "memory_append",
    "Add an entry at the end of a memory file, which is made if there is none.",
    parameters(
        {
            "path": _PATH,
            "entry": _TEXT,
            "summary": {"type": "string", "description": "the file's new summary, less than ten words"},
        },
        *("path", "entry"),
    ),
)

_LESS: Final = (
    "Nothing shows the rest: the file was made longer by hand than memory files may be, and should be split by hand."
)


def memory_tools(memory: Memory) -> tuple[Tool, ...]:
    """The five tools over this memory."""

    async def list_all(given: Any) -> Json:
        files = await memory.list()
        return [{"path": file.path, "summary": file.summary, "size": file.size} for file in files]

    async def read(given: Any) -> Json:
        return {"path": given["path"], "content": await memory.read(given["path"])}

    async def write(given: Any) -> Json:
        return _written(given, await memory.write(given["path"], given["content"]))

    async def patch(given: Any) -> Json:
        return _written(given, await memory.patch(given["path"], given["old_str"], given["new_str"]))

    async def append(given: Any) -> Json:
        return _written(given, await memory.append(given["path"], given["entry"], given.get("summary")))

    return (
        _tool(_LIST, list_all, Effect.PURE),
        attrs.evolve(_tool(_READ, read, Effect.PURE), more=_LESS),
        _tool(_WRITE, write, Effect.IDEMPOTENT),
        _tool(_PATCH, patch, Effect.ONCE),
        _tool(_APPEND, append, Effect.ONCE),
    )


def _tool(spec: ToolSpec, do: Callable[[Any], Awaitable[Json]], effect: Effect) -> Tool:
    async def run(arguments: Metadata, context: ToolContext) -> Json:
        try:
            return await do(arguments)
        except (MemoryRefused, StorageError, OSError) as error:
            raise ToolError(str(error)) from error

    return Tool(spec, run, "memory", effect)


def _written(given: Any, size: int) -> Json:
    return {"path": given["path"], "size": size}
