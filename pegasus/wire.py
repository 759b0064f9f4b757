r"""Conversion between values in memory and JSON, for frames on the wire and for files on disk.

There are two steps, and one function for each direction of each step:

    attrs value  ── to_wire ──▶  JSON value  ── encode_json, encode_line ──▶  text, line of a file
    attrs value  ◀── from_wire ──  JSON value  ◀── decode_json, decode_object ──  text

Files of such lines are read by `pegasus.json_lines`.

A *JSON value* is what the `json` module works with: dicts, lists, strings, numbers, booleans and None.

**Values.** The classes know nothing of their wire format; it is here, once:

* Names are camelCase on the wire.
* Fields that hold their default are left out, and absent fields get it. So a field with a default can be added later,
  and older files and clients stay valid. Keys that a class does not know are ignored, for the opposite direction.
* Nothing is coerced. The string "5" is not a number, and 1 is not `true`: a sender that mixes them up has an error that
  should be found, not guessed away.
* Errors name the first field that does not fit, by its path on the wire: `channel.replyTo`, `media[1].mime`.
* What a stranger has sent is read with `is_foreign`. It can then be written as UTF-8 JSON again: it has no halves of surrogate pairs,
  no numbers beyond 64 bits and no endless nesting.
* What a model or a tool has given may hold what JSON cannot, such as NaN. `writable_object` replaces that, where refusing it would
  stop work.
* A class whose JSON is older than these rules, or is read more leniently, has functions for it (`use_functions`). They then apply
  wherever such a value is part of another one.

**Text.** Frames and files are written and read by these functions, so that two properties of the `json` module are changed the same
way everywhere:

* Text is written as it is (UTF-8), not as `\uXXXX` escapes. A lone surrogate cannot be written in UTF-8, so a text
  that contains one is written with escapes altogether; readers get the same string either way.
* NaN and Infinity are refused in both directions. They are not JSON, and other programs reject a file that holds them.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache, partial
from types import UnionType
from typing import Any, Literal, NoReturn, TypeVar, Union, get_args, get_origin

import attrs
from cattrs import ClassValidationError, Converter, IterableValidationError
from cattrs.errors import AttributeValidationNote, IterableValidationNote
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

from pegasus.messages import Json

T = TypeVar("T")
_Structure = Callable[[Any, Any], Any]
"""Function of cattrs from a parsed value and its type to a Python value. Raises _Misfit or a group of errors."""

DEEPEST = 64
"""Levels that free-form JSON (metadata) may nest. It is far below the depth at which writing it out again would fail."""
DEEPEST_FOREIGN = 32
"""Levels that lists and objects of strangers may nest: far below what recursive readers can take."""
MOST_ITEMS = 10_000
"""Items of a list of strangers, each of which takes some time to read. What they may send is mostly far less, and is refused later."""
END_OF_INTEGERS = 2**64
"""Whole numbers of strangers of this size and beyond are refused, because most JSON readers change them."""

MOST_LEVELS = 900
"""Levels of nesting in JSON that is read. What handles a value calls itself for each level, and Python ends that at 1,000; the
parser of Python 3.13 and newer follows many more."""
_BRACKET = re.compile(r'[\[\]{}]|"(?:[^"\\]|\\.)*+"?', re.DOTALL)
"""Brackets, and strings as a whole, since brackets in them do not count."""
_HALF_PAIR = re.compile("[\ud800-\udfff]")
"""Half of a surrogate pair. JSON can name one, and no UTF-8 can hold it."""


class WireError(ValueError):
    """A JSON value does not fit the class.

    try:
        message = from_wire(value, InboundMessage)
    except WireError as error:
        print(error.path, error.problem)   # channel.channelId: missing; this field is required

    Example: `from_wire({"type": "web"}, ChannelInfo)` raises it with the path "channelId".
    """

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}" if path else problem)
        self.path = path
        """The field that does not fit, as it is called on the wire; "" for the value as a whole."""
        self.problem = problem
        """Sentence with what was found and what is allowed, without the path."""


def to_wire(value: attrs.AttrsInstance) -> dict[str, Json]:
    """Return an attrs value as a JSON object. Free-form mappings are not copied.

    >>> to_wire(ChannelInfo("web", "c1"))
    {'type': 'web', 'channelId': 'c1'}

    Raises nothing for values of the product's own classes. The result can be encoded as JSON, if free-form
    metadata can.
    """
    wire: dict[str, Json] = _converter().unstructure(value)
    return wire


def from_wire(mapping: object, cls: type[T], *, is_foreign: bool = False) -> T:
    """Return the value of class `cls` that a JSON object stands for. Raises WireError, which names the first bad field.

    >>> from_wire({"type": "web", "channelId": "c1"}, ChannelInfo)
    ChannelInfo(type='web', channel_id='c1', user_id=None, reply_to=None)

    mapping: a parsed JSON value of any kind. Large values cost time in proportion to their size; nothing is
    kept of them. is_foreign: a stranger has sent it; texts, numbers and nesting that could not be written again are refused.
    """
    try:
        return (_foreign_converter() if is_foreign else _converter()).structure(mapping, cls)
    except (ClassValidationError, IterableValidationError, _Misfit) as error:
        raise WireError(*_first_problem(error)) from None


_FUNCTIONS: dict[type[Any], tuple[Callable[[Any], dict[str, Json]], Callable[[object], Any]]] = {}
"""Classes that are converted by functions, with the one that writes and the one that reads."""


def use_functions(cls: type[T], write: Callable[[T], dict[str, Json]], read: Callable[[object], T]) -> None:
    """Convert values of this class by these functions instead of by its fields. Called once, in the module of the class.

    read: raises ValueError for JSON that is no such value.
    """
    _FUNCTIONS[cls] = write, read


def camel(name: str) -> str:
    """Return a name in camelCase: `channel_id` becomes `channelId`."""
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


class SnakeCase:
    """Base of classes whose fields are written as they are called: those of OpenAI's interfaces."""


