"""Markdown with YAML front matter: SUBAGENT.md and SKILL.md (interfaces section 7)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pegasus.messages import Json, Metadata
from pegasus.wire import kind


class FrontMatterError(ValueError):
    """The text does not begin with a front matter that can be read; says what is wrong, and in which line."""


def split(text: str) -> tuple[Metadata, str]:
    """The front matter as a mapping, and the body without blank lines around it.

    A text without front matter is all body. Raises FrontMatterError for one that is not closed, no YAML, or no mapping.
    """
    lines = text.removeprefix("\ufeff").splitlines()
    if not lines or lines[0].rstrip() != "---":
        return {}, "\n".join(lines).strip()
    try:
        end = next(i for i, line in enumerate(lines) if i and line.rstrip() == "---")
    except StopIteration:
        raise FrontMatterError("the front matter that begins in line 1 has no end (a line with only ---)") from None
    return _mapping("\n".join(lines[1:end])), "\n".join(lines[end + 1 :]).strip()


_PLAIN = re.compile(r'([A-Za-z][A-Za-z0-9_-]*): +(?:"([^"\\\t]*)"|([A-Za-z][ -~]*?)) *')
_NO_TEXTS = frozenset(["true", "false", "yes", "no", "on", "off", "null", "y", "n"])
"""What YAML takes for something else."""


def _plainly(lines: Sequence[str]) -> Metadata | None:
    """The mapping, where every line is a key and a text that stands for itself; None where only YAML can tell."""
    found: dict[str, Json] = {}
    for line in lines:
        match = _PLAIN.fullmatch(line) if line.isascii() and line.isprintable() else None
        if match is None:
            return None
        key, quoted, plain = match.groups()
        if plain is not None and (": " in plain or " #" in plain or plain.endswith(":") or plain.lower() in _NO_TEXTS):
            return None
        if key.lower() in _NO_TEXTS:
            return None
        found[key] = quoted if plain is None else plain
    return found


def _mapping(source: str) -> Metadata:
    plain = _plainly(source.splitlines())
    if plain:
        return plain
    import yaml  # slow to import, and with most files not needed

    try:
        value: Json = yaml.safe_load(source)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a date that is none
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 2}: " if mark is not None else ""
        what = getattr(error, "problem", None) or str(error)
        raise FrontMatterError(f"{where}the front matter is no YAML: {what}") from None
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise FrontMatterError(f"the front matter must be `key: value` lines, found {kind(value)}")
    return value
