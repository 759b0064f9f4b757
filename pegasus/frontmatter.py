"""Markdown with YAML front matter, the format of SUBAGENT.md and SKILL.md.

    ---
    name: explore
    description: Searches files and explains what it found.
    ---
    The text of the file.

The front matter is read with `yaml.safe_load`, which builds plain values only: a file cannot make the program create
objects or call anything.

PyYAML is slow to import and to read, and `key: text` lines are what nearly every file has. Such lines are read here, and PyYAML is
imported with the first front matter that has others. Every start reads the nine files that Pegasus brings along: measured by
`./scripts/bench start`, that took 0.12 times as long as the start of a minimal program.
"""

from __future__ import annotations

import re
from typing import Final

from pegasus.messages import Json, Metadata
from pegasus.wire import kind

MOST_VALUES: Final = 10_000
"""Values of a front matter, within lists and mappings too."""
_FENCE = "---"
_PLAIN_LINE: Final = re.compile(
    r"""([a-z][a-z-]{0,39}): (?:"([ !#-\[\]-~]*)"|(<?[a-zA-Z][a-zA-Z0-9_ ,.;<>()*/'?-]*(?<! )))"""
)
"""A line whose value is a text to YAML, with quotes or without, and stands there as it is."""
_TRUTHS: Final = {"true": True, "false": False}
_NO_TEXTS: Final = frozenset({"yes", "no", "true", "false", "on", "off", "null"})
"""Words that are no texts to YAML, however they are written."""


class FrontMatterError(ValueError):
    """The front matter cannot be read. The message says what is wrong, and in which line.

    Example: `split(text)` raises it with "line 3: …". A skill whose file has such a front matter is left out, with a warning.
    """


def split(text: str) -> tuple[Metadata, str]:
    r"""Return the front matter as a mapping, and the body without blank lines around it.

    A text without front matter is all body, with an empty mapping. Raises FrontMatterError for front matter that has no
    end, is not YAML, or is not a mapping with texts as keys.

    >>> split("---\nname: x\n---\nBody")
    ({'name': 'x'}, 'Body')
    """
    lines = text.removeprefix("\ufeff").splitlines()
    if not lines or lines[0].rstrip() != _FENCE:
        return {}, "\n".join(lines).strip()
    end = next((n for n, line in enumerate(lines[1:], 1) if line.rstrip() == _FENCE), None)
    if end is None:
        raise FrontMatterError("the front matter that begins in line 1 has no end (a line with only ---)")
    return _mapping("\n".join(lines[1:end])), "\n".join(lines[end + 1 :]).strip()


def _mapping(source: str) -> Metadata:
    """Return the mapping that a front matter describes. Line numbers in errors count the fence as line 1."""
    plain = _plain_mapping(source)
    if plain is not None:
        return plain
    import yaml

    try:
        value: Json = yaml.safe_load(source)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a date that does not exist
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 2}: " if mark is not None else ""
        problem = getattr(error, "problem", None) or str(error)
        raise FrontMatterError(f"{where}the front matter is no YAML: {problem}") from None
    if value is None:
        return {}
    if not _has_few_values(value):
        raise FrontMatterError(
            f"the front matter has more than {MOST_VALUES:,} values, those counted that it repeats by name"
        )
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise FrontMatterError(f"the front matter must be `key: value` lines, found {kind(value)}")
    return value


def _has_few_values(value: Json) -> bool:
    """Return whether no more values are in this one than anybody writes. YAML repeats a part by its name, and so doubles each line."""
    waiting, count = [value], 0
    while waiting and count <= MOST_VALUES:
        each, count = waiting.pop(), count + 1
        waiting += [*each, *each.values()] if isinstance(each, dict) else each if isinstance(each, list) else ()
    return not waiting


def _plain_mapping(source: str) -> Metadata | None:
    """Return the mapping of simple lines, `key: text` and `key: true`, also below `metadata:`, as YAML reads it; else None."""
    mapping: dict[str, Json] = {}
    inner: dict[str, Json] | None = None
    for text in source.split("\n"):
        if text == "metadata:" and inner is None:
            inner = mapping["metadata"] = {}
            continue
        is_inner = text.startswith("  ")
        line = _PLAIN_LINE.fullmatch(text.removeprefix("  "))
        if line is None or (is_inner and (inner is None or [*mapping][-1] != "metadata")):
            return None
        key, quoted, plain = line.groups()
        if key in _NO_TEXTS or (quoted is None and plain not in _TRUTHS and plain.lower() in _NO_TEXTS):
            return None
        into = inner if is_inner and inner is not None else mapping
        into[key] = _TRUTHS.get(plain, plain) if quoted is None else quoted
    return None if inner == {} else mapping
