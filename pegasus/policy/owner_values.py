"""Owner's values: arguments of a call that an owner has typed, letter by letter, in a message that is the cause of the work.

Once work has read text from outside, that text may have chosen what its calls say. A value that an owner has typed carries nothing
that the owner did not know, and what a call of only such values does, the owner has named. So these calls need no question.
Everything here serves one aim: that nobody else can make a value an owner's, and that no value is one by chance.

**Who has typed.** `OwnerMessage` is made where a message of an owner is worked on, of the text as it came, and travels with the work
beside the text that models write (`OWNER_MESSAGES`). What a model has written is never one, whatever it quotes.

**What of a message counts.** Nothing of one above LONGEST_MESSAGE characters, which is more often pasted than typed; nothing between
the first and the last fence of code, no line that begins with `>`, no mail behind "On … wrote:" and its like, no sentence with a word
of exception ("anybody except bob@example.com"). The last two are a help, not a wall: language has more ways to quote and to exclude.

**Comparison.** Code point by code point, between blanks, quotes, or punctuation that stands beside blanks. So `x.com` is not in
`evil-x.com`, `x.com.evil` or `/x.com`, and no letter that looks like another one is that one. A value counts by itself if it has
LEAST characters and cannot stand there by chance: it holds one of `@/._#-`, or letters with digits, and no blank; or it stood in
quotes. Everything else, numbers above all, counts only directly behind the name of its field: "subject Lunch", "amount: 13". The
elements of a list must all differ, be few, and stand in the order of the text, so that a choice or an order says nothing.

    text = OwnerText("Pay the bill bill-7.txt, amount: 13")
    calls = units_of({"file": "bill-7.txt", "amount": 13}, schema)
    all(map(text.holds, calls))   # True
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

import attrs

from pegasus.messages import Json, Metadata
from pegasus.wire import encode_json

OWNER_MESSAGES: Final = "ownerMessages"
"""Key in the metadata of tasks, and of what they are told later: the messages of owners that the work comes of. Stored, so it must not
change."""
LONGEST_MESSAGE: Final = 2_000
"""Characters of a message that counts."""
MOST_MESSAGES: Final = 20
"""Messages of one work that count, the newest ones."""
LONGEST_VALUE: Final = 1_000
"""Characters of a value that counts."""
LEAST: Final = 6
"""Characters of a value that counts by itself."""
MOST_ELEMENTS: Final = 10
"""Elements of a list that counts."""
MOST_UNITS: Final = 100
"""Values of a call, those within lists too, that are looked at. A call with more is none of an owner's."""
DEEPEST: Final = 8
"""Levels of arguments that are looked at."""

_GONE: Final = "\0"
"""Stands in the place of what does not count, so that nothing reaches across."""
_FENCED: Final = re.compile(r"```(?:.*```|.*\Z)|^[ \t]*~~~(?:.*^[ \t]*~~~[ \t]*$|.*\Z)", re.DOTALL | re.MULTILINE)
"""Code, up to the last fence of the message: what stands in it may hold fences, too."""
_CITED: Final = re.compile(r"^[^\w\n]*[>＞].*$", re.MULTILINE)
"""Lines that begin with `>`, behind whatever blanks and marks, seen or unseen."""
_PASTED: Final = re.compile(
    r"^[^\w\n]*(?:begin forwarded message\b|(?:original|forwarded) message\b|on [^\n]{1,200}(?:\n[^\n]{0,100})?\bwrote:[ \t]*$"
    r"|from:[^\n]*\n[^\w\n]*(?:sent|date|to|subject):).*\Z",
    re.DOTALL | re.MULTILINE | re.IGNORECASE,
)
"""A mail of somebody else behind the line by which programs begin one, up to the end of the message."""
_SENTENCE: Final = re.compile(r"[^\n.!?;…。！？；]*(?:[.!?;…](?!\s|\Z)[^\n.!?;…。！？；]*)*(?:[.!?;…。！？；]+|\n|\Z)")
_EXCEPTION: Final = re.compile(
    r"\b(?:except|excepting|excluding|never|not|cannot|without|unless|avoid|neither|nor|instead of|rather than|other than)\b|n['’]t\b",
    re.IGNORECASE,
)
"""Words of exception in the languages of the program's own texts, of which there is one."""

