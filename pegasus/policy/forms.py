"""Forms that an owner fills in: reading an answer that was typed, checking it, and showing the form.

An answer is `name=value` for each field, in any order and in one text, as `/approve a-7f3k beds=2 view=to the sea`: a value ends where
the name of another field follows. What is missing gets the default of its field. Values are checked here as far as the form says what
they are; the program that has asked checks the rest.

Two directions are kept apart. `parse_answer` takes a text apart and knows nothing of types; `fill_form` gives each value the
type of its field, whether it was typed or came as JSON from a program. Error messages name the field, what was found, and what
is allowed.

    fields = (FormField("beds", "integer", "How many", is_required=True, least=1, most=8),)
    fill_form(fields, parse_answer(fields, "beds=2"))  # {"beds": 2}
    describe_values(fields[0])                         # "whole number, 1 to 8"
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Final

from pegasus.formatting import quote, truncate
from pegasus.messages import FormField, Json, OwnerQuestion

LONGEST_VALUE: Final = 4_000
"""Characters of a value."""
LARGEST_WHOLE: Final = 2**53
"""Largest whole number that every JSON reader keeps exactly (RFC 8259, section 6)."""
_YES: Final = ("yes", "true", "on", "1")
"""Words for true, as people type them."""
_NO: Final = ("no", "false", "off", "0")
"""Words for false."""
_KINDS: Final = {"text": "text", "number": "number", "integer": "whole number", "boolean": "yes or no"}
"""Kinds of fields without choices, in words."""


class FormError(ValueError):
    """An answer that does not fit the form. The text says what is wrong and what is allowed.

    Raised by `parse_answer` and `fill_form`. The keeper of the approvals turns it into an ApprovalError, so that the question
    stays open and the person can answer again.

    Example::

        fill_form((FormField("beds", "integer", "How many"),), {"beds": "two"})  # raises FormError: beds: found "two", …
    """


def parse_answer(fields: Sequence[FormField], text: str) -> dict[str, Json]:
    """Return the values that a person has typed, by name. Raises FormError for what belongs to no field.

    Example: `parse_answer(fields, "beds=2 view=to the sea")` returns {"beds": "2", "view": "to the sea"}.
    """
    if not text.strip():
        return {}
    # A name counts only at the beginning or after a blank, so that "x=1" inside of a word belongs to the value.
    names = "|".join(re.escape(field.name) for field in fields)
    pieces = re.split(rf"(?:^|(?<=\s))({names})=", text.strip()) if names else [text]
    if pieces[0].strip():
        raise FormError(f"found {quote(pieces[0].strip(), 40)}; allowed: {_usage(fields)}")
    return {name: value.strip() for name, value in zip(pieces[1::2], pieces[2::2], strict=True)}


def fill_form(fields: Sequence[FormField], given: Mapping[str, Json]) -> dict[str, Json]:
    """Return the values of a form, checked, those that are missing being the defaults. Raises FormError.

    given: by name; numbers and choices may be texts, as people type them.
    """
    if unknown := set(given) - {field.name for field in fields}:
        raise FormError(f"there is no {quote(min(unknown), 40)}; allowed: {_usage(fields)}")
    values: dict[str, Json] = {}
    missing: list[str] = []
    for field in fields:
        value = given.get(field.name)
        if value is None:
            value = field.default
        if value is not None:
            # A default is checked like any other value: the program that asks may have declared one that does not fit.
            values[field.name] = _read_value(field, value)
        elif field.is_required:
            missing.append(field.name)
    if missing:
        raise FormError(f"{', '.join(missing)}: required; write {_usage(fields)}")
    return values


def _usage(fields: Sequence[FormField]) -> str:
    """Return how to answer: `beds=… view=…`."""
    return " ".join(f"{field.name}=…" for field in fields) or "nothing: it has no form"


def _read_value(field: FormField, value: Json) -> Json:
    """Return a value in the type of its field. Raises FormError."""
    found: Json | None
    match field.kind:
        case "boolean":
            found = _read_boolean(value)
        case "integer" | "number":
            found = _read_number(value, is_whole=field.kind == "integer")
        case "choice":
            found = _read_choice(field, value)
        case "choices":
            found = _read_choices(field, value)
        case _:
            found = value if isinstance(value, str) and len(value) <= LONGEST_VALUE else None
    if found is None or not _is_within(field, found):
        raise FormError(f"{field.name}: found {quote(str(value), 40)}, allowed: {describe_values(field)}")
    return found


def _read_boolean(value: Json) -> bool | None:
    """Return the truth value of a word, None if it is neither yes nor no."""
    word = str(value).strip().lower()
    return True if word in _YES else False if word in _NO else None


def _read_number(value: Json, *, is_whole: bool) -> float | int | None:
    """Return a number, None if it is none. A truth value is no number here, though Python counts it as one.

    is_whole: only a number without a fraction, which may be written as "2.0".
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    if not math.isfinite(number):
        return None
    if not is_whole:
        return number
    return int(number) if number.is_integer() and abs(number) <= LARGEST_WHOLE else None


def _read_choice(field: FormField, value: Json) -> str | None:
    """Return the choice that a text names, by its value or, if there is none, by its title."""
    word = str(value).strip().casefold()
    # First all values, then all titles: a title that equals the value of another choice does not hide that one.
    for names in ([choice.value for choice in field.choices], [choice.title for choice in field.choices]):
        for choice, name in zip(field.choices, names, strict=True):
            if name and name.casefold() == word:
                return choice.value
    return None


def _read_choices(field: FormField, value: Json) -> list[Json] | None:
    """Return the values of several choices, each once, in the order in which they were named; None if one is unknown."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list):
        return None
    found = [_read_choice(field, part) for part in parts if not isinstance(part, str) or part.strip()]
    return None if None in found else list(dict.fromkeys(found))


def _is_within(field: FormField, value: Json) -> bool:
    """Return whether a number, or the length of a text or list, is within the bounds of the field."""
    size = value if isinstance(value, int | float) else len(value) if isinstance(value, str | list) else 0
    is_large_enough = field.least is None or size >= field.least
    return field.kind in ("boolean", "choice") or (is_large_enough and (field.most is None or size <= field.most))


# ------------------------------------------------------------------ words


def describe_values(field: FormField) -> str:
    """Return what a field takes: `whole number, 1 to 8`, `single or double`."""
    unit = {"text": " characters", "choices": " of them"}.get(field.kind, "")
    kind = _KINDS.get(field.kind, "")
    if field.choices:
        names = [f"{choice.value} ({choice.title})" if choice.title else choice.value for choice in field.choices]
        kind = (" or " if field.kind == "choice" else ", ").join(names)
    match field.least, field.most:
        case None, None:
            return kind
        case least, None:
            return f"{kind}, at least {least:g}{unit}"
        case None, most:
            return f"{kind}, at most {most:g}{unit}"
        case least, most:
            return f"{kind}, {least:g} to {most:g}{unit}"


def describe_form(question: OwnerQuestion) -> list[str]:
    """Return a line for each field, such as `beds (whole number, required): How many beds`."""
    lines = []
    for field in question.fields:
        rest = "required" if field.is_required else "may be left out"
        if field.default is not None:
            rest = f"otherwise {truncate(field.default, 80)}"
        words = f": {field.description}" if field.description else ""
        lines.append(f"{field.name} ({describe_values(field)}; {rest}){words}")
    return lines
