"""Bare commands: lines of a shell that mean what they look like, so that a rule which allows may be compared with their text.

Whoever writes a command chooses its form. A line that the pattern `git status*` fits may start other programs, write files, or
replace a part of itself by something that a file says. A bare line is one command with its arguments, letter by letter: nothing in it
is special to a shell outside of single quotes, and no variable stands before the command. Double quotes are allowed, and what is
special in them is not.

    is_bare_line("git log --format='%h (%an)'")   # True
    is_bare_line("echo x > file")                 # False
"""

from __future__ import annotations

import re
from typing import Final

_SPECIAL: Final = frozenset(";&|<>$`~*?[({")
"""Characters by which a shell joins commands, redirects, or puts something else in the place of a word."""
_ASSIGNMENT: Final = re.compile(r"\s*[A-Za-z_][A-Za-z0-9_]*(\[[^]]*\])?\+?=")
"""A variable before the command. A wide form: shells know more of them than the standard says."""


def is_bare_line(line: str) -> bool:
    """Return whether a line of a shell is one command whose words are those that it shows."""
    # Controls, line ends and characters that cannot be seen are looked for everywhere: a quote that is open for this function may be
    # none for the shell, as behind a `#`, and only a line end could make use of that.
    if not line.isprintable() or _ASSIGNMENT.match(line):
        return False
    quote = ""
    characters = iter(line)
    for character in characters:
        if quote == "'":
            quote = "" if character == "'" else quote
        elif character in _SPECIAL:
            return False
        elif character == "\\":
            if next(characters, "") in (*_SPECIAL, ""):
                return False
        elif character == quote:
            quote = ""
        elif character in "'\"" and not quote:
            quote = character
    return not quote


def is_bare_code(code: str) -> bool:
    """Return whether code of a program other than a shell has nothing in it that is special: its quotes are not a shell's."""
    return code.isprintable() and not _SPECIAL.intersection(code) and not _ASSIGNMENT.match(code)
