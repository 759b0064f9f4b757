"""Checking the arguments of a call against the JSON Schema of the tool, with messages that help a model to correct itself.

There is one path for all tools, our own and those of MCP servers: the library `jsonschema_rs`. It
knows all drafts of JSON Schema. Two of its options matter for safety, because a foreign schema is
untrusted input. A `$ref` to a server is refused and not fetched, and a `pattern` that needs too
many backtracking steps counts as a mismatch, so that it cannot hang the process.

The schema is compiled for each call. That takes 15 microseconds for a schema of ours, which is
nothing next to the model call that produced the arguments, and it saves a cache that would have to
notice when a server replaces its schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from pegasus.messages import Metadata
from pegasus.wire import encode_json, kind

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError, Validator

MAX_PROBLEMS: Final = 5
"""Problems that one answer names. A model corrects a few things at a time, and a long list would
fill its window."""
MAX_PATTERN_STEPS: Final = 100_000
"""Backtracking steps of a `pattern` with lookaround, some milliseconds. Patterns without lookaround
run in linear time."""


def check_arguments(schema: Metadata, arguments: Metadata) -> str | None:
    """Return the problems of the arguments as text for the model, or None if they fit the schema.

    A null counts as absent where the schema does not allow null (see `without_nulls`). Nothing is
    coerced: "5" is not a number. A schema that is itself broken is reported as a problem, never
    raised.
    """
    arguments = without_nulls(schema, arguments)
    try:
        validator = _compile(schema)
    except ValueError as error:
        reason = _shorten(str(error).splitlines()[0], 200)
        return f"this tool cannot be called: its schema is broken ({reason})"
    try:
        problems = _find_problems(validator, schema, dict(arguments))
    except (
        UnicodeEncodeError
    ):  # a lone surrogate, such as in the name of a file that is not UTF-8; the tool itself can refuse it
        problems = _find_problems(validator, schema, _replace_surrogates(arguments))
    except (ValueError, RecursionError) as error:
        return f"the arguments cannot be read: {_shorten(str(error), 200)}"
    return "; ".join(problems) or None


def without_nulls(schema: Metadata, arguments: Metadata) -> Metadata:
    """Return the arguments without the nulls that the schema does not allow.

    Some models fill in every optional parameter, with null for those that they do not need.
    """
    properties = schema.get("properties")
    known: Mapping[str, Any] = properties if isinstance(properties, Mapping) else {}
    return {name: value for name, value in arguments.items() if value is not None or _allows_null(known.get(name))}


def _allows_null(schema: object) -> bool:
    """Return whether a property takes null. A property that is unknown or not described by a mapping does not."""
    if not isinstance(schema, Mapping):
        return False
    types = schema.get("type")
    if isinstance(types, str):
        return types == "null"
    return "null" in types if isinstance(types, Sequence) else True


def _compile(schema: Metadata) -> Validator:
    """Return the compiled schema. Raises ValueError if it is broken or refers to a server.

    `jsonschema_rs` is a native library of 7 MB, so it is loaded when the first tool is called and
    not at the start.
    """
    import jsonschema_rs

    options = jsonschema_rs.FancyRegexOptions(backtrack_limit=MAX_PATTERN_STEPS)
    return jsonschema_rs.validator_for(dict(schema), retriever=_refuse_reference, pattern_options=options)


def _refuse_reference(uri: str) -> Any:
    """Refuse to fetch a schema; the validator calls this for every `$ref` that is not in the schema itself."""
    raise ValueError(f"{uri} is not fetched")


def _replace_surrogates(value: Any) -> Any:
    """Return a copy with � for characters that cannot be encoded, which the validator cannot take."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, Mapping):
        return {_replace_surrogates(name): _replace_surrogates(item) for name, item in value.items()}
    return [_replace_surrogates(item) for item in value] if isinstance(value, list) else value


# ------------------------------------------------------------------ words for the model


def _find_problems(validator: Validator, schema: Metadata, arguments: Any) -> list[str]:
    """Return at most `MAX_PROBLEMS` problems in words. Further ones are not looked for."""
    errors = list(islice(validator.iter_errors(arguments), MAX_PROBLEMS + 1))
    words = [_describe_problem(error, schema) for error in errors[:MAX_PROBLEMS]]
    return [*words, "and more"] if len(errors) > MAX_PROBLEMS else words


def _describe_problem(error: ValidationError, schema: Metadata) -> str:
    """Return path, problem and allowed values: `xs[1].q must be of type string, found a number (2)`."""
    path, details = _format_path(error.instance_path), error.kind.as_dict()
    match error.kind.name:
        case "required":
            return f"{_join(path, details['property'])} is required"
        case "additionalProperties":
            names = ", ".join(_join(path, name) for name in details["unexpected"])
            return f"{names}: no such parameter (there are: {_known_parameters(error, schema)})"
        case "type":
            types = " or ".join(details["types"])
            found = f"{kind(error.instance)} ({_format_value(error.instance)})"
            return f"{path or 'the whole'} must be of type {types}, found {found}"
        case "enum":
            allowed = ", ".join(_format_value(option) for option in details["options"])
            return f"{path or 'the whole'} must be one of {allowed}; found {_format_value(error.instance)}"
        case _:
            return f"{path}: {_shorten(error.message, 200)}" if path else _shorten(error.message, 200)


def _known_parameters(error: ValidationError, schema: Any) -> str:
    """Return the names that the schema knows in the object that holds the unknown one."""
    for step in error.schema_path[:-1]:
        schema = schema.get(step) if isinstance(schema, Mapping) else None
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    return ", ".join(properties or ()) or "none"


def _format_path(steps: Iterable[str | int]) -> str:
    """Return a path as people write it: `xs[1].q`."""
    path = ""
    for step in steps:
        path = f"{path}[{step}]" if isinstance(step, int) else _join(path, step)
    return path


def _join(path: str, name: str) -> str:
    """Return the path of a property below `path`."""
    return f"{path}.{name}" if path else name


def _format_value(value: Any) -> str:
    """Return a value as JSON, shortened, since the model has it in its conversation."""
    return _shorten(encode_json(value), 40)


def _shorten(text: str, limit: int) -> str:
    """Return at most `limit` characters. Unlike `formatting.truncate` it keeps line breaks, which can be what is wrong."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
