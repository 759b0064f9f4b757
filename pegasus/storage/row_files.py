"""Files of the keyed collections: for each its place below data/ and its form, and what its bytes mean. Pure.

The names and forms are a contract: people read these files and edit some of them, and other programs back them up. So a second
engine may keep rows elsewhere, but this table says how a home on files looks. Only `keyed_store` reads it; everybody else names a
collection.

A form turns the bytes of a file into entries, each with a name and a JSON value, and back. The name is the key of the row where the
file shows keys, as in `{"<chat>": "<model>"}`, otherwise the name of the list that holds the row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Protocol, TypeAlias

import attrs

from pegasus.messages import Json
from pegasus.wire import decode_json, decode_object, encode_json

Entry: TypeAlias = tuple[str, Json]
"""Name and value of a row, as they stand in a file."""


class RowForm(Protocol):
    """A way in which rows stand in a file.

    Example: `Array().encode([("", {"id": "j-1"})])` is `[{"id":"j-1"}]` and a newline.
    """

    def decode(self, content: bytes) -> tuple[list[Entry], list[str]]:
        """Return the entries of a file, and what is wrong with it. Raises ValueError if it holds nothing that can be understood."""

    def encode(self, entries: Iterable[Entry]) -> bytes:
        """Return the content of a file with these entries. The name of one is its key, or the name of its list before a "/"."""


@attrs.frozen
class Lists:
    """An object of lists: `{"people": [{…}, …], "codes": [{…}, …]}`.

    Example: `Lists(("people", "codes"))`.
    """

    names: tuple[str, ...]
    """Keys of the object. Those behind the first may be missing."""

    def decode(self, content: bytes) -> tuple[list[Entry], list[str]]:
        """Return the entries of all lists."""
        found = decode_object(content)
        entries: list[Entry] = []
        problems: list[str] = []
        for name in self.names:
            values = found.get(name)
            if isinstance(values, list):
                entries += ((name, value) for value in values)
            elif name in found or name == self.names[0]:
                problems.append(f"there is no list {name!r}")
        return entries, problems

    def encode(self, entries: Iterable[Entry]) -> bytes:
        """Return an object whose lists have the entries in their order."""
        lists: dict[str, list[Json]] = {name: [] for name in self.names}
        for key, value in entries:
            lists[key.partition("/")[0] if len(lists) > 1 else self.names[0]].append(value)
        return f"{encode_json({**lists}, indent=2)}\n".encode()


@attrs.frozen
class Array:
    """An array with a row on each line, which a person can edit.

    Example: `Array()`.
    """

    def decode(self, content: bytes) -> tuple[list[Entry], list[str]]:
        """Return the elements, whose names are empty."""
        found = decode_json(content) if content.strip() else []
        if not isinstance(found, list):
            raise ValueError("found something else, allowed: an array")
        return [("", value) for value in found], []

    def encode(self, entries: Iterable[Entry]) -> bytes:
        """Return an array of the values."""
        return ("[" + ",\n ".join(encode_json(value) for _, value in entries) + "]\n").encode()


@attrs.frozen
class Object:
    """An object that shows the keys: `{"telegram:42": "anthropic/claude-opus-5-5"}`.

    Example: `Object(indent=2)`.
    """

    indent: int | None = None
    """Spaces of a level; None: the object is one line."""

    def decode(self, content: bytes) -> tuple[list[Entry], list[str]]:
        """Return the items."""
        return list(decode_object(content).items()), []

    def encode(self, entries: Iterable[Entry]) -> bytes:
        """Return an object of the entries."""
        return f"{encode_json(dict(entries), indent=self.indent)}\n".encode()


ROW_FILES: Final[Mapping[str, tuple[str, RowForm]]] = {
    "access": ("access.json", Lists(("people", "codes"))),
    "guest-files": ("guests/{owner}/sent.json", Object(indent=2)),
    "hook-deliveries": ("web/deliveries.json", Lists(("deliveries",))),
    "jobs": ("cron/jobs.json", Array()),
    "model-choice": ("models/choice.json", Object()),
    "model-choices": ("models/chats.json", Object()),
    "model-traits": ("models/traits.json", Object()),
    "tokens": ("tokens.json", Lists(("tokens", "revoked"))),
    "web-sessions": ("web/sessions.json", Lists(("sessions",))),
}
"""File below data/ and form of each collection of rows."""
LINE_FILES: Final[Mapping[str, str]] = {
    "approvals": "approvals.jsonl",
    "channel-deliveries": "channels/{owner}.jsonl",
    "persona-proposals": "identity/proposals.jsonl",
    "usage": "usage/{owner}.jsonl",
}
"""File below data/ of each collection of lines."""