_WIDE: Final = "，。！？；：、（）「」『』《》【】"
"""Punctuation of scripts that have no blanks."""
_PAIRS: Final = {
    '"': '"',
    "'": "'",
    "`": "`",
    "“": "”",
    "„": "“",
    "‘": "’",
    "‚": "‘",
    "«": "»",
    "»": "«",
    "「": "」",
    "『": "』",
}
"""Quotes, each with the one that closes it."""
_BEFORE: Final = frozenset({*_PAIRS, *"([{<"})
"""Punctuation that may stand between a blank and a value."""
_ENDS: Final = frozenset(".,;:!?…")
"""Punctuation that may stand between a value and the quote behind it."""
_BEHIND: Final = frozenset({*_PAIRS.values(), *_ENDS, *")]}>"})
"""Punctuation that may stand between a value and a blank."""
_TELLING: Final = frozenset("@/._#-")
_NUMBER: Final = re.compile(r"[+-]?\d+(?:[.,]\d+)*")
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W_A-Za-z\d]+")


@attrs.frozen
class OwnerMessage:
    """A message that an owner has typed, as the work that comes of it keeps it."""

    id: str
    """Name by which it is told from other messages: conversation and id."""
    text: str
    """Text as it was typed."""
    may_act: bool = True
    """Calls that change something may pass by its values. False where other work that comes of it may make them."""


def owner_metadata(messages: Sequence[OwnerMessage]) -> dict[str, Json]:
    """Return the metadata by which work keeps these messages, {} if none of them can count."""
    kept = [message for message in messages if 0 < len(message.text) <= LONGEST_MESSAGE][-MOST_MESSAGES:]
    lines: list[Json] = [{"id": each.id, "text": each.text, "mayAct": each.may_act} for each in kept]
    return {OWNER_MESSAGES: lines} if lines else {}


def parse_owner_messages(metadata: Metadata) -> tuple[OwnerMessage, ...]:
    """Return the messages in some metadata, oldest first. What cannot be read counts for nothing."""
    lines = metadata.get(OWNER_MESSAGES)
    return tuple(
        OwnerMessage(id, text, line.get("mayAct") is True)
        for line in (lines if isinstance(lines, list | tuple) else ())
        if isinstance(line, Mapping)
        and isinstance(id := line.get("id"), str)
        and isinstance(text := line.get("text"), str)
    )


# ------------------------------------------------------------------ values of a call


@attrs.frozen(eq=False)
class ValueUnit:
    """A value of a call that must be an owner's: a single one, or a list with all that is in it."""

    field: str
    """Name of the parameter that it belongs to; "" for the name of a parameter that the schema does not know."""
    value: Json
    """The value."""
    schema: Metadata = attrs.field(factory=dict)
    """Schema of the elements of a list."""
    root: Metadata = attrs.field(factory=dict)
    """Schema of the whole call, in which references are looked up."""


class TooManyValues(ValueError):
    """A call has more values, or deeper ones, than anybody has typed. `units_of` raises it; the call is then no owner's."""


def units_of(arguments: Metadata, schema: Metadata) -> list[ValueUnit]:
    """Return the values of a call. Raises TooManyValues.

    Left out are values that are the schema's default, and nulls, which say nothing. A parameter that the schema does not name is a
    value itself: its name could say anything.
    """
    if _count(arguments) > MOST_UNITS:
        raise TooManyValues(f"more than {MOST_UNITS} values")
    return list(_units(arguments, schema, "", schema, DEEPEST))


