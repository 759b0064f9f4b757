"""`${VAR}`, `${VAR:-default}` and `${VAR:?message}` in a text; `$${` stands for a plain `${`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

FORMS: Final = "${VAR}, ${VAR:-default}, ${VAR:?message}, or $${ for a plain ${"


class Interpolated(str):
    """A text that took something from the environment."""

    __slots__ = ()


class InterpolationError(ValueError):
    """found and allowed say what is wrong, in the words of a Problem."""

    def __init__(self, found: str, allowed: str) -> None:
        super().__init__(found)
        self.found = found
        self.allowed = allowed


def interpolate(text: str, environ: Mapping[str, str]) -> str:
    """The text with its variables filled in. As in a shell, a variable that is not set is empty.

    `:-` and `:?` take effect where the variable is not set or empty. Raises InterpolationError. Not recursive: what a
    variable holds is taken as it is.
    """
    if "${" not in text:
        return text
    parts: list[str] = []
    rest = text
    while (at := rest.find("${")) >= 0:
        if rest[:at].endswith("$"):
            parts.append(rest[: at - 1] + "${")
            rest = rest[at + 2 :]
            continue
        inside, closed, after = rest[at + 2 :].partition("}")
        if not closed or "${" in inside:
            raise InterpolationError(f'"{rest[at:]}"', FORMS)
        parts += [rest[:at], _value(inside, environ)]
        rest = after
    return Interpolated("".join(parts) + rest)


def _value(inside: str, environ: Mapping[str, str]) -> str:
    name, colon, rest = inside.partition(":")
    if not (name.isascii() and name.isidentifier()) or (colon and rest[:1] not in ("-", "?")):
        raise InterpolationError(f'"${{{inside}}}"', FORMS)
    value = environ.get(name, "")
    if value or not colon:
        return value
    if rest[0] == "-":
        return rest[1:]
    raise InterpolationError(f"${{{name}}} not set", rest[1:] or f"the environment variable {name} must be set")
