"""What is wrong with a person's settings, in words that person can act on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class SettingsProblem:
    """One mistake. source: the file, environment variable or option; key: dotted key path ("" = the source as a whole).

    hint is one more sentence, or "".
    """

    __slots__ = ("allowed", "found", "hint", "key", "source")

    def __init__(self, source: str, key: str, found: str, allowed: str, hint: str = "") -> None:
        self.source = source
        self.key = key
        self.found = found
        self.allowed = allowed
        self.hint = hint

    def __str__(self) -> str:
        place = f"{self.source}: {self.key}" if self.key else self.source
        line = f"{place}: found {self.found}; allowed: {self.allowed}"
        line = f"{line}. {self.hint}" if self.hint else line
        return line if line.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)


class SettingsError(Exception):
    """The settings cannot be used. problems holds every mistake, not only the first; str() has one line for each."""

    exit_code = 78

    def __init__(self, problems: Iterable[SettingsProblem | str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


def closest(name: str, names: Sequence[str]) -> str:
    """`Did you mean "port"?`, or "" where no name is near."""
    from difflib import get_close_matches

    near = get_close_matches(name.lower(), names, n=1, cutoff=0.6)
    return f'Did you mean "{near[0]}"?' if near else ""


def one_of(names: Iterable[str]) -> str:
    """`"line" or "json"`; `one of "a", "b", "c"`."""
    quoted = [f'"{name}"' for name in names]
    return " or ".join(quoted) if len(quoted) <= 2 else "one of " + ", ".join(quoted)
