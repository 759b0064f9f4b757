"""Lists of tools that a skill or a type of tasks may use: names, patterns of names, and shell commands by their beginning.

    read_file             this tool
    memory_*              all tools whose names match
    shell_exec(git *)     this tool, for commands that begin with `git`

A list is a limit that somebody has set for work that obeys, not a wall: `git` itself can run other programs. The walls and the rules
of the owner hold in any case.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final

from pegasus.messages import Json

_QUOTED: Final = re.compile(r"""\\.|'[^']*'|"(?:[^"\\`$]|\\.|\$(?!\())*"|2>&1""", re.DOTALL)
"""Parts of a command line in which nothing separates commands, in the order in which a shell reads them."""
_SEPARATOR: Final = re.compile(r"&&|\|\||[;|\n]")
_OTHER: Final = re.compile(r"""[&<>()`'"\r]|\$\(""")
"""Parts of a command line, outside of quotes, that are more than single commands: redirections, substitutions, background commands."""


def is_named(patterns: Sequence[str] | None, tool: str, arguments: Mapping[str, Json] | None = None) -> bool:
    """Return whether a list has a tool; None has every one.

    arguments: those of a call, which must be within the part of the tool that the list has; None: any part of the tool counts.
    """
    if patterns is None:
        return True
    parts = [pattern.partition("(") for pattern in patterns]
    found = [
        command.removesuffix(")") if bracket else None for name, bracket, command in parts if fnmatchcase(tool, name)
    ]
    if arguments is None or None in found:
        return bool(found)
    line = arguments.get("command")
    # A variable may change what a command does, or which program its name means.
    if not isinstance(line, str) or arguments.get("env"):
        return False
    commands = list(_commands(line))
    return bool(commands) and all(any(_begins(command, part or "") for part in found) for command in commands)


def _commands(line: str) -> Iterator[str]:
    """Yield the commands of a line; "" for one that is more than single commands."""
    bare = _QUOTED.sub(lambda part: "_" * len(part[0]), line)
    if _OTHER.search(_SEPARATOR.sub(" ", bare)):
        yield ""
        return
    start = 0
    for separator in [*_SEPARATOR.finditer(bare), None]:
        command = " ".join(line[start : separator.start() if separator else len(line)].split())
        # A line may end with a separator.
        if command or start == 0:
            yield command
        start = separator.end() if separator else len(line)


def _begins(command: str, part: str) -> bool:
    """Return whether a command is within a part: "git *" is `git` with any arguments."""
    return command == part.removesuffix(" *") or fnmatchcase(command, part)
