"""JSON Schema of attrs classes, as `pegasus.wire` writes them.

Names are camelCase, and a field with a default may be missing, since the wire format leaves out what holds its default. More fields
than these may be there: clients must ignore what they do not know.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import attrs

from pegasus.messages import Json
from pegasus.wire import wire_name

_ANY: Final[Mapping[str, Any]] = {"Json": Any, "Metadata": Mapping[str, Any], "Mapping": Mapping}
"""Aliases of free-form JSON: they name themselves, which no schema needs."""
_PLAIN: Final[Mapping[Any, str]] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    type(None): "null",
}


class SchemaBook:
    """Schemas of classes by name, made when they are first referred to."""

    def __init__(self, examples: Mapping[str, Json]) -> None:
        self.found: dict[str, Json] = {}
        """Schemas of classes, for `#/components/schemas`."""
        self._examples = examples

    def schema(self, kind: Any) -> dict[str, Json]:
        """Return the schema of a type: a reference for a class."""
        origin, inner = get_origin(kind), get_args(kind)
        if kind in _PLAIN:
            return {"type": _PLAIN[kind]}
        if kind is bytes:
            return {"type": "string", "format": "binary"}
        if attrs.has(kind):
            return self._reference(kind)
        if isinstance(kind, type) and issubclass(kind, Enum):
            return {"enum": [each.value for each in kind]}
        if origin is Literal:
            return {"enum": list(inner)}
        if origin in (Union, types.UnionType):
            kinds = [self.schema(each) for each in inner]
            names: list[Json] = [each["type"] for each in kinds if list(each) == ["type"]]
            return {"type": names} if len(names) == len(kinds) else {"anyOf": [*kinds]}
        if origin in (list, tuple):
            return {"type": "array", "items": self.schema(inner[0])}
        if origin is not None and issubclass(origin, Mapping):
            return {"type": "object", "additionalProperties": self.schema(inner[1])}
        return {}

    def _reference(self, cls: type) -> dict[str, Json]:
        name = cls.__name__
        if name not in self.found:
            self.found[name] = {}  # a class may have fields of its own type
            self.found[name] = self._object(cls)
        return {"$ref": f"#/components/schemas/{name}"}

    def _object(self, cls: type) -> Json:
        hints = get_type_hints(cls, localns=dict(_ANY))
        fields = [field for field in attrs.fields(cls) if field.init]
        schema: dict[str, Json] = {
            "type": "object",
            "description": (cls.__doc__ or "").partition("\n")[0].partition(": `")[0].rstrip(".") + ".",
            "properties": {wire_name(cls, field.name): self.schema(hints[field.name]) for field in fields},
        }
        required: list[Json] = [wire_name(cls, field.name) for field in fields if field.default is attrs.NOTHING]
        if required:
            schema["required"] = required
        if cls.__name__ in self._examples:
            schema["examples"] = [self._examples[cls.__name__]]
        return schema
