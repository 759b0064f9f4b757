"""Types of task: the tools that a task may use, the model that thinks for it, and its prompt (a SUBAGENT.md file).

A single task may narrow its type (`with_overrides`): another model, fewer tools. The overrides are part of the task's metadata
and so of its log, which is why a task still has them when it is resumed after a restart. Events from outside may not set
them (`without_overrides`): otherwise a webhook could choose an expensive model or widen what it is shown.

A type is checked when it is read, not when it is used. A bad file costs its own type only: the others are loaded, and the problem
is reported with the name of the file. Names of tools are not checked, because a file may be written for a version with more tools.

The list of tools is applied twice, when the model is shown its tools and when it calls one. The second check matters: a model may
call a tool that it knows from elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import attrs

from pegasus import frontmatter
from pegasus.messages import Json, Metadata
from pegasus.tool_patterns import is_named
from pegasus.wire import kind

BUILT_IN_TYPES: Final = Path(__file__).parents[1] / "subagents"
"""Folder of the types that Pegasus brings along."""
FILE: Final = "SUBAGENT.md"
"""Name of the file that defines a type; the name of its folder is the default name of the type."""
DEFAULT_TASK_TYPE: Final = "general"
"""Type of a task that names none; it is listed first."""
TYPE_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
"""Names that a type may have."""
LARGEST: Final = 256 << 10
"""Bytes that a SUBAGENT.md may have. It is part of every request to a model, so a larger one is a mistake."""
OVERRIDES: Final = "overrides"
"""Key of a task's metadata under which its overrides are kept: {"model": text, "tools": [names]}, each of them optional."""

_KEYS = ("name", "description", "tools", "model")
"""Keys of the front matter; others are reported and ignored."""


@attrs.frozen(eq=False, repr=False)
class TaskType:
    """A type of task."""

    name: str
    """1 to 64 of a-z, 0-9 and "-"."""
    description: str
    """One sentence by which the delegating model chooses a type."""
    tools: tuple[str, ...] | None
    """Names or patterns ("github__*") of the tools that a task may use; None = all."""
    model: str
    """"<provider>/<model>" or a role; "" = the role `subagent`."""
    prompt: str
    """Body of the file."""
    within: tuple[str, ...] | None = None
    """Override of one task: names or patterns that limit `tools` further; None = no limit."""

    @property
    def model_name(self) -> str:
        """Name or role of the model that thinks for a task of this type."""
        return self.model or "subagent"

    def allows(self, tool: str, arguments: Metadata | None = None) -> bool:
        """Return whether a task may use the tool. arguments: those of a call; None for the list that the model sees."""
        return all(is_named(patterns, tool, arguments) for patterns in (self.tools, self.within))


TaskTypes: TypeAlias = Mapping[str, TaskType]
"""Types by their names, the built-in first."""


# ------------------------------------------------------------------ files


def load_task_types(*folders: Path) -> tuple[TaskTypes, tuple[str, ...]]:
    """Read `<name>/SUBAGENT.md` below each folder. A type of a later folder replaces an earlier one of its name, in its place.

    Returns the types, and a sentence for each problem. A bad file is left out and named; a missing folder is empty.
    """
    types: dict[str, TaskType] = {}
    problems: list[str] = []
    for folder in folders:
        for file in sorted(folder.glob(f"*/{FILE}"), key=lambda file: (file.parent.name != DEFAULT_TASK_TYPE, file)):
            try:
                found, warnings = _read_type(file)
            except (OSError, ValueError) as error:
                problems.append(f"{file}: {error}; this type is left out")
                continue
            types[found.name] = found
            problems += [f"{file}: {warning}" for warning in warnings]
    return types, tuple(problems)


def _read_type(file: Path) -> tuple[TaskType, list[str]]:
    """Read and parse a file. One byte more than allowed is read, so that a huge file is refused and not loaded."""
    with file.open("rb") as stream:
        data = stream.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise ValueError(f"it is larger than {LARGEST >> 10} kB")
    return parse_task_type(data.decode(), file.parent.name)


def parse_task_type(text: str, folder: str) -> tuple[TaskType, list[str]]:
    """Parse the text of a SUBAGENT.md. folder: name of its folder, which is the default name of the type.

    Returns the type and warnings. Raises ValueError that says what was found and what is allowed.
    """
    front, body = frontmatter.split(text)
    warnings = [f"unknown key {key!r} (known: {', '.join(_KEYS)})" for key in front if key not in _KEYS]
    name = _parse_text(front, "name") or folder
    if not TYPE_NAME.fullmatch(name):
        raise ValueError(f"name {name!r}: allowed are 1 to 64 of a-z, 0-9 and -, not beginning with -")
    description = _parse_text(front, "description")
    if not description:
        warnings.append("no description: nobody will know what it is for")
    if not body:
        raise ValueError("there is nothing after the front matter; the body is the prompt")
    return TaskType(name, description, _parse_tools(front.get("tools")), _parse_text(front, "model"), body), warnings


def _parse_text(front: Mapping[str, Json], key: str) -> str:
    """Return a text of the front matter on one line, "" if it is missing. Raises ValueError."""
    value = front.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ValueError(f"{key} must be a text, found {kind(value)}")
    return " ".join(value.split())


def _parse_tools(value: Json) -> tuple[str, ...] | None:
    """Return the tools of the front matter, None for all of them. Raises ValueError."""
    if value is None:
        return None
    if isinstance(value, str):
        names = [name.strip() for name in value.split(",")]
    elif isinstance(value, list) and all(isinstance(name, str) for name in value):
        names = [str(name).strip() for name in value]
    else:
        raise ValueError(f'tools must be "*" or names with commas between, found {kind(value)}')
    names = [name for name in names if name]
    return None if "*" in names else tuple(names)


# ------------------------------------------------------------------ overrides of one task


def with_overrides(metadata: Metadata, model: str, tools: Sequence[str] | None) -> Metadata:
    """Return the metadata of a task with its overrides. model "" and tools None: as its type has them."""
    found: dict[str, Json] = {}
    if model:
        found["model"] = model
    if tools is not None:
        found["tools"] = list(tools)
    return {**metadata, OVERRIDES: found} if found else metadata


def without_overrides(metadata: Metadata) -> Metadata:
    """Return the metadata without overrides, for events from outside."""
    return {key: value for key, value in metadata.items() if key != OVERRIDES}


def apply_overrides(task_type: TaskType, metadata: Metadata) -> TaskType:
    """Return the type as this task has it. Tools can only become fewer; a list that cannot be read allows none.

    metadata: from the log of the task, so it may have been written by another version or edited by hand. Unreadable limits are
    treated as the strictest ones, because the submitter wanted a limit. An unreadable model is ignored.
    """
    found: Any = metadata.get(OVERRIDES)
    if found is None:
        return task_type
    if not isinstance(found, Mapping):
        return attrs.evolve(task_type, within=())
    model, tools = found.get("model"), found.get("tools")
    if tools is not None and not (isinstance(tools, list | tuple) and all(isinstance(name, str) for name in tools)):
        tools = ()
    return attrs.evolve(
        task_type,
        model=model if isinstance(model, str) and model else task_type.model,
        within=None if tools is None else tuple(tools),
    )
