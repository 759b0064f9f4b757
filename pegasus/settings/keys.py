"""Declaration of keys and sections: the one place from which everything else knows what a key may hold.

A settings class in `sections` is an attrs class whose fields are made by the functions here::

    @attrs.frozen(eq=False, repr=False)
    class GatewaySettings:
        '''The WebSocket server.'''

        port: int = whole(7717, "0 = any free port", least=0, most=65535)

Each such field has a default, and a `Key` in its metadata with the type, the limits and the words for people. The limits are
not validators of the field, because a default may be empty where a configured value may not (`models.routes.NAME.model`). Error
messages, the file of `pegasus init`, `config show` and the test of docs/user/settings.md read the same metadata, so that they
cannot contradict the check.

Values are never converted from one type to another. Guessing types has known results in YAML (`no` is false, `1.10` is 1.1);
a person who wrote `port = "7717"` gets an error that says what to write instead. Text from outside a file, where there are no
quotes to tell the types apart, is converted by `sources` before it comes here.

Mistakes are `SettingsProblem`: where it is, what was found and what is allowed. Somebody who edits a file by hand makes several
mistakes at once, so that they are collected and raised together: fixing them one start at a time would take as many starts.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final, TypeVar

import attrs

from pegasus.formatting import cut_text, escape_unprintable

T = TypeVar("T")

_LONGEST_SHOWN: Final = 300
"""Characters of a key, and of what was found, that a message shows."""
_METADATA: Final = "pegasus"
"""Name under which a field's metadata has its Key or Section."""


@attrs.frozen
class Key:
    """Description of a key that holds one value.

    Example::

        Key("0 = any free port", "a whole number from 0 to 65535", int, lambda port: 0 <= port <= 65535)
    """

    doc: str
    """Meaning, one line."""
    allowed: str
    """Values it may hold, as error messages and the documentation say it; "" for a table."""
    type: type
    """bool, int, float, str, tuple for a list of texts, list for a list of tables, dict for a table with names of the user's own
    (`each`) or of anything."""
    is_allowed: Callable[[Any], bool] = lambda _: True
    """Limits of a value that has the type."""
    choices: tuple[str, ...] = ()
    """All values, if it holds one of some words."""
    secret: bool = False
    """The value is never shown."""
    has_ids: bool = False
    """The list may hold whole numbers too, which become texts."""
    restart: bool = False
    """A new value counts from the next start on; the old one stays in force until then."""
    each: Key | None = None
    """Of a table with names of the user's own: the description of each of its values."""

    def check(self, value: object) -> Any:
        """Return the value, as TOML has it, in the key's type. Raises ValueError if the key does not allow it.

        The error has no message for people: the caller makes one of `allowed`.
        """
        typed = _typed(value, self.type, has_ids=self.has_ids)
        if not self.is_allowed(typed):
            raise ValueError("outside of the limits")
        return typed


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
    words: tuple[str, ...] = ()
    """Words that may stand in place of such a name: roles of models."""
    known: Mapping[str, type[attrs.AttrsInstance]] = attrs.field(factory=dict)
    """Names whose tables have a class of their own, with more keys."""

    def class_of(self, name: str) -> type[attrs.AttrsInstance]:
        """Return the class of the table with this name."""
        return self.known.get(name, self.cls)


def keys_of(cls: type[attrs.AttrsInstance]) -> Mapping[str, Key | Section]:
    """Return the keys and sections of a settings class in the order of definition.

    Fields without metadata (`Settings.origins`) are no settings, and are left out.
    """
    return {field.name: field.metadata[_METADATA] for field in attrs.fields(cls) if _METADATA in field.metadata}


def walk(section: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Key, Any]]:
    """Yield path, description and value of every key of a settings object, in the order of definition."""
    for name, key in keys_of(type(section)).items():
        value = getattr(section, name)
        if isinstance(key, Key):
            yield (*path, name), key, value
        else:
            for inner_path, inner in _tables((*path, name), key, value):
                yield from walk(inner, inner_path)


def _tables(path: tuple[str, ...], section: Section, value: Any) -> list[tuple[tuple[str, ...], Any]]:
    """Return the tables of a section with their paths: itself, or those under names of the user's own."""
    return [((*path, name), inner) for name, inner in value.items()] if section.named else [(path, value)]


# ------------------------------------------------------------------ types

_ACCEPTED: Final[Mapping[type, Any]] = {
    bool: bool,
    int: int,
    float: int | float,
    str: str,
    tuple: list,
    list: list,
    dict: dict,
}
"""Types of TOML values that each type of key takes: numbers without a fraction are floats too."""


