"""The persona: name, role, personality, style, values, background; from a JSON file or built in."""

from __future__ import annotations

import json
from pathlib import Path

import attrs


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

_REQUIRED = ("name", "role", "personality", "style", "values")


def load_persona(path: Path) -> Persona:
    """Read and check a persona file. Raises PersonaError with every mistake, one a line."""
    try:
        value = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise PersonaError(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise PersonaError(f"{path}: not JSON in UTF-8 ({error})") from error
    if not isinstance(value, dict):
        raise PersonaError(f"{path}: found {type(value).__name__}; an object with {', '.join(_REQUIRED)} is wanted")
    problems = [f"{path}: {key}: {problem}" for key, problem in _problems(value)]
    if problems:
        raise PersonaError("\n".join(problems))
    lists = {key: tuple(value[key]) for key in ("personality", "values")}
    return Persona(**{**value, **lists})


def _problems(value: dict[str, object]) -> list[tuple[str, str]]:
    found = [(key, "is missing") for key in _REQUIRED if key not in value]
    for key, content in value.items():
        if key in ("personality", "values"):
            if not (isinstance(content, list) and content and all(_is_text(x) for x in content)):
                found.append((key, f"found {content!r}; a list of at least one text is wanted"))
        elif key in ("name", "role", "style", "background"):
            if not (_is_text(content) or (key == "background" and content == "")):
                found.append((key, f"found {content!r}; a text is wanted"))
        else:
            found.append((key, f"is not known; allowed are {', '.join(_REQUIRED)}, background"))
    return found


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())
