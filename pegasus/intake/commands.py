"""Commands that do not exist: found before a model is asked, and answered with the names of similar ones.

A mistyped `/staus` would otherwise go to the model as text, which may take it for anything. The Main Agent answers it for every
channel; the terminal uses the same functions, so that a person there is answered while the agent is busy, too.

A text is a command only if its first word looks like the name of one: a slash, then lower-case letters, digits, `_` and `-`. So
`/etc/hosts is broken` and `/Users is empty` are text, and so is everything with a blank in front.

    >>> find_unknown("/staus now", ["/status", "/stop"])
    '/staus'
    >>> describe_unknown("/staus", ["/status", "/stop"])
    'There is no command /staus. Did you mean /status? /help lists all; a blank in front sends it as text.'
"""

from __future__ import annotations

import re
from collections.abc import Collection
from difflib import get_close_matches
from typing import Final

_NAME: Final = re.compile(r"/[a-z][a-z0-9_-]{0,63}(?=\s|\Z)")
"""Command at the beginning of a text. The length is bounded as that of skills is."""
_NEAR: Final = 2
"""Similar commands that an answer names."""
_LIKENESS: Final = 0.7
"""Share of letters that a similar command has in common. With less, short commands are similar to most others."""


def find_unknown(text: str, known: Collection[str]) -> str | None:
    """Return the command that a text begins with if it is none of `known`, else None.

    known: names with their slash. `_` stands for `-` too, since some services know no `-` in commands.
    """
    found = _NAME.match(text)
    if found is None or found[0] in known or found[0].replace("_", "-") in known:
        return None
    return found[0]


def describe_unknown(name: str, known: Collection[str]) -> str:
    """Return the answer to a command that does not exist, with the known ones that begin like it or are spelled nearly so."""
    begin_alike = sorted(each for each in known if each.startswith(name))
    near = list(dict.fromkeys([*begin_alike, *get_close_matches(name, sorted(known), n=_NEAR, cutoff=_LIKENESS)]))[
        :_NEAR
    ]
    guess = f" Did you mean {' or '.join(near)}?" if near else ""
    return f"There is no command {name}.{guess} /help lists all; a blank in front sends it as text."