def wire_name(cls: type, name: str) -> str:
    """Return the name of a field of a class as it is written; a keyword of Python has a `_` behind it in the class."""
    return name if issubclass(cls, SnakeCase) else camel(name.removesuffix("_"))


def kind(value: object) -> str:
    """Return what JSON calls a parsed value, for messages to people."""
    names = {type(None): "null", bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "a list"}
    return "an object" if isinstance(value, Mapping) else names.get(type(value), type(value).__name__)


def describe(value: object) -> str:
    """Return a parsed JSON value as an error message shows it: plain ASCII, never more than some 60 characters.

    Lists and objects are named, not shown. Texts of any size and content may be passed.
    """
    if isinstance(value, (Mapping, list)) or value is None:
        return kind(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value) if len(value) <= 40 else f"{json.dumps(value[:40])}… ({len(value)} characters)"
    text = repr(value)
    return f"the number {text[:40]}{'…' if len(text) > 40 else ''}"


# ------------------------------------------------------------------ the converter


class _Misfit(ValueError):
    """A value is not of the kind that is expected. cattrs adds a note that says where."""


@cache
def _converter() -> Converter:
    """Return the converter, which is made at the first use: importing it should cost nothing."""
    return _make_converter(_checked, _check_json, DEEPEST)


@cache
def _foreign_converter() -> Converter:
    """Return the converter that reads what strangers have sent."""
    return _make_converter(_checked_foreign, _check_foreign, DEEPEST_FOREIGN, MOST_ITEMS)


def _make_converter(
    read_scalar: Callable[..., Any], check: Callable[[object, int], None], levels: int, items: float = math.inf
) -> Converter:
    """Return a converter. read_scalar: called as `_checked` is. check: refuses free-form JSON that could not be written again.

    items: that a list may have.
    """

    def read_any(value: object, _: object) -> object:
        """Return any JSON value."""
        check(value, levels)
        return value

    def read_object(value: object, _: object) -> object:
        """Return a free-form JSON object as it is."""
        return read_any(_checked((dict,), "an object", value), _)

    converter = Converter(omit_if_default=True)
    converter.register_structure_hook_func(lambda annotation: annotation is Any, read_any)
    for cls, allowed, words in _SCALARS:
        converter.register_structure_hook(cls, partial(read_scalar, allowed, words))
    converter.register_structure_hook_func(_is_json_object, read_object)
    converter.register_unstructure_hook_func(_is_json_object, lambda value: value)
    converter.register_structure_hook_factory(attrs.has, _class_structure)
    converter.register_unstructure_hook_factory(attrs.has, _class_unstructure)
    converter.register_structure_hook_factory(_is_tuple, lambda cls, converter: _tuple_structure(cls, converter, items))
    converter.register_structure_hook_factory(_is_choice, _choice_structure)
    converter.register_structure_hook_func(_is_literal, _literal)
    return converter


