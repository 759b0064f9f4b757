"""What a key may hold.

A settings class says it where it defines the key; everything else (checking, the commented file of `pegasus init`,
`config show`, the test of the documentation) reads it from there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import attrs

from pegasus.settings.errors import one_of

T = TypeVar("T")

RULE: Final = "rule"
"""Where a field's metadata has its Rule."""


class Unfit(ValueError):
    """A value the rule does not allow."""


class Rule:
    """A key that holds one value. doc: what it means, one line. secret: never shown."""

    allowed = ""
    textual = False

    def __init__(self, doc: str, *, secret: bool = False) -> None:
        self.doc = doc
        self.secret = secret

    def check(self, value: object) -> object:
        """The value in the field's own type. Raises Unfit."""
        raise NotImplementedError


class NumberRule(Rule):
    """A finite number; whole: without a fraction."""

    def __init__(self, doc: str, *, whole: bool, least: float | None, above: float | None, most: float | None) -> None:
        super().__init__(doc)
        self.whole, self.least, self.above, self.most = whole, least, above, most

    @property
    def allowed(self) -> str:  # type: ignore[override]
        """In words, for error messages and the documentation."""
        words = "a whole number" if self.whole else "a number"
        if self.least is not None and self.most is not None:
            return f"{words} from {self.least} to {self.most}"
        if self.above is not None:
            return f"{words} above {self.above}" + (f", at most {self.most}" if self.most is not None else "")
        return f"{words}, at least {self.least}" if self.least is not None else words

    def check(self, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int if self.whole else int | float):
            raise Unfit
        if not math.isfinite(value) or not self._in_range(value):
            raise Unfit
        return value if self.whole else float(value)

    def _in_range(self, value: float) -> bool:
        return not (
            (self.least is not None and value < self.least)
            or (self.above is not None and value <= self.above)
            or (self.most is not None and value > self.most)
        )


class TextRule(Rule):
    """One line of text, or one of `choices`. filled: not empty."""

    textual = True

    def __init__(self, doc: str, *, choices: tuple[str, ...] = (), filled: bool = False, secret: bool = False) -> None:
        super().__init__(doc, secret=secret)
        self.choices, self.filled = choices, filled

    @property
    def allowed(self) -> str:  # type: ignore[override]
        """In words, for error messages and the documentation."""
        if self.choices:
            return one_of(self.choices)
        return "one line of text" + (", not empty" if self.filled else "")

    def check(self, value: object) -> str:
        if not isinstance(value, str) or not is_clean(value):
            raise Unfit
        if (self.choices and value not in self.choices) or (self.filled and not value):
            raise Unfit
        return value


class FlagRule(Rule):
    """true or false."""

    allowed = "true or false"

    def check(self, value: object) -> bool:
        if not isinstance(value, bool):
            raise Unfit
        return value


class TextsRule(Rule):
    """A list of texts."""

    allowed = 'a list of texts, as ["a", "b"]'

    def check(self, value: object) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(isinstance(item, str) and is_clean(item) for item in value):
            raise Unfit
        return tuple(value)


class TableRule(Rule):
    """A table whose keys are the person's own names; `each` checks its values."""

    def __init__(self, doc: str, each: Rule, *, secret: bool = False) -> None:
        super().__init__(doc, secret=secret)
        self.each = each


class SectionRule:
    """A table of keys (`[gateway]`); named: a table of such tables under the person's own names (`[providers.NAME]`).

    models: the names are those of models (`[prices."provider/model"]`).
    """

    def __init__(self, cls: type[attrs.AttrsInstance], *, named: bool, models: bool = False) -> None:
        self.cls, self.named, self.models = cls, named, models


def is_clean(text: str) -> bool:
    """True without control characters and halves of surrogate pairs, which no header, path or host may have."""
    if text.isascii() and text.isprintable():
        return True
    return not any(ord(c) < 32 or ord(c) == 127 or 0xD800 <= ord(c) <= 0xDFFF for c in text)


# ------------------------------------------------------------------ how the classes of model.py say it


def _key(rule: Rule, *, default: T | None = None, factory: Callable[[], T] | None = None) -> T:
    metadata = {RULE: rule}
    made: Any = (
        attrs.field(factory=factory, metadata=metadata)
        if factory is not None
        else attrs.field(default=default, metadata=metadata)
    )
    field: T = made
    return field


def number(
    default: float, doc: str, *, least: float | None = None, above: float | None = None, most: float | None = None
) -> float:
    """A key that holds a number."""
    return _key(NumberRule(doc, whole=False, least=least, above=above, most=most), default=default)


def whole(default: int, doc: str, *, least: int, most: int | None = None) -> int:
    """A key that holds a whole number."""
    return _key(NumberRule(doc, whole=True, least=least, above=None, most=most), default=default)


def text(default: str, doc: str, *, filled: bool = False, secret: bool = False) -> str:
    """A key that holds a line of text."""
    return _key(TextRule(doc, filled=filled, secret=secret), default=default)


def choice(default: str, doc: str, *choices: str) -> str:
    """A key that holds one of some words."""
    return _key(TextRule(doc, choices=choices), default=default)


def flag(default: bool, doc: str) -> bool:
    """A key that holds true or false."""
    return _key(FlagRule(doc), default=default)


def texts(doc: str, *default: str) -> tuple[str, ...]:
    """A key that holds a list of texts."""
    return _key(TextsRule(doc), default=default)


def seconds_by_name(doc: str) -> Mapping[str, float]:
    """A table of times above 0, empty by default."""
    each = NumberRule("", whole=False, least=None, above=0, most=None)
    return _key(TableRule(doc, each), factory=dict)


def texts_by_name(doc: str) -> Mapping[str, str]:
    """A table of texts, empty by default. Its values are secrets."""
    return _key(TableRule(doc, TextRule("", secret=True), secret=True), factory=dict)


def section(cls: type[attrs.AttrsInstance]) -> Mapping[str, SectionRule]:
    """The metadata of a field that is a section."""
    return {RULE: SectionRule(cls, named=False)}


def sections(cls: type[attrs.AttrsInstance], *, models: bool = False) -> Mapping[str, SectionRule]:
    """The metadata of a field that has sections under names of the person's own; models: under names of models."""
    return {RULE: SectionRule(cls, named=True, models=models)}
