"""The arguments of a skill in its body: `$ARGUMENTS`, `$ARGUMENTS[N]`, `$1` (decision X21, trap T13).

One pass over the body: what stands in the arguments is never looked at again, whatever it looks like.
"""

from __future__ import annotations

import re
from typing import Final

from pegasus.skills.skill import Skill

MOST: Final = 256 << 10
"""Characters that filling in may make of a body; arguments that would make more stand once, at its end."""

_PLACE: Final = re.compile(
    r"""\\(?P<plain>\$)(?=ARGUMENTS|\d)
      | \$ARGUMENTS\[(?P<index>\d{1,4})\]
      | (?P<all>\$ARGUMENTS)(?![A-Za-z0-9_])
      | \$(?P<number>\d{1,2})(?!\d)(?![.,]\d)  # not the $100 or $1.50 of a price
    """,
    re.VERBOSE,
)
_WORD: Final = re.compile(
    r""""(?P<double>(?:[^"\\]|\\.)*)"(?!\S) | '(?P<single>[^']*)'(?!\S) | “(?P<curly>[^“”]*)”(?!\S) | (?P<bare>\S+)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPED: Final = re.compile(r'\\(["\\])')
_ELSEWHERE: Final = "(see ARGUMENTS at the end)"


def expand(skill: Skill, arguments: str) -> str:
    r"""The body with the arguments in the places it has for them; without any place they stand at its end.

    An argument that was not given is empty. `\$1` is a plain `$1`.
    """
    arguments = arguments.strip()
    words = split_arguments(arguments)

    def value(place: re.Match[str]) -> str | None:
        """What belongs there; None where no argument does."""
        if place["plain"]:
            return None
        if place["all"]:
            return arguments
        index = int(place["index"]) if place["index"] else int(place["number"]) - skill.first
        if index < 0:  # $0, where counting begins with 1
            return None
        return words[index] if index < len(words) else ""

    values = [made for place in _PLACE.finditer(skill.body) if (made := value(place)) is not None]
    too_long = len(skill.body) + sum(map(len, values)) > MOST

    def fill(place: re.Match[str]) -> str:
        if place["plain"]:
            return "$"
        made = value(place)
        if made is None:
            return place[0]
        return _ELSEWHERE if too_long else made

    body = _PLACE.sub(fill, skill.body)
    return f"{body}\n\nARGUMENTS: {arguments}" if arguments and (too_long or not values) else body


def split_arguments(text: str) -> tuple[str, ...]:
    """The single arguments: words, or what stands in quotes that begin and end a word.

    An apostrophe within a word is one, and a quote that is never closed belongs to its word, so that people need not know
    of any of this.
    """
    return tuple(map(_word, _WORD.finditer(text)))


def _word(match: re.Match[str]) -> str:
    if match["double"] is not None:
        return _ESCAPED.sub(lambda escaped: escaped[1], match["double"])
    return next(part for part in (match["single"], match["curly"], match["bare"]) if part is not None)