_SCALARS: tuple[tuple[type, tuple[type, ...], str], ...] = (
    (str, (str,), "a string"),
    (bool, (bool,), "true or false"),
    (int, (int,), "a whole number"),
    (float, (float, int), "a number"),
)
"""Scalar types with the Python types that JSON values of them may have, and their names for people. A whole number
is a valid float, as JSON writes 1.0 as 1 in many languages."""


def _checked(allowed: tuple[type, ...], words: str, value: Any, _: Any = None) -> Any:
    """Return the value, which must be of exactly one of these types; True is an int to Python, and no number on the wire.

    With its first two arguments given it is the reader of a scalar type.
    """
    if type(value) not in allowed:
        raise _Misfit(f"found {describe(value)}, allowed: {words}")
    return value


@cache
def _class_structure(cls: type[Any], converter: Converter) -> _Structure:
    """Return the reader of an attrs class. The generated code takes anything with [], so the kind is checked here.

    It is kept, as the writers are: cattrs would make it anew for each class that has a field of this one.
    A replay reads an object with each of 100,000 lines; one more call for each of them would be a twentieth of its time.
    """
    if cls in _FUNCTIONS:
        return partial(_read_by_function, _FUNCTIONS[cls][1])
    fields = make_dict_structure_fn(cls, converter, _cattrs_detailed_validation=True, **_renames(cls))

    def read(value: Any, _: Any) -> Any:
        """Return the value, after checking that an object was given."""
        return fields(value if type(value) is dict else _checked((dict,), "an object", value), cls)

    return read


def _read_by_function(read: Callable[[object], Any], value: object, _: Any) -> Any:
    try:
        return read(value)
    except ValueError as error:
        raise _Misfit(str(error)) from None


@cache
def _class_unstructure(cls: type[Any], converter: Converter) -> Callable[[Any], dict[str, Any]]:
    """Return the writer of an attrs class; fields that hold their default are left out."""
    if cls in _FUNCTIONS:
        return _FUNCTIONS[cls][0]
    return make_dict_unstructure_fn(cls, converter, _cattrs_omit_if_default=True, **_renames(cls))


def _renames(cls: type[Any]) -> dict[str, Any]:
    """Return the camelCase name of each field, for cattrs. Annotations are resolved here, since they are texts."""
    return {
        field.name: override(rename=wire_name(cls, field.name))
        for field in attrs.fields(attrs.resolve_types(cls, None, _NAMES))
    }


_NAMES: dict[str, Any] = {"Json": Any, "Mapping": Mapping}
"""Names that the annotation `Metadata` consists of. A class that uses it need not import them."""


def _is_tuple(annotation: Any) -> bool:
    return get_origin(annotation) is tuple


def _tuple_structure(annotation: Any, converter: Converter, most: float) -> _Structure:
    """Return the structure of `tuple[X, ...]`, of so many items at most, or of `tuple[X, Y]`, whose list must have just these."""
    kinds = get_args(annotation)
    if kinds[-1] is Ellipsis:
        try:
            hook = converter.get_structure_hook(kinds[0])
        except RecursionError:  # a class that has items of its own kind
            hook = converter.structure

        def items(value: Any, _: Any) -> tuple[Any, ...]:
            """Return the items. The first that does not fit ends it: a stranger may send half a million of them."""
            if len(value) > most:
                raise _Misfit(f"found a list of {len(value):,}, allowed: {most:,} items")
            found: list[Any] = []
            try:
                for item in value:
                    found.append(hook(item, kinds[0]))  # noqa: PERF401 its length names the item that does not fit
            except Exception as error:
                note = IterableValidationNote("", len(found), kinds[0])
                error.__notes__ = [*getattr(error, "__notes__", ()), note]
                raise IterableValidationError(str(annotation), [error], annotation) from None
            return tuple(found)
    else:
        hooks = [(converter.get_structure_hook(item), item) for item in kinds]

        def items(value: Any, _: Any) -> tuple[Any, ...]:
            """Return the items, each read by the reader of its place."""
            if len(value) != len(hooks):
                raise _Misfit(f"expected a list of {len(hooks)}, found {len(value)}")
            return tuple(hook(item, cls) for item, (hook, cls) in zip(value, hooks, strict=True))

    def read(value: Any, _: Any) -> Any:
        """Return the tuple, after checking that a list was given."""
        return items(value if type(value) is list else _checked((list,), "a list", value), annotation)

    return read


