"""Settings without their secrets, as they go into a backup that is not encrypted.

A key that is declared as secret becomes "", a password leaves its address, and what has the form of a secret anywhere else in the file
(comments, arguments of a command) becomes `***`. `${VARIABLE}` stays: it says where the secret is, and is none.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import attrs

from pegasus.redaction import Redactor
from pegasus.settings import EditError, Key, find_key, set_key

_VARIABLE: Final = re.compile(r"(?:[A-Za-z]+ )?\$\{[A-Za-z_][A-Za-z0-9_]*(?::-|:\?[^{}]*)?\}")
"""A value that only names a variable, perhaps behind a word such as Bearer. A default (`${NAME:-value}`) would be a secret itself."""
_USER: Final = re.compile(r"(?<=://)[^/@\s]*@")
"""User and password of an address."""


@attrs.frozen
class Blanked:
    """Settings without their secrets."""

    text: str
    keys: list[str]
    """Keys that were emptied."""
    values: list[str]
    """The secrets."""


def without_secrets(text: str) -> Blanked | None:
    """Return a settings file without its secrets; None for one with mistakes, in which they cannot be told from the rest."""
    found: list[tuple[tuple[str, ...], str, str]] = []
    try:
        for path, value in _texts(tomllib.loads(text), ()):
            key = find_key(path)
            if isinstance(key, Key) and key.secret:
                if not _VARIABLE.fullmatch(value):
                    found.append((path, value, ""))
            elif (address := _USER.sub("", value)) != value:
                found.append((path, value, address))
        for path, _, rest in found:
            text = set_key(text, path, rest)
        values = [value for _, value, rest in found if not rest]
        text = Redactor(values).apply(text)
        tomllib.loads(text)
    except (ValueError, EditError, LookupError, TypeError):
        return None
    return Blanked(text, [".".join(path) for path, _, _ in found], values)


def holds_secret(content: bytes, known: Iterable[str]) -> bool:
    """Return whether a file holds one of these secrets, or something that has the form of one."""
    text = content.decode("utf-8", "replace")
    return Redactor(known).apply(text) != text


def _texts(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield path and value of every text in nested tables that is not empty."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _texts(inner, (*path, name))
    elif isinstance(value, str) and value:
        yield path, value
