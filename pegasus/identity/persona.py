"""The persona: name, role, personality, style, values, background; from a JSON file or built in."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

import attrs

FieldValue: TypeAlias = str | tuple[str, ...]
"""What a field of a persona holds: a text, or several where it is one of LISTS."""

REQUIRED: Final = ("name", "role", "personality", "style", "values")
FIELDS: Final = (*REQUIRED, "background")
LISTS: Final = ("personality", "values")
MOST_BYTES: Final = 64 << 10
"""A larger file was not written as a persona, and would fill the prompt of every call."""


class PersonaError(Exception):
    """The persona file cannot be used; the text names the file, the key, what was found and what is allowed."""


@attrs.frozen
class Persona:
    """Constant for the life of the process (seed 003 "Identity Consistency")."""

    name: str
    role: str
    personality: tuple[str, ...]
    style: str
    values: tuple[str, ...]
    background: str = ""


BUILT_IN = Persona(
    name="Pegasus",
    role="an autonomous assistant that is always at work",
    personality=("attentive", "calm", "curious", "reliable"),
    style="clear and friendly, to the point, in the language of the person spoken to",
    values=("honesty", "care for people's time", "privacy", "finishing what was promised"),
    background="You run continuously, hear people on several channels, and remember what was said before.",
)


def load_persona(path: Path) -> Persona:
    """Read and check a persona file. Raises PersonaError with every mistake, one a line."""
    return Persona(**_read(path, REQUIRED))


def load_changes(path: Path) -> dict[str, FieldValue]:
    """What a file says about some fields of a persona; {} if there is no such file. Raises PersonaError as `load_persona`."""
    changes: dict[str, FieldValue] = _read(path, ()) if path.exists() else {}
    return changes


def changes_in(path: Path | str, content: bytes) -> dict[str, FieldValue]:
    """The same from the file's content. path: what the error calls it."""
    changes: dict[str, FieldValue] = _checked(path, content, ())
    return changes


def persona_at_start(base: Persona, data: Path) -> Persona:
    """Who the agent is: the persona of the settings, with what its owner has accepted. data: the folder of the journal.

    Raises PersonaError, if the file of what was accepted has a mistake in it, and OSError.
    """
    if not (data / "identity").is_dir():
        return base
    from pegasus.identity.evolution import read_standing

    return read_standing(base, data).persona


def with_changes(persona: Persona, changes: Mapping[str, FieldValue]) -> Persona:
    """The persona with these fields instead of its own."""
    known: Any = changes
    return attrs.evolve(persona, **known)


def _read(path: Path, required: Iterable[str]) -> Any:
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise PersonaError(f"{path}: cannot be read ({error.strerror})") from error
    return _checked(path, content, required)


def _checked(path: Path | str, content: bytes, required: Iterable[str]) -> Any:
    if len(content) > MOST_BYTES:
        raise PersonaError(f"{path}: found more than {MOST_BYTES:,} bytes, which is no persona")
    twice: list[str] = []
    try:
        value = json.loads(content.decode(), object_pairs_hook=lambda pairs: _object(pairs, twice))
    except (ValueError, RecursionError) as error:
        raise PersonaError(f"{path}: not JSON in UTF-8 ({error})") from error
    if not isinstance(value, dict):
        raise PersonaError(f"{path}: found {type(value).__name__}; an object with {', '.join(REQUIRED)} is wanted")
    problems = [f"{path}: {key}: is there twice" for key in twice]
    problems += [f"{path}: {key}: {problem}" for key, problem in _problems(value, required)]
    if problems:
        raise PersonaError("\n".join(problems))
    return {key: tuple(content) if key in LISTS else content for key, content in value.items()}


def _object(pairs: list[tuple[str, Any]], twice: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            twice.append(key)
        found[key] = value
    return found


def _problems(value: dict[str, object], required: Iterable[str]) -> list[tuple[str, str]]:
    found = [(key, "is missing") for key in required if key not in value]
    for key, content in value.items():
        if key in LISTS:
            if not (isinstance(content, list) and content and all(_is_text(x) for x in content)):
                found.append((key, f"found {_short(content)}; a list of at least one text is wanted"))
        elif key in FIELDS:
            if not (_is_text(content) or (key == "background" and content == "")):
                found.append((key, f"found {_short(content)}; a text is wanted"))
        else:
            found.append((_short(key)[1:-1], f"is not known; allowed are {', '.join(FIELDS)}"))
    return found


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip()) and not any(map(_is_forbidden, value))


def _is_forbidden(c: str) -> bool:
    """Control characters and halves of surrogate pairs, which no prompt may have."""
    return (c < " " and c not in "\n\t") or "\x7f" <= c < "\xa0" or "\ud800" <= c <= "\udfff"


def _short(value: object) -> str:
    text = ascii(value) if isinstance(value, str) and not value.isprintable() else repr(value)
    return text if len(text) <= 80 else f"{text[:79]}…"