def _id_text(value: object) -> object:
    """Return an id as text: services number people, and a person writes such an id with or without quotes."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _typed(value: object, type_: type, *, has_ids: bool = False) -> Any:
    """Return the value in the type. Raises ValueError for a value of another type, and for what no key holds.

    has_ids: a list may hold whole numbers too, which become texts.

    In Python true is a whole number as well, in a settings file it is a mistake. inf and nan, which TOML has, would pass most
    comparisons with limits. A line break in a text is the mark of a file that was read into a variable.
    """
    if not isinstance(value, _ACCEPTED[type_]) or (isinstance(value, bool) and type_ is not bool):
        raise ValueError("another type")
    if type_ is float and not abs(value) <= sys.float_info.max:
        raise ValueError("not a finite number")
    if type_ is str and not is_clean(value):
        raise ValueError("not one line of text")
    if type_ is tuple:
        return tuple(_typed(_id_text(item) if has_ids else item, str) for item in value)
    if type_ is list:  # a tuple, since settings are never changed
        return tuple({name: _typed(text, str) for name, text in _typed(item, dict).items()} for item in value)
    return type_(value)


def is_clean(text: str) -> bool:
    """Return True for text without control characters and halves of surrogate pairs, which no header, path or host has."""
    return not any(ord(c) < 32 or ord(c) == 127 or 0xD800 <= ord(c) <= 0xDFFF for c in text)


def is_json_table(value: object) -> bool:
    """Return True for a TOML value that is JSON too: tables, lists, clean texts, finite numbers, true and false, but no dates."""
    if isinstance(value, Mapping):
        return all(is_clean(name) and is_json_table(item) for name, item in value.items())
    if isinstance(value, list):
        return all(map(is_json_table, value))
    if isinstance(value, str):
        return not any(0xD800 <= ord(c) <= 0xDFFF for c in value)
    return isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value))


def is_bare(name: str) -> bool:
    """Return True for a name that may stand in a table's head without quotes: letters, digits, - and _ only."""
    return name.isascii() and name.replace("-", "a").replace("_", "a").isalnum()


# ------------------------------------------------------------------ fields


def number(
    default: float,
    doc: str,
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    type: type = float,
    restart: bool = False,
) -> float:
    """Declare a key that holds a finite number: at least `least`, or more than `above`, and at most `most`.

    restart: here and below, a new value counts from the next start on.
    """

    def in_range(value: float) -> bool:
        """Return whether the value is within the limits of the key."""
        return (
            (least is None or value >= least) and (above is None or value > above) and (most is None or value <= most)
        )

    allowed = "a whole number" if type is int else "a number"
    if least is not None and most is not None:
        allowed += f" from {least} to {most}"
    elif least is not None:
        allowed += f", at least {least}"
    elif above is not None:
        allowed += f" above {above}" + (f", at most {most}" if most is not None else "")
    return _key(Key(doc, allowed, type, in_range, restart=restart), default)


def whole(default: int, doc: str, *, least: int, most: int | None = None, restart: bool = False) -> int:
    """Declare a key that holds a whole number."""
    declared: Any = number(default, doc, least=least, most=most, type=int, restart=restart)
    return declared  # type: ignore[no-any-return]


def text(default: str, doc: str, *, filled: bool = False, secret: bool = False, restart: bool = False) -> str:
    """Declare a key that holds a line of text. filled: not an empty one. secret: never shown."""
    if filled:
        return _key(Key(doc, "one line of text, not empty", str, bool, secret=secret, restart=restart), default)
    return _key(Key(doc, "one line of text", str, secret=secret, restart=restart), default)


def choice(default: str, doc: str, *choices: str, restart: bool = False) -> str:
    """Declare a key that holds one of some words."""
    return _key(Key(doc, one_of(choices), str, choices.__contains__, choices, restart=restart), default)


def flag(default: bool, doc: str, *, restart: bool = False) -> bool:
    """Declare a key that holds true or false."""
    return _key(Key(doc, "true or false", bool, restart=restart), default)


def texts(doc: str, *default: str) -> tuple[str, ...]:
    """Declare a key that holds a list of texts."""
    return _key(Key(doc, 'a list of texts, as ["a", "b"]', tuple), default)


def text_tables(doc: str, *names: str) -> tuple[Mapping[str, str], ...]:
    """Declare a list of tables with texts under these names, `[[section.key]]`. A later source replaces it as a whole."""
    allowed = f"a list of tables with the keys {', '.join(names)}, each one line of text"
    return _key(Key(doc, allowed, list, lambda tables: all(set(table) <= set(names) for table in tables)), ())


def ids(doc: str) -> tuple[str, ...]:
    """Declare a key that holds a list of ids, empty by default. They are texts; in a file they may be whole numbers."""
    return _key(Key(doc, 'a list of ids, as ["a", 123]', tuple, has_ids=True), ())


def seconds_by_name(doc: str) -> Mapping[str, float]:
    """Declare a table of times above 0, empty by default."""
    each = Key("", "a number above 0", float, lambda seconds: bool(seconds > 0))
    return _key(Key(doc, "", dict, each=each), attrs.Factory(dict))


