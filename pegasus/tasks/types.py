"""Kinds of task: which tools one may use, which model thinks, what its prompt says (SUBAGENT.md, interfaces section 7)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

import attrs

from pegasus import frontmatter
from pegasus.messages import Json
from pegasus.wire import kind

BUILT_IN_TYPES = Path(__file__).parent / "subagents"
FILE = "SUBAGENT.md"
DEFAULT = "general"
"""The type of a task that names none; it is listed first."""
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
LARGEST = 256 << 10
"""Bytes a SUBAGENT.md may have."""

_KEYS = ("name", "description", "tools", "model")


@attrs.frozen
class TaskType:
    """tools: names or patterns ("github__*"); None = all. model: "<provider>/<model>" or a role, "" = the role subagent.

    within: what one task may use of these, None = all of them (`pegasus.tasks.overrides`).
    """

    name: str
    description: str
    tools: tuple[str, ...] | None
    model: str
    prompt: str
    within: tuple[str, ...] | None = None

    @property
    def model_name(self) -> str:
        """The model that thinks for a task of this type: its own, or the role `subagent`."""
        return self.model or "subagent"

    def allows(self, tool: str) -> bool:
        """Whether a task of this type may use the tool: what the model is shown, and what is checked when it calls."""
        return _names(self.tools, tool) and _names(self.within, tool)


def _names(patterns: tuple[str, ...] | None, tool: str) -> bool:
    return patterns is None or any(fnmatchcase(tool, pattern) for pattern in patterns)


class TaskTypes:
    """The types by name."""

    def __init__(self, types: Iterable[TaskType] = ()) -> None:
        self._types: dict[str, TaskType] = {}
        self.register_many(types)

    def register_many(self, types: Iterable[TaskType]) -> None:
        """Add types; one of the same name takes the place of the one before (the user's win over the built-in)."""
        for one in types:
            self._types[one.name] = one

    def get(self, name: str) -> TaskType | None:
        """The type of this name, if there is one."""
        return self._types.get(name)

    def names(self) -> tuple[str, ...]:
        """All names, the built-in first."""
        return tuple(self._types)

    def __iter__(self) -> Iterator[TaskType]:
        return iter(self._types.values())

    def described(self) -> Mapping[str, str]:
        """Name and description of each, for the prompt of whoever delegates."""
        return {one.name: one.description for one in self._types.values()}


def load_task_types(*folders: Path) -> tuple[TaskTypes, tuple[str, ...]]:
    """Read `<name>/SUBAGENT.md` below each folder, later folders over earlier ones. Gives the types, and what was wrong with files.

    A file that is wrong is left out and named; a missing folder is empty.
    """
    types, problems = TaskTypes(), []
    for folder in folders:
        for file in sorted(folder.glob(f"*/{FILE}"), key=lambda file: (file.parent.name != DEFAULT, file)):
            try:
                found, warnings = _read(file)
            except (OSError, ValueError) as error:
                problems.append(f"{file}: {error}; this type is left out")
                continue
            types.register_many((found,))
            problems += [f"{file}: {warning}" for warning in warnings]
    return types, tuple(problems)


def _read(file: Path) -> tuple[TaskType, list[str]]:
    with file.open("rb") as stream:
        data = stream.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise ValueError(f"it is larger than {LARGEST >> 10} kB")
    return parse(data.decode(), file.parent.name)


def parse(text: str, folder: str) -> tuple[TaskType, list[str]]:
    """A SUBAGENT.md from its text; folder: the name of the folder it lies in, which is the default name.

    Gives the type, and warnings. Raises ValueError: what is wrong and what is allowed.
    """
    front, body = frontmatter.split(text)
    warnings = [f"unknown key {key!r} (known: {', '.join(_KEYS)})" for key in front if key not in _KEYS]
    name = _text(front, "name") or folder
    if not NAME.fullmatch(name):
        raise ValueError(f"name {name!r}: allowed are 1 to 64 of a-z, 0-9 and -, not beginning with -")
    description = _text(front, "description")
    if not description:
        warnings.append("no description: nobody will know what it is for")
    if not body:
        raise ValueError("there is nothing after the front matter; the body is the prompt")
    return TaskType(name, description, _tools(front.get("tools")), _text(front, "model"), body), warnings


def _text(front: Mapping[str, Json], key: str) -> str:
    value = front.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ValueError(f"{key} must be a text, found {kind(value)}")
    return " ".join(value.split())


def _tools(value: Json) -> tuple[str, ...] | None:
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
