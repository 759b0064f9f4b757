"""The persona: name, role, personality, style, values and background, built in or from a JSON file.

The persona stands at the beginning of every prompt, so it is constant for the life of the process:
providers can keep the prompt in their cache, and the agent is the same on all channels. Two files
use this format: the one that `agent.persona` names holds a whole persona, and
`data/identity/persona.json` holds the fields that the owner has agreed to change.

The files are written by people, so all mistakes of a file are reported at once, each with file,
key, found and allowed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, TypeAlias

import attrs

FieldValue: TypeAlias = str | tuple[str, ...]
"""The value of a field: a text, or several texts if the field is one of LISTS."""

REQUIRED: Final = ("name", "role", "personality", "style", "values")
"""Fields that a persona file must have."""
FIELDS: Final = (*REQUIRED, "background")
"""All fields of a persona, in the order in which they are shown."""
LISTS: Final = ("personality", "values")
"""Fields that hold several texts."""
MAX_BYTES: Final = 64 << 10
"""Bytes of a persona file. A larger one was not written as a persona, and would fill the prompt of
every call."""


_FORBIDDEN: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
"""Control characters except newline and tab, and lone surrogates."""


class PersonaError(Exception):
    """A persona file that cannot be used. The text has one mistake a line, with file, key, found and allowed.

    Raised when a persona is loaded. A start ends with the text; `/persona` shows it to the owner.
    """


@attrs.frozen
class Persona:
    """The character of the agent.

    For example:

        persona = load_persona(Path("ada.json"))
        persona.name  # "Ada"
    """

    name: str
    """The name that the agent gives itself."""
    role: str
    """A noun phrase that continues "You are Ada, …"."""
    personality: tuple[str, ...]
    """Traits, a few words each."""
    style: str
    """Style of speaking, as a phrase."""
    values: tuple[str, ...]
    """Values, a few words each."""
    background: str = ""
    """Any further text, of any number of lines."""


BUILT_IN: Final = Persona(
    name="Pegasus",
    role="an autonomous assistant that is always at work",
    personality=("attentive", "calm", "curious", "reliable"),
    style="clear and friendly, to the point, in the language of the person spoken to",
    values=("honesty", "care for people's time", "privacy", "finishing what was promised"),
    background="You run continuously, hear people on several channels, and remember what was said before.",
)
"""The persona if the settings name no file."""


def load_persona(path: Path) -> Persona:
    """Read and check a persona file. Raises PersonaError with every mistake, one a line."""
    fields: dict[str, Any] = parse_fields(str(path), _read(path), REQUIRED)
    return Persona(**fields)


def persona_of_settings(setting: str, resolve: Callable[[str], Path]) -> Persona:
    """Return the persona that the setting `agent.persona` names, the built-in one for "". Raises PersonaError as `load_persona`.

    resolve: makes the path of a file from the setting (`Home.resolve`).
    """
    return load_persona(resolve(setting)) if setting else BUILT_IN


def load_changes(path: Path) -> dict[str, FieldValue]:
    """Read a file that holds some fields of a persona; {} if there is no such file. Raises PersonaError as `load_persona`."""
    return parse_fields(str(path), _read(path)) if path.exists() else {}


def _read(path: Path) -> bytes:
    """Return the content of a file, of which no more than the limit is read."""
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise PersonaError(f"{path}: cannot be read ({error.strerror})") from error


def parse_fields(name: str, content: bytes, required: Iterable[str] = ()) -> dict[str, FieldValue]:
    """Return the fields in the content of a file. name: the file in error messages. required: fields that must be there.

    It uses `json` and not `pegasus.wire`, because a key that is there twice has to be reported: one
    of the two values would be lost without a word.
    """
    if len(content) > MAX_BYTES:
        raise PersonaError(f"{name}: found more than {MAX_BYTES:,} bytes, which is too much for a persona")
    duplicates: list[str] = []

    def collect(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        """Return an object like `json` does, and remember keys that occur more than once."""
        keys = [key for key, _ in pairs]
        duplicates.extend(key for key in dict(pairs) if keys.count(key) > 1)
        return dict(pairs)

    try:
        value = json.loads(content.decode(), object_pairs_hook=collect)
    except (ValueError, RecursionError) as error:
        raise PersonaError(f"{name}: not JSON in UTF-8 ({error})") from error
    if not isinstance(value, dict):
        raise PersonaError(f"{name}: found {type(value).__name__}; an object with {', '.join(REQUIRED)} is wanted")
    problems = [f"{name}: {key}: is there twice" for key in duplicates]
    problems += [f"{name}: {key}: is missing" for key in required if key not in value]
    problems += [f"{name}: {problem}" for key, field in value.items() if (problem := _find_problem(key, field))]
    if problems:
        raise PersonaError("\n".join(problems))
    return {key: tuple(field) if key in LISTS else field for key, field in value.items()}


def _find_problem(key: str, field: object) -> str:
    """Return what is wrong with a field, its key first; "" if nothing is."""
    if key not in FIELDS:
        return f"{_format_value(key)[1:-1]}: is not known; allowed are {', '.join(FIELDS)}"
    if key in LISTS:
        if isinstance(field, list) and field and all(map(_is_text, field)):
            return ""
        return f"{key}: found {_format_value(field)}; a list of at least one text is wanted"
    if _is_text(field) or (key == "background" and field == ""):
        return ""
    return f"{key}: found {_format_value(field)}; a text is wanted"


def _is_text(value: object) -> bool:
    """Return whether a value is a text that is not blank and may stand in a prompt: without control characters and lone surrogates."""
    return isinstance(value, str) and bool(value.strip()) and _FORBIDDEN.search(value) is None


def _format_value(value: object) -> str:
    """Return a value for an error message: short, and in ASCII if it holds invisible characters."""
    text = ascii(value) if isinstance(value, str) and not value.isprintable() else repr(value)
    return text if len(text) <= 80 else f"{text[:79]}…"
