"""Conversion between attrs values (snake_case) and JSON objects (camelCase), for the wire and for files.

The classes know nothing of their wire format; it is here, once:

* Names are camelCase on the wire.
* Fields that hold their default are left out, and absent fields get it. So a field with a default can be added later,
  and older files and clients stay valid. Keys that a class does not know are ignored, for the opposite direction.
* Nothing is coerced. "5" is no number, 5 is no text, and 1 is not true: a sender that mixes them up has an error that
  should be found, not guessed away.
* Errors name the first field that does not fit, by its path on the wire: `channel.replyTo`, `media[1].mime`.

cattrs generates the code for each class when it is used for the first time. Its own rules for scalars coerce, so they
are replaced, as are those for lists, which would accept any iterable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar, get_args, get_origin

import attrs
from cattrs import ClassValidationError, Converter, IterableValidationError
from cattrs.cols import homogenous_tuple_structure_factory
from cattrs.errors import AttributeValidationNote, IterableValidationNote
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

from pegasus.append_only import AppendOnly
from pegasus.messages import Json

T = TypeVar("T")
_Structure = Callable[[Any, Any], Any]
"""Function of cattrs from a parsed value and its type to a Python value. Raises _Misfit or a group of errors."""

DEEPEST = 64
"""Levels that free-form JSON (metadata) may nest. It is far below the depth at which writing it out again would fail."""


class WireError(ValueError):
    """A JSON value does not fit the class.

    try:
        message = from_wire(value, InboundMessage)
    except WireError as error:
        print(error.path, error.problem)   # channel.channelId: missing; this field is required
    """

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}" if path else problem)
        self.path = path
        """The field that does not fit, as it is called on the wire; "" for the value as a whole."""
        self.problem = problem
        """What was found and what is allowed, without the path."""


def to_wire(value: attrs.AttrsInstance) -> dict[str, Json]:
    """Return an attrs value as a JSON object. Free-form mappings are not copied.

    >>> to_wire(ChannelInfo("web", "c1"))
    {'type': 'web', 'channelId': 'c1'}

    Raises nothing for values of the product's own classes. The result can be encoded as JSON, if free-form
    metadata can.
    """
    wire: dict[str, Json] = _unstructure_hook(type(value))(value)
    return wire


def from_wire(mapping: object, cls: type[T]) -> T:
    """Return the value of class `cls` that a JSON object stands for. Raises WireError, which names the first bad field.

    >>> from_wire({"type": "web", "channelId": "c1"}, ChannelInfo)
    ChannelInfo(type='web', channel_id='c1', user_id=None, reply_to=None)

    mapping: a parsed JSON value of any kind. Large values cost time in proportion to their size; nothing is
    kept of them.
    """
    try:
        wanted: Any = cls
        value: T = _structure_hook(wanted)(mapping, cls)
    except (ClassValidationError, IterableValidationError, _Misfit) as error:
        raise WireError(*_first_problem(error)) from None
    return value


def camel(name: str) -> str:
    """Return a name in camelCase: `channel_id` becomes `channelId`."""
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


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
        return ascii(value) if len(value) <= 40 else f"{value[:40]!a}… ({len(value)} characters)"
    text = repr(value)
    return f"the number {text[:40]}{'…' if len(text) > 40 else ''}"


# ------------------------------------------------------------------ the converter


class _Misfit(ValueError):
    """A value is not of the kind that is expected. cattrs adds a note that says where."""


@cache
def _converter() -> Converter:
    """Return the converter, which is made at the first use: importing it should cost nothing."""
    converter = Converter(omit_if_default=True)
    for cls, allowed, words in _SCALARS:
        converter.register_structure_hook(cls, _scalar(cls, allowed, words))
    converter.register_structure_hook_func(_is_json_object, _json_object)
    converter.register_unstructure_hook_func(_is_json_object, lambda value: value)
    converter.register_structure_hook_factory(attrs.has, _class_structure)
    converter.register_unstructure_hook_factory(attrs.has, _class_unstructure)
    converter.register_structure_hook_factory(_is_tuple, _tuple_structure)
    converter.register_structure_hook_factory(_is_append_only, _append_only_structure)
    converter.register_unstructure_hook_factory(_is_append_only, _append_only_unstructure)
    return converter


@cache
def _structure_hook(cls: type[Any]) -> _Structure:
    """Return the generated reader of a class. Looking it up in cattrs takes longer than reading a small message."""
    return _converter().get_structure_hook(cls)


@cache
def _unstructure_hook(cls: type[Any]) -> Callable[[Any], Any]:
    """Return the generated writer of a class."""
    return _converter().get_unstructure_hook(cls)


_SCALARS: tuple[tuple[type, tuple[type, ...], str], ...] = (
    (str, (str,), "a string"),
    (bool, (bool,), "true or false"),
    (int, (int,), "a whole number"),
    (float, (float, int), "a number"),
)
"""Scalar types with the Python types that JSON values of them may have, and their names for people. A whole number
is a valid float, as JSON writes 1.0 as 1 in many languages. `type(value)` is compared, since True is an int to
Python."""


def _scalar(cls: type, allowed: tuple[type, ...], words: str) -> _Structure:
    """Return the reader of a scalar type, which refuses every other type."""

    def structure(value: object, _: object) -> object:
        if type(value) not in allowed:
            raise _Misfit(f"found {describe(value)}, allowed: {words}")
        return value

    return structure


def _class_structure(cls: type[Any], converter: Converter) -> _Structure:
    # The generated code takes anything with [] for a mapping, so the kind is checked here.
    """Return the reader of an attrs class."""
    fields = make_dict_structure_fn(cls, converter, _cattrs_detailed_validation=True, **_renames(cls))

    def structure(value: object, _: object) -> object:
        if not isinstance(value, dict):
            raise _Misfit(f"found {describe(value)}, allowed: an object")
        return fields(value, cls)

    return structure


def _class_unstructure(cls: type[Any], converter: Converter) -> Callable[[Any], dict[str, Any]]:
    """Return the writer of an attrs class; fields that hold their default are left out."""
    return make_dict_unstructure_fn(cls, converter, _cattrs_omit_if_default=True, **_renames(cls))


def _renames(cls: type[Any]) -> dict[str, Any]:
    """Return the camelCase name of each field, for cattrs. Annotations are resolved here, since they are texts."""
    return {
        field.name: override(rename=camel(field.name)) for field in attrs.fields(attrs.resolve_types(cls, None, _NAMES))
    }


_NAMES: dict[str, Any] = {"Json": Json, "Mapping": Mapping}
"""Names that the annotation `Metadata` consists of. A class that uses it need not import them."""


def _is_tuple(annotation: Any) -> bool:
    return get_origin(annotation) is tuple


def _tuple_structure(annotation: Any, converter: Converter) -> _Structure:
    """Return the structure of `tuple[X, ...]`, or of `tuple[X, Y]`, whose list must have just these items."""
    kinds = get_args(annotation)
    if kinds[-1] is Ellipsis:
        items = homogenous_tuple_structure_factory(annotation, converter)
    else:
        hooks = [(converter.get_structure_hook(item), item) for item in kinds]

        def items(value: Any, _: Any) -> tuple[Any, ...]:
            if len(value) != len(hooks):
                raise _Misfit(f"expected a list of {len(hooks)}, found {len(value)}")
            return tuple(hook(item, cls) for item, (hook, cls) in zip(value, hooks, strict=True))

    def structure(value: object, _: object) -> object:
        if not isinstance(value, list):
            raise _Misfit(f"found {describe(value)}, allowed: a list")
        return items(value, annotation)

    return structure


def _is_append_only(annotation: Any) -> bool:
    return get_origin(annotation) is AppendOnly


def _append_only_structure(annotation: Any, converter: Converter) -> _Structure:
    [item] = get_args(annotation)
    items = _tuple_structure(tuple[item, ...], converter)  # type: ignore[valid-type]  # a value, not an annotation
    return lambda value, _: AppendOnly(items(value, annotation))


def _append_only_unstructure(annotation: Any, converter: Converter) -> Callable[[Any], list[Any]]:
    [item] = get_args(annotation)
    hook = converter.get_unstructure_hook(item)
    return lambda value: [hook(each) for each in value]


def _is_json_object(annotation: Any) -> bool:
    return get_origin(annotation) is Mapping


def _json_object(value: object, _: object) -> object:
    """Return a free-form JSON object as it is, after checking that it can be written again."""
    if not isinstance(value, dict):
        raise _Misfit(f"found {describe(value)}, allowed: an object")
    if value:
        _check_json(value, DEEPEST)
    return value


def _check_json(value: object, levels: int) -> None:
    """Refuse what could be read but not be written again: NaN, Infinity, nesting that is too deep."""
    if isinstance(value, (dict, list)):
        if not levels:
            raise _Misfit(f"nested deeper than {DEEPEST} levels")
        for item in value.values() if isinstance(value, dict) else value:
            _check_json(item, levels - 1)
    # Only NaN and the infinities give a difference other than zero.
    elif isinstance(value, float) and value - value != 0:
        raise _Misfit("found NaN, Infinity or a number too large for a float, allowed: finite numbers")


# ------------------------------------------------------------------ errors


def _first_problem(error: Exception, path: str = "") -> tuple[str, str]:
    """Return path and message of the first error. cattrs nests one exception group for each level, with a note of the step."""
    if isinstance(error, (ClassValidationError, IterableValidationError)):
        inner = error.exceptions[0]
        return _first_problem(inner, path + _step(inner, path))
    if isinstance(error, KeyError):
        return path, "missing; this field is required"
    return path, str(error)


def _step(error: Exception, path: str) -> str:
    """Return the part of the path that leads to this error: `.field` or `[index]`; "" if cattrs has noted none."""
    for note in getattr(error, "__notes__", ()):
        if isinstance(note, AttributeValidationNote):
            return f"{'.' if path else ''}{camel(note.name)}"
        if isinstance(note, IterableValidationNote):
            return f"[{note.index}]"
    return ""
