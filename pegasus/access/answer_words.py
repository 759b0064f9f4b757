"""Words with which an owner says how far a yes reaches, and for which calls it is: `/approve a-7f3k hour 1,3`.

All ways in which people write them are understood, in any order: `hour`, `--scope hour`, `always`, `--always`; `1,3`, `1 3`, `1-3`,
`--calls 1,3`. Telephones turn two hyphens into a dash, which counts as well. The help shows the shortest form.

    read_answer("hour 1-3")         # (AnswerScope.HOUR, (0, 1, 2), "")
    read_answer("--calls 2 beds=2") # (AnswerScope.ONCE, (1,), "beds=2")
"""

from __future__ import annotations

import re
from typing import Final

from pegasus.access.grants import AnswerScope, parse_scope

SCOPE_WORDS: Final = "[once|arguments|tool|server|hour|forever] [1,3]"
"""Usage behind the id, for messages about mistakes."""
_NUMBERS: Final = re.compile(r"\d{1,4}(?:[-–]\d{1,4})?(?:,\d{1,4}(?:[-–]\d{1,4})?)*,?", re.ASCII)
"""One word with numbers of calls."""
_WORD: Final = re.compile(r"\s*(\S+)")
_DASHES: Final = re.compile("^(?:--|—|–)(?=[a-z])")
"""Beginning of the name of an option."""


def read_numbers(word: str) -> tuple[int, ...] | None:
    """Return the places of calls, from 0, that a word such as "1,3-5" names; None if it is none."""
    if not _NUMBERS.fullmatch(word):
        return None
    places: list[int] = []
    for part in word.strip(",").split(","):
        first, last = (int(number) for number in (re.split("[-–]", part) * 2)[:2])
        if last < first:
            return None
        places += range(first - 1, last)
    return tuple(places)


def read_answer(text: str) -> tuple[AnswerScope, tuple[int, ...] | None, str]:
    """Return the scope of a yes, the places of its calls (None: all), and what follows behind them, such as values of a form.

    A second scope, and a word that is neither, is where that begins.
    """
    scope: AnswerScope | None = None
    calls: list[int] = []
    position = 0
    while match := _WORD.match(text, position):
        word = _DASHES.sub("--", match[1].lower())
        name, equals, value = word.partition("=")
        is_option = name in ("--scope", "--calls")
        # The value of an option is the rest of its word, or the next one.
        if is_option and not equals and (after := _WORD.match(text, match.end())):
            match, value = after, after[1].lower()
        value = value if is_option else word.removeprefix("--")
        found_scope = parse_scope(value) if name != "--calls" else None
        found_calls = read_numbers(value) if name != "--scope" else None
        if found_scope is not None and scope is None:
            scope = found_scope
        elif found_calls is not None:
            calls += found_calls
        else:
            break
        position = match.end()
    return scope or AnswerScope.ONCE, tuple(calls) if calls else None, text[position:].strip()