def _is_choice(annotation: Any) -> bool:
    """Return whether a value may be of several kinds, beside null."""
    return get_origin(annotation) in (Union, UnionType) and len({*get_args(annotation)} - {type(None)}) > 1


def _choice_structure(annotation: Any, converter: Converter) -> _Structure:
    """Return the reader of a value that may be of several kinds, told apart by what JSON has for them."""
    hooks = [(converter.get_structure_hook(item), item) for item in get_args(annotation) if item is not type(None)]
    has_null = len(hooks) < len(get_args(annotation))

    def read(value: Any, _: Any) -> Any:
        """Return the value by the first reader that takes it, else raise what the last one does."""
        if value is None and has_null:
            return None
        for hook, item in hooks[:-1]:
            with suppress(_Misfit):
                return hook(value, item)
        hook, item = hooks[-1]
        return hook(value, item)

    return read


def _is_literal(annotation: Any) -> bool:
    return get_origin(annotation) is Literal


def _literal(value: object, annotation: Any) -> object:
    """Return one of a few values."""
    allowed = get_args(annotation)
    if not any(type(value) is type(each) and value == each for each in allowed):
        names = ", ".join(describe(each) for each in allowed if each is not None)
        raise _Misfit(f"found {describe(value)}, allowed: {names}")
    return value


def _is_json_object(annotation: Any) -> bool:
    return get_origin(annotation) is Mapping


_SAFE = frozenset({str, int, bool, type(None)})
"""Types of JSON values that can always be written again."""


def _check_json(value: object, levels: int) -> None:
    """Refuse what could be read but not be written again: NaN, Infinity, nesting that is too deep."""
    if isinstance(value, (dict, list)):
        if not levels:
            raise _Misfit(f"nested deeper than {DEEPEST} levels")
        for item in value.values() if isinstance(value, dict) else value:
            if type(item) not in _SAFE:
                _check_json(item, levels - 1)
    # Only NaN and the infinities give a difference other than zero.
    elif isinstance(value, float) and value - value != 0:
        raise _Misfit("found NaN, Infinity or a number too large for a float, allowed: finite numbers")


# ------------------------------------------------------------------ values that JSON may not have

_TOO_DEEP = "(nested too deep)"
"""Replacement of a list or an object that is nested too deep."""


def writable_object(value: Mapping[str, object], levels: int = DEEPEST) -> dict[str, Json]:
    """Return an object that may hold anything as JSON that can be written and read back.

    Models send values that JSON does not have, since providers' parsers accept NaN. Such a number becomes null, nesting beyond
    `levels` below each key a note, anything else text.
    """
    return {str(key): _writable(item, levels) for key, item in value.items()}


def _writable(value: object, levels: int) -> Json:
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, list | tuple):
        return [_writable(item, levels - 1) for item in value] if levels else _TOO_DEEP
    if isinstance(value, Mapping):
        return {str(key): _writable(item, levels - 1) for key, item in value.items()} if levels else _TOO_DEEP
    return str(value)


# ------------------------------------------------------------------ values of strangers


def is_unicode(text: str) -> bool:
    """Return whether the text can be written as UTF-8: it has no half of a surrogate pair."""
    return text.isascii() or _HALF_PAIR.search(text) is None


def to_unicode(text: str) -> str:
    """Return the text with "?" for each half of a surrogate pair."""
    return text.encode("utf-8", "replace").decode()


def _checked_foreign(allowed: tuple[type, ...], words: str, value: Any, _: Any = None) -> Any:
    """Return the value as `_checked` does, if it can be written again."""
    _check_foreign(_checked(allowed, words, value), DEEPEST_FOREIGN)
    return value


def _check_foreign(value: object, levels: int) -> None:
    """Refuse what could not be written as UTF-8 JSON again, or only in a form that other readers change."""
    match value:
        case str() if not is_unicode(value):
            raise _Misfit(f"found half a surrogate pair in {describe(value)}, allowed: Unicode")
        case int() if abs(value) >= END_OF_INTEGERS:
            raise _Misfit(f"found {describe(value)}, which is beyond 64 bits; send it as a string")
        case float() if not math.isfinite(value):
            raise _Misfit("found a number beyond all floats; send it as a string")
        case dict() | list():
            if not levels:
                raise _Misfit(f"found JSON nested too deep, allowed: {DEEPEST_FOREIGN} levels")
            for item in value if isinstance(value, list) else [*value.keys(), *value.values()]:
                _check_foreign(item, levels - 1)