def _count(value: Json) -> int:
    """Return how many values there are within a value, as far as that matters. Empty ones count, too."""
    waiting, count = [value], 0
    while waiting and count <= MOST_UNITS:
        each, count = waiting.pop(), count + 1
        inner = each.values() if isinstance(each, Mapping) else each if isinstance(each, list | tuple) else ()
        waiting += inner
    return count


def _units(value: Json, schema: Metadata, field: str, root: Metadata, levels: int) -> Iterator[ValueUnit]:
    if levels <= 0:
        raise TooManyValues(f"more than {DEEPEST} levels")
    if value is None or ("default" in schema and encode_json(schema["default"]) == encode_json(value)):
        return
    if isinstance(value, list | tuple):
        if value:
            yield ValueUnit(field, value, schema, root)
    elif isinstance(value, Mapping):
        known = _properties(schema, root)
        for name, each in value.items():
            if name not in known:
                yield ValueUnit("", name)
            yield from _units(each, known.get(name, {}), name, root, levels - 1)
    else:
        yield ValueUnit(field, value)


def _branches(schema: Metadata, root: Metadata, levels: int = DEEPEST) -> Iterator[Metadata]:
    """Yield a schema with the ones that it refers to or is made of."""
    yield schema
    if levels <= 0:
        return
    others: list[Json] = []
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/"):
        found: Json = root
        for part in reference[2:].split("/"):
            found = found.get(part) if isinstance(found, Mapping) else None
        others.append(found)
    for key in ("anyOf", "oneOf", "allOf"):
        branches = schema.get(key)
        others += branches if isinstance(branches, list) else []
    for other in others[:MOST_ELEMENTS]:
        if isinstance(other, Mapping):
            yield from _branches(other, root, levels - 4)


def _properties(schema: Metadata, root: Metadata) -> dict[str, Metadata]:
    """Return the parameters that a schema names."""
    known: dict[str, Metadata] = {}
    for branch in _branches(schema, root):
        properties = branch.get("properties")
        for name, each in properties.items() if isinstance(properties, Mapping) else ():
            known.setdefault(name, each if isinstance(each, Mapping) else {})
    return known


def _elements(schema: Metadata, root: Metadata) -> Metadata:
    for branch in _branches(schema, root):
        if isinstance(items := branch.get("items"), Mapping):
            return items
    return {}


# ------------------------------------------------------------------ the text of an owner


@lru_cache(maxsize=256)
def counting_part(text: str) -> str:
    """Return what counts of a message, with a mark in the place of each part that does not."""
    if len(text) > LONGEST_MESSAGE:
        return ""
    text = "\n".join(text.replace(_GONE, " ").splitlines())
    for pattern in (_FENCED, _CITED, _PASTED):
        text = pattern.sub(_GONE, text)
    return _SENTENCE.sub(lambda found: _GONE if _EXCEPTION.search(found[0]) else found[0], text)


@lru_cache(maxsize=512)
def _behind_field(field: str) -> re.Pattern[str] | None:
    """Return the pattern that ends where the value of a field begins, None for a name that no text can have."""
    words = _WORD.findall(field[:100])
    if not words:
        return None
    name = r"[ _-]?".join(map(re.escape, words))
    return re.compile(rf"(?<!\w)(?<!\w-){name}(?:[ \t]*[:=][ \t]*|[ \t]+)", re.IGNORECASE)


