"""Declaration of keys and sections: the one place from which everything else knows what a key may hold.

A settings class in `sections` is an attrs class whose fields are made by the functions here::

    @attrs.frozen(eq=False, repr=False)
    class GatewaySettings:
        '''The WebSocket server.'''

        port: int = whole(7717, "0 = any free port", least=0, most=65535)

Each such field has a default, and a `Key` in its metadata with attrs validators for its limits and the words for people. The
check of a value is in two steps: a cattrs converter brings it into the field's type, without guessing (`"1"` is no number,
`true` is no 1), then the validators look at the limits. They are not the field's own validators, because a default may say
"nothing" where a person must not (`models.routes.NAME.model`). Error messages, the file of `pegasus init`, `config show`
and the test of docs/user/settings.md read the same metadata, so that they cannot contradict the check.

Values are never converted from one type to another. Guessing types has known results in YAML (`no` is false, `1.10` is 1.1);
a person who wrote `port = "7717"` gets an error that says what to write instead. Text from outside a file, where there are no
quotes to tell the types apart, is converted by `sources` before it comes here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, TypeVar

import attrs
import cattrs
from attrs import validators

from pegasus.settings.errors import one_of

T = TypeVar("T")

Validator: TypeAlias = Callable[[Any, "attrs.Attribute[Any]", Any], object]

_METADATA: Final = "pegasus"
"""Name under which a field's metadata has its Key or Section."""


@attrs.frozen
class Key:
    """Description of a key that holds one value.

    Example::

        Key("0 = any free port", "a whole number from 0 to 65535", (validators.ge(0), validators.le(65535)))
    """

    doc: str
    """Meaning, one line."""
    allowed: str
    """Values it may hold, as error messages and the documentation say it; "" for a table."""
    checks: tuple[Validator, ...] = ()
    """attrs validators of a value that has the right type."""
    secret: bool = False
    """The value is never shown."""
    each: attrs.Attribute[Any] | None = None
    """Of a table with names of the user's own: the field that describes each of its values."""


@attrs.frozen
class Section:
    """Description of a field that is a table of keys (`[gateway]`).

    Example::

        Section(ProviderSettings, named=True)  # [providers.NAME]
    """

    cls: type[attrs.AttrsInstance]
    """Class of the table."""
    named: bool = False
    """The field holds such tables under names of the user's own (`[providers.NAME]`)."""
    models: bool = False
    """These names are those of models (`[prices."provider/model"]`)."""


def keys_of(cls: type[attrs.AttrsInstance]) -> Mapping[str, Key | Section]:
    """Return the keys and sections of a settings class in the order of definition.

    Fields without metadata (`Settings.origins`) are no settings, and are left out.
    """
    return {field.name: field.metadata[_METADATA] for field in attrs.fields(cls) if _METADATA in field.metadata}


def key_of(field: attrs.Attribute[Any]) -> Key:
    """Return the Key of a field that holds one value."""
    key: Key = field.metadata[_METADATA]
    return key


def check_value(field: attrs.Attribute[Any], value: object) -> Any:
    """Return the value in the field's own type. Raises ValueError if the field does not allow it.

    value: as TOML has it. The error has no message for people: the caller makes one of the key's `allowed`.
    """
    structured = _CONVERTER.structure(value, field.type)  # type: ignore[arg-type]
    for check in key_of(field).checks:
        check(None, field, structured)
    return structured


def is_clean(text: str) -> bool:
    """Return True for text without control characters and halves of surrogate pairs, which no header, path or host has."""
    return not any(ord(c) < 32 or ord(c) == 127 or 0xD800 <= ord(c) <= 0xDFFF for c in text)


# ------------------------------------------------------------------ types


def _make_converter() -> cattrs.Converter:
    """Return a converter that accepts a value only as its own type; numbers without a fraction are floats too."""
    converter = cattrs.Converter(detailed_validation=False)
    converter.register_structure_hook(bool, _structure_flag)
    converter.register_structure_hook(int, _structure_whole)
    converter.register_structure_hook(float, _structure_number)
    converter.register_structure_hook(str, _structure_text)
    converter.register_structure_hook_func(lambda type_: type_ == tuple[str, ...], _structure_texts)
    return converter


def _structure_flag(value: object, _type: object) -> bool:
    """Accept true and false. cattrs itself would accept 0, "" and any other value."""
    if not isinstance(value, bool):
        raise ValueError("not true or false")
    return value


def _structure_whole(value: object, _type: object) -> int:
    """Accept a whole number. In Python true is one as well, in a settings file it is a mistake."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError("not a whole number")
    return value


def _structure_number(value: object, _type: object) -> float:
    """Accept a number with or without a fraction. inf and nan, which TOML has, would pass most comparisons with limits."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not _is_finite(value):
        raise ValueError("not a finite number")
    return float(value)


