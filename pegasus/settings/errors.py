"""Mistakes in a person's settings, in words that person can act on.

Each says where the mistake is, what was found and what is allowed. Somebody who edits a file by hand makes several mistakes at
once, so that errors are collected and raised together: fixing them one start at a time would take as many starts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

import attrs


@attrs.frozen
class SettingsProblem:
    """One mistake; str() is one printable line: `FILE: gateway.port: found "x"; allowed: a whole number from 0 to 65535`.

    Example::

        SettingsProblem("pegasus.toml", "gateway.port", '"x"', "a whole number from 0 to 65535")
    """

    source: str
    """File, environment variable or option with the mistake."""
    key: str
    """Dotted key path; "" = the source as a whole."""
    found: str
    """The value as it is written in TOML, or a description of it. Never a secret."""
    allowed: str
    """The values that would be right."""
    hint: str = ""
    """One more sentence, or ""."""

    def __str__(self) -> str:
        place = f"{self.source}: {self.key}" if self.key else self.source
        line = f"{place}: found {self.found}; allowed: {self.allowed}"
        line = f"{line}. {self.hint}" if self.hint else line
        # A key or value may hold any character; control characters are escaped, so that a mistake stays one harmless line.
        return line if line.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)


class SettingsError(Exception):
    """Settings that cannot be used. str() has one line for each mistake."""

    exit_code = 78
    """EX_CONFIG of sysexits.h: a service manager must not restart the daemon, since nothing would change."""

    problems: tuple[SettingsProblem | str, ...]
    """Every mistake, not only the first."""

    def __init__(self, problems: Iterable[SettingsProblem | str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


def closest(name: str, names: Sequence[str]) -> str:
    """Return `Did you mean "port"?`, or "" where no name is near."""
    near = get_close_matches(name.lower(), names, n=1, cutoff=0.6)
    return f'Did you mean "{near[0]}"?' if near else ""


def one_of(names: Iterable[str]) -> str:
    """Return `"line" or "json"`; with more names `one of "a", "b", "c"`."""
    quoted = [f'"{name}"' for name in names]
    return " or ".join(quoted) if len(quoted) <= 2 else "one of " + ", ".join(quoted)
