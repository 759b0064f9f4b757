"""What a proposed field of a persona may hold: it stands in the prompt of every call, so it is short and imitates nothing."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from pegasus.formatting import truncate
from pegasus.identity.persona import FIELDS, LISTS, FieldValue

MOST_WHY: Final = 1_000
"""Characters of a reason; what is more is cut."""
MOST_ITEMS: Final = 20
MOST_CHARACTERS: Final = {
    "name": 60,
    "role": 500,
    "personality": 100,
    "style": 1_000,
    "values": 100,
    "background": 4_000,
}
"""Characters of a field; of one item, where it is a list."""

_FORBIDDEN: Final = ("Cc", "Cf", "Zl", "Zp", "Cs", "Co", "Cn")
_JOINERS: Final = "\u200c\u200d"
"""Some scripts and emoji need them."""


class ProposalRefused(Exception):
    """It cannot be proposed or decided; the text says why and what would work."""


def value_of(field: str, text: str) -> FieldValue:
    """The value of a field as the model writes it: items of a list stand between semicolons. Raises ProposalRefused."""
    if field not in FIELDS:
        raise ProposalRefused(f"there is no field {field[:40]!r}; there are {', '.join(FIELDS)}")
    if field not in LISTS:
        return _text(field, text, many_lines=field == "background")
    items = tuple(_text(field, item) for item in re.split(r"[;\n]", text) if item.strip())
    if not 1 <= len(items) <= MOST_ITEMS:
        raise ProposalRefused(
            f"{field}: found {len(items)} items; 1 to {MOST_ITEMS} are allowed, with semicolons between"
        )
    return items


def shown(value: FieldValue) -> str:
    """As people read it, and as `value_of` takes it."""
    return value if isinstance(value, str) else "; ".join(value)


def _text(field: str, text: str, *, many_lines: bool = False) -> str:
    text = "\n".join(line.rstrip() for line in text.strip().split("\n"))
    most = MOST_CHARACTERS[field]
    if not text or len(text) > most:
        raise ProposalRefused(f"{field}: found {len(text):,} characters; 1 to {most:,} are allowed")
    for c in text:
        if unicodedata.category(c) in _FORBIDDEN and c not in _JOINERS and not (many_lines and c == "\n"):
            raise ProposalRefused(f"{field}: U+{ord(c):04X} may not stand in it")
    if any(line.lstrip().startswith(("#", "[")) for line in text.split("\n")):
        raise ProposalRefused(f"{field}: no line may begin like a heading or a message")
    return text


def reason(why: str) -> str:
    """Why something is proposed, on one line. Raises ProposalRefused if nothing is said."""
    text = truncate("".join(c for c in why if c.isspace() or unicodedata.category(c) not in _FORBIDDEN), MOST_WHY)
    if not text:
        raise ProposalRefused("why: found nothing; your owner must be told the reason")
    return text
