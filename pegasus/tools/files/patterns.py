r"""What a model may search by: regular expressions that cannot run away, and globs.

A backtracking engine (`re`) can be made to run for ever by a pattern of ten characters, in a thread that nobody can
stop; `regex` has timeouts, but lets a short pattern of nested counts eat all memory while compiling. RE2 takes time that is
linear in the text and memory that is bounded, gives the interpreter lock away while it searches, and refuses
patterns that are too big. The price is lookaround and backreferences, and `\d \w \b` know ASCII only.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import translate
from typing import Final, Protocol, cast

from pegasus.tools.base import ToolError

LONGEST: Final = 4_000
"""Characters of a pattern."""
MOST_GLOBS: Final = 64
"""Patterns that the braces of one glob may stand for."""
SYNTAX: Final = r"RE2 syntax: as in Perl or Go, without lookaround and backreferences; (?i) ignores case"


class Found(Protocol):
    """Where a pattern matches."""

    def start(self) -> int: ...

    def end(self) -> int: ...


class Expression(Protocol):
    """A compiled regular expression over UTF-8."""

    def search(self, text: bytes, pos: int = 0) -> Found | None: ...


def expression(pattern: str) -> Expression:
    """Compiled so that it is applied to each line alone. Raises ToolError."""
    import re2  # type: ignore[import-untyped]

    if not pattern or len(pattern) > LONGEST:
        raise ToolError("pattern is empty" if not pattern else f"pattern is longer than {LONGEST:,} characters")
    options = re2.Options()
    options.never_nl = True
    options.log_errors = False
    try:
        return cast("Expression", re2.compile(f"(?m){pattern}", options))
    except (re2.error, UnicodeError) as error:
        reason = error.args[0] if error.args else ""
        words = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(error)
        raise ToolError(f"pattern {pattern!r} cannot be used: {words}. {SYNTAX}") from None


def glob(pattern: str) -> Callable[[str], bool]:
    """A test of paths by a glob: `*`, `?`, `[…]`, `{a,b}`; without a `/` it is applied to the last name. Raises ToolError."""
    choices = list(_spread(pattern.removeprefix("./")))
    # `**/` may also stand for nothing
    choices += [choice.removeprefix("**/") for choice in choices if choice.startswith("**/")]
    tests = [(("/" in choice), re.compile(translate(choice)).match) for choice in choices]

    def fits(path: str) -> bool:
        name = path.rpartition("/")[2]
        return any(match(path if whole else name) for whole, match in tests)

    return fits


def _spread(pattern: str) -> list[str]:
    """The patterns that the braces stand for."""
    done: list[str] = []
    waiting = [pattern]
    while waiting:
        if len(done) + len(waiting) > MOST_GLOBS:
            raise ToolError(f"include {pattern!r} stands for more than {MOST_GLOBS} patterns")
        one = waiting.pop()
        if (group := _BRACES.search(one)) is None:
            done.append(one)
        else:
            waiting += [one[: group.start()] + choice + one[group.end() :] for choice in group[1].split(",")]
    return done


_BRACES: Final = re.compile(r"\{([^{}]*)\}")