def _structure_text(value: object, _type: object) -> str:
    """Accept one line of text. A line break in a key or a host is the mark of a file that was read into a variable."""
    if not isinstance(value, str) or not is_clean(value):
        raise ValueError("not one line of text")
    return value


def _structure_texts(value: object, _type: object) -> tuple[str, ...]:
    """Accept a list of texts. A single text is no list of one, and must not become a list of its letters."""
    if not isinstance(value, list):
        raise ValueError("not a list")
    return tuple(_structure_text(item, str) for item in value)


def _is_finite(value: float) -> bool:
    """Return True for a number that a float can hold."""
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond what a float can hold
        return False


_CONVERTER: Final = _make_converter()
"""Converter of single values. `wire` has another one, for JSON, which is lenient where this one is strict."""


# ------------------------------------------------------------------ fields


def number(
    default: float, doc: str, *, least: float | None = None, above: float | None = None, most: float | None = None
) -> float:
    """Declare a key that holds a finite number: at least `least`, or more than `above`, and at most `most`."""
    return _key(Key(doc, _range_text("a number", least, above, most), _limits(least, above, most)), default)


def whole(default: int, doc: str, *, least: int, most: int | None = None) -> int:
    """Declare a key that holds a whole number."""
    return _key(Key(doc, _range_text("a whole number", least, None, most), _limits(least, None, most)), default)


def text(default: str, doc: str, *, filled: bool = False, secret: bool = False) -> str:
    """Declare a key that holds a line of text. filled: not an empty one. secret: never shown."""
    allowed = "one line of text, not empty" if filled else "one line of text"
    return _key(Key(doc, allowed, (validators.min_len(1),) if filled else (), secret), default)


def choice(default: str, doc: str, *choices: str) -> str:
    """Declare a key that holds one of some words."""
    return _key(Key(doc, one_of(choices), (validators.in_(choices),)), default)


def flag(default: bool, doc: str) -> bool:
    """Declare a key that holds true or false."""
    return _key(Key(doc, "true or false"), default)


def texts(doc: str, *default: str) -> tuple[str, ...]:
    """Declare a key that holds a list of texts."""
    return _key(Key(doc, 'a list of texts, as ["a", "b"]'), default)


def seconds_by_name(doc: str) -> Mapping[str, float]:
    """Declare a table of times above 0, empty by default."""
    table: Mapping[str, float] = _table(doc, _SecondsItem, secret=False)
    return table


def texts_by_name(doc: str) -> Mapping[str, str]:
    """Declare a table of secret texts, empty by default."""
    table: Mapping[str, str] = _table(doc, _SecretItem, secret=True)
    return table


def section(cls: type[attrs.AttrsInstance], factory: Callable[[], T] | None = None) -> Any:
    """Declare a section. factory: makes its default, if that is not `cls()`.

    The result is typed Any, because a type checker knows only `attrs.field` itself as something that may stand for a value.
    """
    return attrs.field(factory=factory or cls, metadata={_METADATA: Section(cls)})


def sections(cls: type[attrs.AttrsInstance], factory: Callable[[], object] = dict, *, models: bool = False) -> Any:
    """Declare sections under names of the user's own. models: under names of models."""
    return attrs.field(factory=factory, metadata={_METADATA: Section(cls, named=True, models=models)})


def _key(key: Key, default: T) -> T:
    """Return the attrs field of a key; it has the key's type for type checkers."""
    field: Any = attrs.field(default=default, metadata={_METADATA: key})
    declared: T = field
    return declared


def _table(doc: str, item: type[attrs.AttrsInstance], *, secret: bool) -> Any:
    """Return the attrs field of a table with names of the user's own."""
    (each,) = attrs.fields(attrs.resolve_types(item))
    return attrs.field(factory=dict, metadata={_METADATA: Key(doc, "", (), secret, each)})


def _limits(least: float | None, above: float | None, most: float | None) -> tuple[Validator, ...]:
    """Return validators for the bounds that are given."""
    bounds = ((validators.ge, least), (validators.gt, above), (validators.le, most))
    return tuple(validator(bound) for validator, bound in bounds if bound is not None)


def _range_text(words: str, least: float | None, above: float | None, most: float | None) -> str:
    """Return the bounds in words."""
    if least is not None and most is not None:
        return f"{words} from {least} to {most}"
    if above is not None:
        return f"{words} above {above}" + (f", at most {most}" if most is not None else "")
    return f"{words}, at least {least}" if least is not None else words


@attrs.frozen
class _SecondsItem:
    """Value of a table of times. A class, so that each value of a table is checked by a field like any other key."""

    value: float = number(1.0, "", above=0)


@attrs.frozen
class _SecretItem:
    """Value of a table of secret texts."""

    value: str = text("", "", secret=True)