def texts_by_name(doc: str, *, restart: bool = False) -> Mapping[str, str]:
    """Declare a table of secret texts, empty by default."""
    each = Key("", "one line of text", str, secret=True)
    return _key(Key(doc, "", dict, secret=True, restart=restart, each=each), attrs.Factory(dict))


def json_table(doc: str) -> Mapping[str, Any]:
    """Declare a table of anything that JSON can hold, empty by default. It is one value: a later source replaces it as a whole."""
    return _key(Key(doc, "a table of JSON values (no dates)", dict, is_json_table), attrs.Factory(dict))


def section(cls: type[attrs.AttrsInstance]) -> Any:
    """Declare a section, by default `cls()`.

    The result is typed Any, because a type checker knows only `attrs.field` itself as something that may stand for a value.
    """
    return attrs.field(factory=cls, metadata={_METADATA: Section(cls)})


def sections(
    cls: type[attrs.AttrsInstance],
    factory: Callable[[], object] = dict,
    *,
    models: bool = False,
    words: tuple[str, ...] = (),
    known: Mapping[str, type[attrs.AttrsInstance]] | None = None,
) -> Any:
    """Declare sections under names of the user's own.

    models: under names of models, or one of the words. known: names whose sections have a class of their own.
    """
    declared = Section(cls, named=True, models=models, words=words, known=known or {})
    return attrs.field(factory=factory, metadata={_METADATA: declared})


def _key(key: Key, default: T) -> T:
    """Return the attrs field of a key; it has the key's type for type checkers."""
    field: Any = attrs.field(default=default, metadata={_METADATA: key})
    declared: T = field
    return declared


# ------------------------------------------------------------------ mistakes


@attrs.frozen
class SettingsProblem:
    """One mistake; str() is one printable line: `FILE: gateway.port: found "x"; allowed: a whole number from 0 to 65535`.

    Example::

        SettingsProblem("pegasus.toml", "gateway.port", '"x"', "a whole number from 0 to 65535")
    """

    source: str
    """File, environment variable or option with the mistake."""
    key: str
    """Dotted key path; "" = the source as a whole."""
    found: str
    """The value as it is written in TOML, or a description of it. Never a secret."""
    allowed: str
    """The values that would be right; "" if `found` is a whole sentence."""
    hint: str = ""
    """One more sentence, or ""."""

    def __str__(self) -> str:
        key, found = cut_text(self.key, _LONGEST_SHOWN), cut_text(self.found, _LONGEST_SHOWN)
        place = f"{self.source}: {key}" if key else self.source
        line = f"{place}: found {found}; allowed: {self.allowed}" if self.allowed else f"{place}: {found}"
        line = f"{line}. {self.hint}" if self.hint else line
        # A key or value may hold any character; control characters are escaped, so that a mistake stays one harmless line.
        return escape_unprintable(line)


class SettingsError(Exception):
    """Settings that cannot be used. str() has one line for each mistake.

    Raised by `load_settings` for everything that is wrong, and by whatever finds out later that settings cannot work. At a start
    the process prints the lines and ends with `exit_code`; a reload logs them, and the old settings stay in force.

    Example::

        try:
            load_settings(SettingsSource(None, overrides=("gateway.port=x",)))
        except SettingsError as error:
            print(error)  # --set: gateway.port: found "x"; allowed: a whole number from 0 to 65535
    """

    exit_code = 78
    """EX_CONFIG of sysexits.h: a service manager must not restart the daemon, since nothing would change."""

    problems: tuple[SettingsProblem | str, ...]
    """Every mistake, not only the first."""

    def __init__(self, problems: Iterable[SettingsProblem | str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


def closest(name: str, names: Sequence[str]) -> str:
    """Return `Did you mean "port"?`, or "" where no name is near."""
    near = get_close_matches(name.lower(), names, n=1, cutoff=0.6)
    return f'Did you mean "{near[0]}"?' if near else ""


def one_of(names: Iterable[str]) -> str:
    """Return `"line" or "json"`; with more names `one of "a", "b", "c"`."""
    quoted = [f'"{name}"' for name in names]
    return " or ".join(quoted) if len(quoted) <= 2 else "one of " + ", ".join(quoted)


def describe_setting(value: object, *, secret: bool = False) -> str:
    """Return a value as it stands in a settings file; of a secret only its kind, of a long value only its beginning.

    For error messages: one printable line of bounded length, whatever was found.
    """
    if secret:
        return "a secret with control characters" if isinstance(value, str) else f"a {type(value).__name__}"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        shown = value if is_clean(value) else ascii(value)[1:-1]
        return f'"{shown}"' if len(shown) <= 60 else f'"{shown[:60]}…" ({len(shown)} characters)'
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, list):
        shown = ", ".join(describe_setting(item) for item in value[:3])
        return f"[{shown}{', …' if len(value) > 3 else ''}]"
    return str(value)[:60]
