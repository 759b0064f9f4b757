"""Words of others that come with a message: what it answers, quotes, forwards or shares, and what its thread began with.

A service sends them along, and "what do you think of this?" means nothing without them. They are no words of the writer, so they never
stand in the text of a message: they are text from outside, each with its author, and the model is shown them between fences behind the
writer's own words. A channel puts them into the metadata of the message (`quotes_metadata`), and so may a bridge:

    {"quotes": [{"kind": "answers", "author": "Anna", "text": "Shall we go on Friday?"}]}

An answer may quote a text of any length, and several of them, so both are bounded where they are made and again where they are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import attrs

from pegasus.messages import Json, Metadata

QUOTES: Final = "quotes"
"""Key of the quotes in a message's metadata. Stored, so it must not change."""
LONGEST_QUOTE: Final = 8_000
"""Characters of one quote. A message of most services has fewer."""
LONGEST_QUOTES: Final = 24_000
"""Characters of all quotes of a message."""
MOST_QUOTES: Final = 100
"""Quotes of a message: as many as Telegram forwards at once."""
LONGEST_AUTHOR: Final = 64
"""Characters of an author's name."""
ANSWERS: Final = "answers"
FORWARDS: Final = "forwards"
SHARES: Final = "shares"
MARKS: Final = "marks"
THREAD: Final = "thread"
EARLIER: Final = "earlier"
_WORDS: Final = {
    ANSWERS: "this answers a message",
    MARKS: "the part of it that is marked",
    FORWARDS: "this forwards a message",
    SHARES: "this shares a message",
    THREAD: "from the thread that this stands in: a message",
    EARLIER: "said in this chat before, as its program shows it: a message",
}
"""Beginning of a quote's label, by kind."""


@attrs.frozen
class Quote:
    """Words that a message refers to: `Quote("answers", "Shall we go on Friday?", "Anna")`."""

    kind: str
    """Relation of the message to them: "answers", "marks" (a part of what is answered), "forwards", "shares", "thread" or
    "earlier"."""
    text: str
    """The words; "" if there are none that can be read, and then `note` says why."""
    author: str = ""
    """Name of who has written them; "" if it is not known."""
    note: str = ""
    """Note for the model, such as that they were deleted."""
    is_own: bool = False
    """The agent itself has written them."""

    @property
    def label(self) -> str:
        """The quote as it stands in a conversation. Not cleaned yet: `user_content` does that."""
        author = " of yours" if self.is_own else f" of {self.author}" if self.author else ""
        if self.kind == MARKS:
            author = ""
        head = f"{_WORDS.get(self.kind, _WORDS[SHARES])}{author}"
        if not self.text:
            return f"({head}; {self.note or 'it has no text'})"
        note = f", {self.note}" if self.note else ""
        mark = "(Forwarded)\n" if self.kind == FORWARDS else ""
        return f"({head}{note}; it reads:)\n{mark}{self.text}\n(end of it)"


def quotes_metadata(quotes: Sequence[Quote]) -> dict[str, Json]:
    """Return the metadata for these quotes, within the bounds; {} if there are none."""
    found: list[Json] = [
        {name: value for name, value in attrs.asdict(quote).items() if value} for quote in _bounded(quotes)
    ]
    return {QUOTES: found} if found else {}


def parse_quotes(metadata: Metadata) -> tuple[Quote, ...]:
    """Return the quotes in some metadata, within the bounds. What is none is left out: a bridge may have written it."""
    found = metadata.get(QUOTES)
    quotes: list[Quote] = []
    for each in found if isinstance(found, list | tuple) else ():
        match each:
            case {"kind": str(kind), **fields}:
                text, author, note = (str(fields.get(name) or "") for name in ("text", "author", "note"))
                quotes.append(Quote(kind, text, author, note, is_own=fields.get("is_own") is True))
    return _bounded(quotes)


def _bounded(quotes: Iterable[Quote]) -> tuple[Quote, ...]:
    """Return the quotes cut to the bounds. The note of one that was cut says so."""
    room = LONGEST_QUOTES
    bounded: list[Quote] = []
    for quote in quotes:
        if len(bounded) == MOST_QUOTES:
            break
        most = max(0, min(LONGEST_QUOTE, room))
        note = quote.note[:LONGEST_QUOTE]
        if len(quote.text) > most:
            note = f"only the first {most:,} of its {len(quote.text):,} characters are shown"
        bounded.append(
            attrs.evolve(
                quote, text=quote.text[:most], author=" ".join(quote.author.split())[:LONGEST_AUTHOR], note=note
            )
        )
        room -= len(bounded[-1].text)
    return tuple(bounded)