# ------------------------------------------------------------------ errors


def _first_problem(error: Exception, path: str = "") -> tuple[str, str]:
    """Return path and message of the first error. cattrs nests one exception group for each level, with a note of the step."""
    if isinstance(error, (ClassValidationError, IterableValidationError)):
        inner = error.exceptions[0]
        return _first_problem(inner, path + _step(inner, path, error))
    if isinstance(error, KeyError):
        return path, "missing; this field is required"
    return path, str(error)


def _step(error: Exception, path: str, group: ClassValidationError | IterableValidationError) -> str:
    """Return the part of the path that leads to this error of a group: `.field` or `[index]`; "" if cattrs has noted none."""
    for note in getattr(error, "__notes__", ()):
        if isinstance(note, AttributeValidationNote):
            return f"{'.' if path else ''}{wire_name(group.cl, note.name)}"
        if isinstance(note, IterableValidationNote):
            return f"[{note.index}]"
    return ""


# ------------------------------------------------------------------ text


def encode_json(value: Json, *, indent: int | None = None) -> str:
    """Return `value` as JSON text that can be encoded as UTF-8.

    Without `indent` the text is one compact line. With it, each level is indented by so many spaces.
    Raises TypeError for what is no JSON value, and ValueError for NaN, Infinity and nesting that is endless or too deep.

    >>> encode_json({"text": "Grüße"})
    '{"text":"Grüße"}'
    """
    try:
        text = _encoder(indent, ensure_ascii=False).encode(value)
        text.encode()
    except UnicodeEncodeError:
        return _encoder(indent, ensure_ascii=True).encode(value)
    except RecursionError:
        raise ValueError("nested too deep") from None
    return text


def encode_line(record: Mapping[str, Json]) -> bytes:
    """Return a JSON object as one line of UTF-8, with its newline. Raises as `encode_json` does."""
    return encode_json(record).encode() + b"\n"


@cache
def _encoder(indent: int | None, *, ensure_ascii: bool) -> json.JSONEncoder:
    """Return the encoder of these options. `json.dumps` makes one for each text, which takes as long as a line of a log does."""
    separators = (",", ":") if indent is None else None
    return json.JSONEncoder(ensure_ascii=ensure_ascii, separators=separators, allow_nan=False, indent=indent)


def decode_json(text: str | bytes | bytearray) -> Json:
    """Return the JSON value of a text. Bytes are read as UTF-8.

    Raises ValueError for everything that is not JSON: bytes that are not UTF-8, NaN and Infinity; and for nesting deeper
    than MOST_LEVELS.
    """
    content = text if isinstance(text, str) else text.decode()
    # Counting is quick, and nearly every text has too few brackets to be deep.
    if content.count("[") + content.count("{") > MOST_LEVELS and _levels(content) > MOST_LEVELS:
        raise ValueError("nested too deep")
    try:
        value: Json = _decoder().decode(content)
    except RecursionError:
        raise ValueError("nested too deep") from None
    return value


def _levels(content: str) -> int:
    """Return how deep the brackets outside of strings are nested."""
    deepest = level = 0
    for match in _BRACKET.finditer(content):
        first = match[0][0]
        if first in "[{":
            level += 1
            deepest = max(deepest, level)
        elif first in "]}":
            level -= 1
    return deepest


def decode_object(text: str | bytes | bytearray) -> dict[str, Json]:
    """Return the JSON object of a text. Raises ValueError as `decode_json` does, and for any other kind of value."""
    value = decode_json(text)
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return value


@cache
def _decoder() -> json.JSONDecoder:
    return json.JSONDecoder(parse_constant=_refuse)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def require_text(value: object) -> str:
    """Return the value, which must be a string. Raises TypeError."""
    if not isinstance(value, str):
        raise TypeError("not a string")
    return value


def require_number(value: object) -> int:
    """Return the value, which must be a whole number from 0 to 2^63 - 1, as all counts are. Raises TypeError."""
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise TypeError("not a whole number")
    return value
