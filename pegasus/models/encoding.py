"""JSON as every provider accepts it, and what they send where they do not keep to it themselves."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, NoReturn

from pegasus.messages import Json, Metadata

if TYPE_CHECKING:
    from pegasus.models.base import ToolSpec

_PLAIN = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_FOREIGN = re.compile(r"[^a-zA-Z0-9_-]")
_ID_LIMIT = 40
_DEPTH = 200


def encode(value: Json) -> bytes:
    """Compact UTF-8 JSON. What JSON or UTF-8 cannot say is replaced: lone surrogates by "?", NaN and infinities by null."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:
        finite = json.loads(json.dumps(value), parse_constant=lambda _: None)
        text = json.dumps(finite, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")


def wire_name(name: str) -> str:
    """A tool's name as both wire formats allow it (`^[a-zA-Z0-9_-]{1,64}$`); different names stay different."""
    return name if _PLAIN.fullmatch(name) else _fit(name, 64)


class WireNames:
    """The tools' own names by those on the wire; worked out anew only for other tools than the last time."""

    def __init__(self) -> None:
        self._tools: tuple[ToolSpec, ...] = ()
        self._names: Mapping[str, str] = {}

    def of(self, tools: tuple[ToolSpec, ...]) -> Mapping[str, str]:
        """For the answer to a request with these tools."""
        if tools is not self._tools:
            self._tools, self._names = tools, {wire_name(tool.name): tool.name for tool in tools}
        return self._names


def wire_id(call_id: str) -> str:
    """A tool call's id as both wire formats allow it: OpenAI takes 40 characters, Anthropic `^[a-zA-Z0-9_-]+$`."""
    if len(call_id) <= _ID_LIMIT and _PLAIN.fullmatch(call_id):
        return call_id
    return _fit(call_id, _ID_LIMIT)


def _fit(word: str, limit: int) -> str:
    check = f"_{zlib.crc32(word.encode('utf-8', 'surrogatepass')):08x}"
    return _FOREIGN.sub("_", word)[: limit - len(check)] + check


def read_arguments(raw: object, *, cut: str = "") -> tuple[Metadata, str | None]:
    """The arguments of a tool call, and why they could not be read, in words for the model.

    raw: JSON text, or the value itself from servers that send it so. cut: why the answer ended early, if it did.
    """
    is_plain = False  # whether it can hold no half of a surrogate pair
    if isinstance(raw, str):
        if not raw.strip():
            return {}, None
        is_plain = raw.isascii() and "\\u" not in raw
        try:
            raw = json.loads(raw, parse_constant=_refuse)
        except RecursionError:
            return {}, "the arguments are nested too deeply"
        except ValueError as error:
            return {}, f"the arguments are not valid JSON: {cut or error}"
    if raw is None:
        return {}, None
    if not isinstance(raw, dict):
        return {}, f"the arguments must be a JSON object, not {_KINDS.get(type(raw), type(raw).__name__)}"
    if _deeper_than(raw, _DEPTH):
        return {}, "the arguments are nested too deeply"
    return (raw if is_plain else _mend_all(raw)), None


def _mend_all(arguments: Metadata) -> Metadata:
    text = json.dumps(arguments, ensure_ascii=False)
    mended = mend(text)
    if mended is text:
        return arguments
    fixed: Metadata = json.loads(mended)
    return fixed


_KINDS = {str: "a string", list: "a list", bool: "a boolean", int: "a number", float: "a number"}


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _deeper_than(value: object, limit: int) -> bool:
    """Whether json.dumps might run out of stack on it later; the usual flat object costs one pass over its values."""
    level = [value]
    for _ in range(limit):
        level = [
            child
            for node in level
            for child in (node.values() if isinstance(node, dict) else node)  # type: ignore[attr-defined]
            if isinstance(child, dict | list)
        ]
        if not level:
            return False
    return True


def mend(text: str) -> str:
    """Surrogate pairs that came in two pieces of a stream become characters again; single ones become U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
