"""What the model sees of the file tools, and how its arguments reach the work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pegasus.messages import Json, Metadata
from pegasus.models import ToolSpec
from pegasus.tools.base import Effect, Tool, ToolContext, parameters
from pegasus.tools.files import changing, reading, searching
from pegasus.tools.files.patterns import SYNTAX
from pegasus.tools.pieces import Work, in_pieces

_PATH: Final = {"type": "string", "description": "absolute, or from the workspace"}
_ENCODING: Final = {
    "type": "string",
    "description": "utf-8 if not given; any text encoding, or base64 for the bytes themselves",
}


def _text(description: str) -> dict[str, Json]:
    return {"type": "string", "description": description}


def _number(description: str, least: int) -> dict[str, Json]:
    return {"type": "integer", "minimum": least, "description": description}


def _flag(description: str) -> dict[str, Json]:
    return {"type": "boolean", "description": description}


_READ: Final = ToolSpec(
    "read_file",
    "Read a text file. A long one is given in parts: totalLines and truncated tell, offset and limit go on.",
    parameters(
        {
            "path": _PATH,
            "encoding": _ENCODING,
            "offset": _number("first line to read, counted from 0", 0),
            "limit": _number("how many lines", 1),
        },
        "path",
    ),
)
_WRITE: Final = ToolSpec(
    "write_file",
    "Create or replace a file with the given content; missing folders are made. It is replaced at once or not at all.",
    parameters(
        {"path": _PATH, "content": _text("all that the file will hold"), "encoding": _ENCODING}, "path", "content"
    ),
)
_LIST: Final = ToolSpec(
    "list_files",
    "List a folder: files and folders with their sizes.",
    parameters(
        {
            "path": _text("the folder; the workspace if not given"),
            "recursive": _flag("also what is in the folders below"),
            "pattern": _text(f"only names that match this regular expression ({SYNTAX})"),
        }
    ),
)
_DELETE: Final = ToolSpec(
    "delete_file",
    "Delete a file, or a folder with everything in it. Of a symbolic link, the link alone.",
    parameters({"path": _PATH}, "path"),
)
_MOVE: Final = ToolSpec(
    "move_file",
    "Move or rename a file or folder; missing folders are made. A file that has the new name is replaced.",
    parameters({"from": _PATH, "to": _text("the whole new name")}, "from", "to"),
)
_INFO: Final = ToolSpec(
    "get_file_info",
    "Whether a path exists, what it is, its size and when it was changed (UTC).",
    parameters({"path": _PATH}, "path"),
)
_EDIT: Final = ToolSpec(
    "edit_file",
    "Replace text in a file. old_string must be there exactly once, unless replace_all.",
    parameters(
        {
            "path": _PATH,
            "old_string": _text("the text as it is, white space included"),
            "new_string": _text("what takes its place, taken literally"),
            "replace_all": _flag("replace every place where it is"),
        },
        *("path", "old_string", "new_string"),
    ),
)
_GREP: Final = ToolSpec(
    "grep_files",
    f"Search files for a regular expression, line by line ({SYNTAX}). Binary files, .git, node_modules and the like are left out.",
    parameters(
        {
            "pattern": _text("the regular expression"),
            "path": _text("file or folder; the workspace if not given"),
            "include": _text("only files that fit this glob, such as *.py or src/**/*.{ts,tsx}"),
            "max_results": {**_number("lines to give at most; 50 if not given", 1), "maximum": 1000},
        },
        "pattern",
    ),
)

_LESS: Final = "List a folder below, or give a pattern."


def file_tools() -> tuple[Tool, ...]:
    """All of them. They need no more than their context."""
    return (
        _tool(_READ, Effect.PURE, _read, "Read on with offset and limit."),
        _tool(_WRITE, Effect.IDEMPOTENT, _write),
        _tool(_LIST, Effect.PURE, _list, _LESS),
        _tool(_DELETE, Effect.IDEMPOTENT, _delete),
        _tool(_MOVE, Effect.ONCE, _move),
        _tool(_INFO, Effect.PURE, _info),
        _tool(_EDIT, Effect.ONCE, _edit),
        _tool(_GREP, Effect.PURE, _grep, "Search a smaller folder, or for something more special."),
    )


def _tool(spec: ToolSpec, effect: Effect, begin: Callable[[Any, ToolContext], Work[Json]], more: str = "") -> Tool:
    async def run(arguments: Metadata, context: ToolContext) -> Json:
        return await in_pieces(begin, arguments, context)

    return Tool(spec, run, "file", effect, more)


def _read(given: Any, context: ToolContext) -> Work[Json]:
    return reading.read(context, given["path"], given.get("encoding"), given.get("offset"), given.get("limit"))


def _write(given: Any, context: ToolContext) -> Work[Json]:
    return changing.write(context, given["path"], given["content"], given.get("encoding"))


def _list(given: Any, context: ToolContext) -> Work[Json]:
    return searching.list_folder(context, given.get("path", "."), given.get("recursive", False), given.get("pattern"))


def _delete(given: Any, context: ToolContext) -> Work[Json]:
    return changing.delete(context, given["path"])


def _move(given: Any, context: ToolContext) -> Work[Json]:
    return changing.move(context, given["from"], given["to"])


def _info(given: Any, context: ToolContext) -> Work[Json]:
    return reading.info(context, given["path"])


def _edit(given: Any, context: ToolContext) -> Work[Json]:
    everywhere = given.get("replace_all", False)
    return changing.edit(context, given["path"], given["old_string"], given["new_string"], everywhere)


def _grep(given: Any, context: ToolContext) -> Work[Json]:
    path, include, most = given.get("path", "."), given.get("include"), given.get("max_results", 50)
    return searching.grep(context, given["pattern"], path, include, most)