class OwnerText:
    """A message of an owner, in which values are looked for."""

    def __init__(self, text: str) -> None:
        self._text = counting_part(text)
        """The part that counts."""

    def holds(self, unit: ValueUnit) -> bool:
        """Return whether a value is the owner's."""
        return self._place(unit, 0) >= 0

    def _place(self, unit: ValueUnit, start: int) -> int:
        """Return where a value stands for the first time from a place on; -1 if nowhere."""
        value = unit.value
        if isinstance(value, list | tuple):
            return self._place_of_list(unit, value, start)
        if isinstance(value, bool):
            return self._behind_name(unit.field, ("true" if value else "false",), start)
        if isinstance(value, int | float):
            return self._behind_name(unit.field, _written_forms(value), start)
        if not isinstance(value, str) or not 0 < len(value) <= LONGEST_VALUE or _GONE in value:
            return -1
        if value not in self._text:  # most values that are not the owner's
            return -1
        alone = self._by_itself(value, start)
        return alone if alone >= 0 else self._behind_name(unit.field, (value,), start)

    def _place_of_list(self, unit: ValueUnit, elements: Sequence[Json], start: int) -> int:
        """Return where a list begins whose elements stand one behind the other; -1 if they do not."""
        if len(elements) > MOST_ELEMENTS or len({encode_json(each) for each in elements}) < len(elements):
            return -1
        first, place, schema = -1, start, _elements(unit.schema, unit.root)
        for element in elements:
            if not isinstance(element, list | tuple | Mapping):
                units = [ValueUnit(unit.field, element)]
            else:
                try:
                    units = list(_units(element, schema, unit.field, unit.root, DEEPEST // 2))
                except TooManyValues:
                    return -1
            places = [self._place(each, place) for each in units]
            if min(places, default=-1) < 0:
                return -1
            first = min(places) if first < 0 else first
            place = min(places) + 1
        return first

    def _behind_name(self, field: str, forms: Sequence[str], start: int) -> int:
        """Return where one of these forms of a value stands directly behind the name of its field; -1 if nowhere."""
        pattern, text = _behind_field(field), self._text
        for found in pattern.finditer(text) if pattern is not None else ():
            place = found.end()
            while place < len(text) and text[place] in _BEFORE:
                place += 1
            if place >= start and any(text.startswith(form, place) and self._ends(place + len(form)) for form in forms):
                return place
        return -1

    def _by_itself(self, value: str, start: int) -> int:
        """Return where a value stands that cannot do so by chance; -1 if nowhere."""
        if len(value) < LEAST or _NUMBER.fullmatch(value):
            return -1
        is_telling = not any(map(str.isspace, value)) and (
            not _TELLING.isdisjoint(value) or (any(map(str.isalpha, value)) and any(map(str.isdigit, value)))
        )
        text = self._text
        place = text.find(value, start)
        while place >= 0:
            end = place + len(value)
            if (is_telling and self._begins(place) and self._ends(end)) or self._is_quoted(place, end):
                return place
            place = text.find(value, place + 1)
        return -1

    def _is_quoted(self, place: int, end: int) -> bool:
        """Return whether a part of the text stands in quotes, whole, but for punctuation in front of the last quote."""
        text = self._text
        closing = _PAIRS.get(text[place - 1]) if place else None
        while end < len(text) and text[end] != closing and text[end] in _ENDS:
            end += 1
        if closing is None or end == len(text) or text[end] != closing:
            return False
        return closing in _WIDE or (self._begins(place - 1) and self._ends(end + 1))

    def _begins(self, place: int) -> bool:
        """Return whether a value may begin here: behind a blank, or behind punctuation that stands behind one."""
        text = self._text
        while place and text[place - 1] in _BEFORE:
            place -= 1
        return not place or _is_blank(text[place - 1])

    def _ends(self, place: int) -> bool:
        """Return whether a value may end here: in front of a blank, or of punctuation that stands in front of one."""
        text = self._text
        while place < len(text) and text[place] in _BEHIND:
            place += 1
        return place == len(text) or _is_blank(text[place])


def _is_blank(character: str) -> bool:
    return character.isspace() or character == _GONE or character in _WIDE


def _written_forms(number: float) -> tuple[str, ...]:
    """Return a number as people may have typed it: 13.0 is 13 as well."""
    if isinstance(number, int) or not number.is_integer() or abs(number) >= 1e15:
        return (encode_json(number),)
    return f"{number:.0f}", encode_json(number)
