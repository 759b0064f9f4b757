"""Filling the arguments of a call into the body of a skill: `$ARGUMENTS`, `$ARGUMENTS[N]`, `$1`.

The body is passed over once. Arguments that were filled in are never looked at again, whatever they
contain: text of a user must not be able to insert placeholders. The result is bounded, because a
body may repeat a long argument many times.
"""

from __future__ import annotations

import re
from typing import Final

from pegasus.skills.skill import Skill

MAX_EXPANDED: Final = 256 << 10
"""Characters of a body with its arguments. If they would make it longer, they stand once, at its
end."""

_PLACEHOLDER: Final = re.compile(
    r"""\\(?P<escaped>\$)(?=ARGUMENTS|\d)
      | \$ARGUMENTS\[(?P<index>\d{1,4})\]
      | (?P<all>\$ARGUMENTS)(?![A-Za-z0-9_])
      | \$(?P<number>\d{1,2})(?!\d)(?![.,]\d)  # not the $100 or $1.50 of a price
    """,
    re.VERBOSE,
)
"""Placeholders in a body, and the escaped dollar sign that keeps one from being filled in."""
_WORD: Final = re.compile(
    r""""(?P<double>(?:[^"\\]|\\.)*)"(?!\S) | '(?P<single>[^']*)'(?!\S) | “(?P<curly>[^“”]*)”(?!\S) | (?P<bare>\S+)""",
    re.VERBOSE | re.DOTALL,
)
"""Words of arguments: in quotes of three kinds, or between blanks."""
_ESCAPED_CHARACTER: Final = re.compile(r'\\(["\\])')
"""Escapes within double quotes."""
_SEE_END: Final = "(see ARGUMENTS at the end)"
"""Text in the place of arguments that stand at the end."""


def expand(skill: Skill, arguments: str) -> str:
    r"""Return the body of the skill with the arguments in it. Without any placeholder they stand at the end.

    A placeholder for an argument that was not given becomes empty. `\$1` is a literal `$1`.
    """
    arguments = arguments.strip()
    words = split_arguments(arguments)

    def value_of(placeholder: re.Match[str]) -> str | None:
        """Return the argument for a placeholder, or None if it is not one after all."""
        if placeholder["escaped"]:
            return None
        if placeholder["all"]:
            return arguments
        index = int(placeholder["index"] or int(placeholder["number"]) - skill.first)
        if index < 0:  # $0 in a skill that counts from 1
            return None
        return words[index] if index < len(words) else ""

    values = [value for match in _PLACEHOLDER.finditer(skill.body) if (value := value_of(match)) is not None]
    is_too_long = len(skill.body) + sum(map(len, values)) > MAX_EXPANDED

    def replace(placeholder: re.Match[str]) -> str:
        """Return the text for one placeholder in the body."""
        if placeholder["escaped"]:
            return "$"
        value = value_of(placeholder)
        if value is None:
            return placeholder[0]
        return _SEE_END if is_too_long else value

    body = _PLACEHOLDER.sub(replace, skill.body)
    return f"{body}\n\nARGUMENTS: {arguments}" if arguments and (is_too_long or not values) else body


def split_arguments(text: str) -> tuple[str, ...]:
    """Return the single arguments: words, or texts in quotes.

    Quotes count only if they begin and end a word. An apostrophe in a word, and a quote that is
    never closed, are ordinary characters, so that people can write as usual without knowing these
    rules.
    """
    return tuple(map(_unquote, _WORD.finditer(text)))


def _unquote(match: re.Match[str]) -> str:
    """Return one argument without its quotes. A backslash before a quote or backslash escapes it in double quotes."""
    if match["double"] is not None:
        return _ESCAPED_CHARACTER.sub(lambda escaped: escaped[1], match["double"])
    return next(part for part in (match["single"], match["curly"], match["bare"]) if part is not None)
