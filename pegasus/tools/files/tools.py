"""Descriptions of the file tools for the model, and the way from its arguments to the work.

The descriptions are all that a model knows of a tool, so they name what it cannot guess: where
relative paths start, that a write replaces the whole file, which regular expressions are possible,
and how to get the rest of a long result. They are short, because they are part of every request.

The work itself is in `reading`, `changing` and `searching`, as functions that take plain Python values and
know nothing of schemas. They block, so they run in a thread, and a thread cannot be interrupted. Therefore they
call `trio.from_thread.check_cancelled` between their steps: it raises Cancelled if the call was cancelled, and
their `finally` and `with` blocks clean up as usual. Work on data of any size does so about once per megabyte,
which bounds the time from a cancel to the end of the work.

The effects decide what happens after a crash. A write or a deletion may be repeated, since the second run
leaves the same state. An edit or a move may not: the second run would find another text, or nothing to move,
and report a failure for something that succeeded.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import trio

from pegasus.messages import Json, Metadata
from pegasus.models import ToolSpec
from pegasus.outside import Untrusted
from pegasus.tools.base import Effect, Reach, Tool, ToolContext, parameters
from pegasus.tools.files import changing, reading, searching
from pegasus.tools.files.searching import PATTERN_SYNTAX

_PATH: Final = {"type": "string", "description": "absolute, or from the workspace"}
"""Schema of a path; `files.paths` says which are allowed."""
_ENCODING: Final = {
    "type": "string",
    "description": "utf-8 if not given; any text encoding, or base64 for the bytes themselves",
}
"""Schema of an encoding, with the pretended one for bytes."""


def _text(description: str) -> dict[str, Json]:
    """Return the schema of a text."""
    return {"type": "string", "description": description}


def _number(description: str, minimum: int) -> dict[str, Json]:
    """Return the schema of a whole number."""
    return {"type": "integer", "minimum": minimum, "description": description}


def _flag(description: str) -> dict[str, Json]:
    """Return the schema of a boolean."""
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
"""Reads a part when offset or limit are given."""
_WRITE: Final = ToolSpec(
    "write_file",
    "Create or replace a file with the given content; missing folders are made. It is replaced at once or not at all.",
    parameters(
        {"path": _PATH, "content": _text("all that the file will hold"), "encoding": _ENCODING}, "path", "content"
    ),
)
"""The whole content is given, so that a repeated call has the same result."""
_LIST: Final = ToolSpec(
    "list_files",
    "List a folder: files and folders with their sizes.",
    parameters(
        {
            "path": _text("the folder; the workspace if not given"),
            "recursive": _flag("also what is in the folders below"),
            "pattern": _text(f"only names that match this regular expression ({PATTERN_SYNTAX})"),
        }
    ),
)
"""Sizes are part of the listing, as models choose by them what to read."""
_DELETE: Final = ToolSpec(
    "delete_file",
    "Delete a file, or a folder with everything in it. Of a symbolic link, the link alone.",
    parameters({"path": _PATH}, "path"),
)
"""The model must know that a link's target stays."""
_MOVE: Final = ToolSpec(
    "move_file",
    "Move or rename a file or folder; missing folders are made. A file that has the new name is replaced.",
    parameters({"from": _PATH, "to": _text("the whole new name")}, "from", "to"),
)
"""`to` is the new name and not the folder to put it into, as with mv; models mix these up."""
_INFO: Final = ToolSpec(
    "get_file_info",
    "Whether a path exists, what it is, its size and when it was changed (UTC).",
    parameters({"path": _PATH}, "path"),
)
"""Works for paths that do not exist."""
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
"""The condition of exactly one place is stated first, because most failures come from it."""
_GREP: Final = ToolSpec(
    "grep_files",
    f"Search files for a regular expression, line by line ({PATTERN_SYNTAX}). "
    "Binary files, .git, node_modules and the like are left out.",
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
"""Names the syntax, since patterns with lookaround would be refused."""

_SMALLER_LISTING: Final = "List a folder below, or give a pattern."
"""Advice of a cut result, for list_files."""
_SMALLER_SEARCH: Final = "Search a smaller folder, or for something more special."
"""The same for grep_files."""
_READ_ON: Final = "Read on with offset and limit."
"""The same for read_file."""


HURRY_AFTER: Final = 0.75
"""Part of the time until the deadline after which a search or a count returns what it has."""


def file_tools() -> tuple[Tool, ...]:
    """Return all file tools. The folders that they may touch are in the context of each call.

    For example:

        tools = {tool.spec.name: tool for tool in file_tools()}
        await tools["read_file"].run({"path": "notes.txt"}, context)
    """
    return (
        _tool(_READ, Effect.PURE, reading.read, _READ_ON, source=Untrusted.FILE, may_end_early=True),
        _tool(_WRITE, Effect.IDEMPOTENT, changing.write),
        _tool(_LIST, Effect.PURE, searching.list_folder, _SMALLER_LISTING, source=Untrusted.FILE, may_end_early=True),
        _tool(_DELETE, Effect.IDEMPOTENT, changing.delete),
        _tool(_MOVE, Effect.ONCE, _move),
        _tool(_INFO, Effect.PURE, reading.info),
        _tool(_EDIT, Effect.ONCE, changing.edit),
        _tool(_GREP, Effect.PURE, searching.grep, _SMALLER_SEARCH, source=Untrusted.FILE, may_end_early=True),
    )


def _tool(
    spec: ToolSpec,
    effect: Effect,
    work: Callable[..., Json],
    more: str = "",
    *,
    source: Untrusted | None = None,
    may_end_early: bool = False,
) -> Tool:
    """Return a tool that runs `work(context, **arguments)` in a thread.

    The parameters of `work` have the names of the arguments. The executor has checked these
    against the schema: required ones are present, all are of their type, and optional ones are
    absent instead of null, so the defaults of `work` apply.

    source: label of what it returns. may_end_early: `work` takes `until` as well, the moment when it is to return
    what it has instead of being cancelled with nothing.
    """

    async def run(arguments: Metadata, context: ToolContext) -> Json:
        """Do the work in a thread, since disks may be slow.

        Cancelled: the work is waited for until it ends, or looks whether the call was cancelled (`check_cancelled`). So
        nothing of it goes on unseen.
        """
        arguments = dict(arguments)
        if may_end_early:
            # A thread cannot read the deadline of the call, so it is handed over as a moment of its own clock.
            left = trio.current_effective_deadline() - trio.current_time()
            arguments["until"] = time.monotonic() + left * HURRY_AFTER
        return await trio.to_thread.run_sync(partial(work, context, **arguments))

    reach = Reach.INSIDE if effect is Effect.PURE else Reach.WORKSPACE
    return Tool(spec, run, "file", effect, more, reach, source)


def _move(context: ToolContext, **arguments: Any) -> Json:
    """Move a file; `from` cannot be the name of a parameter."""
    return changing.move(context, arguments["from"], arguments["to"])
