"""Mistakes in a person's settings, in words that person can act on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

import attrs


@attrs.frozen
class SettingsProblem:
    """One mistake; str() is one printable line: `FILE: gateway.port: found "x"; allowed: a whole number from 0 to 65535`."""

    source: str
    """File, environment variable or option with the mistake."""
    key: str
    """Dotted key path; "" = the source as a whole."""
    found: str
    allowed: str
    hint: str = ""
    """One more sentence, or ""."""

    def __str__(self) -> str:
        place = f"{self.source}: {self.key}" if self.key else self.source
        line = f"{place}: found {self.found}; allowed: {self.allowed}"
        line = f"{line}. {self.hint}" if self.hint else line
        return line if line.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)


class SettingsError(Exception):
    """Settings that cannot be used. str() has one line for each mistake."""

    exit_code = 78

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
