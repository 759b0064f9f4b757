"""Checking the arguments of a call against the tool's JSON Schema, and saying what is wrong in words that help a model.

One checker for our own tools and for foreign ones (MCP): all drafts, patterns that cannot run away, and a `$ref` that
points to some server is refused, not fetched.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from pegasus.messages import Metadata
from pegasus.wire import kind

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError, Validator

MOST_PROBLEMS: Final = 5
"""Problems that one answer names."""
MOST_STEPS: Final = 100_000
"""Steps that a `pattern` with lookaround may take, some milliseconds; without lookaround its time is linear."""
_REMEMBERED: Final = 256
"""Compiled schemas that are kept, the last used ones; compiling takes about 15 µs, a check 1 µs."""

_validators: OrderedDict[int, tuple[Metadata, Validator]] = OrderedDict()


def check_arguments(schema: Metadata, arguments: Metadata) -> str | None:
    """What is wrong with the arguments, in words for the model, or None. Nulls count as absent, see `without_nulls`.

    Arguments that are plainly right need no validator. The first that are not import it (25 ms, 7 MB), which a daemon
    that only chats never does.
    """
    arguments = without_nulls(schema, arguments)
    if _plainly_right(schema, arguments):
        return None
    try:
        validator = _validator(schema)
    except ValueError as error:
        return f"this tool cannot be called: its schema is broken ({_short(str(error).splitlines()[0], 200)})"
    try:
        problems = _problems(validator, schema, dict(arguments))
    except UnicodeEncodeError:  # text that is no Unicode; whether the tool can do with it is its own affair
        problems = _problems(validator, schema, _as_unicode(arguments))
    except (ValueError, RecursionError) as error:
        return f"the arguments cannot be read: {_short(str(error), 200)}"
    return "; ".join(problems) or None


def without_nulls(schema: Metadata, arguments: Metadata) -> Metadata:
    """The arguments without those that are null although the schema has no use for null."""
    if None not in arguments.values():
        return arguments
    properties = schema.get("properties")
    known: Mapping[str, Any] = properties if isinstance(properties, Mapping) else {}
    return {name: value for name, value in arguments.items() if value is not None or _takes_null(known.get(name))}


def _plainly_right(schema: Metadata, arguments: Metadata) -> bool:
    """Whether a look is enough: flat, each value of the one plain type its property wants. False says nothing."""
    properties: Any = schema.get("properties", {})
    required: Any = schema.get("required", ())
    if not schema.keys() <= _FLAT or schema.get("type") != "object" or not isinstance(properties, Mapping):
        return False
    if schema.get("additionalProperties", False) is not False or not all(name in arguments for name in required):
        return False
    return all(name in properties and _is_plain(properties[name], value) for name, value in arguments.items())


def _is_plain(schema: Any, value: object) -> bool:
    if not isinstance(schema, Mapping) or not schema.keys() <= _PLAIN:
        return False
    return type(value) is _TYPES.get(str(schema.get("type")))


_FLAT: Final = frozenset({"type", "properties", "required", "additionalProperties"})
_PLAIN: Final = frozenset({"type", "description"})
_TYPES: Final[Mapping[str, type]] = {"string": str, "integer": int, "boolean": bool}


def _takes_null(schema: object) -> bool:
    if not isinstance(schema, Mapping):
        return False
    wanted = schema.get("type")
    if isinstance(wanted, str):
        return wanted == "null"
    return "null" in wanted if isinstance(wanted, Sequence) else True


def _validator(schema: Metadata) -> Validator:
    """Compiled, and remembered as long as it is in use; the schema is held, so its id is not given to another."""
    known = _validators.get(id(schema))
    if known is None:
        import jsonschema_rs

        patterns = jsonschema_rs.FancyRegexOptions(backtrack_limit=MOST_STEPS)
        compiled = jsonschema_rs.validator_for(dict(schema), retriever=_refuse, pattern_options=patterns)
        known = _validators[id(schema)] = (schema, compiled)
        if len(_validators) > _REMEMBERED:
            _validators.popitem(last=False)
    else:
        _validators.move_to_end(id(schema))
    return known[1]


def _refuse(uri: str) -> Any:
    raise ValueError(f"{uri} is not fetched")


def _as_unicode(value: Any) -> Any:
    """A copy with � in place of what is no Unicode."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, Mapping):
        return {_as_unicode(name): _as_unicode(item) for name, item in value.items()}
    return [_as_unicode(item) for item in value] if isinstance(value, list) else value


def _problems(validator: Validator, schema: Metadata, arguments: Any) -> list[str]:
    found = list(islice(validator.iter_errors(arguments), MOST_PROBLEMS + 1))
    words = [_words(error, schema) for error in found[:MOST_PROBLEMS]]
    return [*words, "and more"] if len(found) > MOST_PROBLEMS else words


def _words(error: ValidationError, schema: Metadata) -> str:
    """Path, what is wrong, what is allowed."""
    path, details = _path(error.instance_path), error.kind.as_dict()
    match error.kind.name:
        case "required":
            return f"{_join(path, details['property'])} is required"
        case "additionalProperties":
            names = ", ".join(_join(path, name) for name in details["unexpected"])
            return f"{names}: no such parameter (there are: {_known(error, schema)})"
        case "type":
            wanted = " or ".join(details["types"])
            return f"{path or 'the whole'} must be of type {wanted}, found {kind(error.instance)} ({_value(error.instance)})"
        case "enum":
            allowed = ", ".join(_value(option) for option in details["options"])
            return f"{path or 'the whole'} must be one of {allowed}; found {_value(error.instance)}"
        case _:
            return f"{path}: {_short(error.message, 200)}" if path else _short(error.message, 200)


def _known(error: ValidationError, schema: Any) -> str:
    """The parameters there are, where the unknown one stands."""
    for step in error.schema_path[:-1]:
        schema = schema.get(step) if isinstance(schema, Mapping) else None
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    return ", ".join(properties or ()) or "none"


def _path(steps: Iterable[str | int]) -> str:
    path = ""
    for step in steps:
        path = f"{path}[{step}]" if isinstance(step, int) else _join(path, step)
    return path


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _value(value: object) -> str:
    return _short(json.dumps(value, default=str), 40)


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
