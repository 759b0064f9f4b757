"""Files of the keyed collections: for each its place below data/ and its form, and what its bytes mean. Pure.

The names and forms are a contract: people read these files and edit some of them, and other programs back them up. So a second
engine may keep rows elsewhere, but this table says how a home on files looks. Only `keyed_store` reads it; everybody else names a
collection.

A form turns the bytes of a file into entries, each with a name and a JSON value, and puts a file together of the texts of its rows,
so that a change of one row does not encode all others anew. The name is the key of the row where the
file shows keys, as in `{"<chat>": "<model>"}`, otherwise the name of the list that holds the row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Final, Protocol, TypeAlias

import attrs

from pegasus.messages import Json
from pegasus.wire import decode_json, decode_object, encode_json

Entry: TypeAlias = tuple[str, Json]
"""Name and value of a row, as they stand in a file."""


class RowForm(Protocol):
    """A way in which rows stand in a file.

    Example: `form.content([("", form.text({"id": "j-1"}))])` of `Array()` is `[{"id":"j-1"}]` and a newline.
    """

    def decode(self, content: bytes) -> tuple[list[Entry], list[str]]:
        """Return the entries of a file, and what is wrong with it. Raises ValueError if it holds nothing that can be understood."""

    def text(self, value: Json) -> str:
        """Return a row as it stands in the file."""

    def content(self, rows: Iterable[tuple[str, str]]) -> bytes:
        """Return a file of rows, each with its key and `text`. Where there are several lists, a key begins with the name and "/"."""


@attrs.frozen
class Lists:
    """An object of lists: `{"people": [{…}, …], "codes": [{…}, …]}`."""

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

    def text(self, value: Json) -> str:
        """Return a row with the indent of a list within an object."""
        return _indented(value, 4)

    def content(self, rows: Iterable[tuple[str, str]]) -> bytes:
        """Return an object whose lists have the rows in their order."""
        lists: dict[str, list[str]] = {name: [] for name in self.names}
        for key, text in rows:
            lists[key.partition("/")[0] if len(lists) > 1 else self.names[0]].append(text)
        parts = [f'  "{name}": ' + _bracketed("[]", texts, 4) for name, texts in lists.items()]
        return ("{\n" + ",\n".join(parts) + "\n}\n").encode()


@attrs.frozen
class Array:
    """An array with a row on each line, which a person can edit."""

    def decode(self, content: bytes) -> tuple[list[Entry], list[str]]:
        """Return the elements, whose names are empty."""
        found = decode_json(content) if content.strip() else []
        if not isinstance(found, list):
            raise ValueError("found something else, allowed: an array")
        return [("", value) for value in found], []

    def text(self, value: Json) -> str:
        """Return a row as one line."""
        return encode_json(value)

    def content(self, rows: Iterable[tuple[str, str]]) -> bytes:
        """Return an array of the rows."""
        return ("[" + ",\n ".join(text for _, text in rows) + "]\n").encode()


@attrs.frozen
class Object:
    """An object that shows the keys: `{"telegram:42": "anthropic/claude-opus-5-5"}`."""

    is_long: bool = False
    """True if each value has lines of its own."""

    def decode(self, content: bytes) -> tuple[list[Entry], list[str]]:
        """Return the items."""
        return list(decode_object(content).items()), []

    def text(self, value: Json) -> str:
        """Return a row, with the indent of a value within an object or as one line."""
        return _indented(value, 2) if self.is_long else encode_json(value)

    def content(self, rows: Iterable[tuple[str, str]]) -> bytes:
        """Return an object of the rows."""
        if self.is_long:
            return (_bracketed("{}", [f"{encode_json(key)}: {text}" for key, text in rows], 2) + "\n").encode()
        return ("{" + ",".join(f"{encode_json(key)}:{text}" for key, text in rows) + "}\n").encode()


def _indented(value: Json, spaces: int) -> str:
    """Return JSON whose lines behind the first begin with so many spaces."""
    return encode_json(value, indent=2).replace("\n", "\n" + " " * spaces)


def _bracketed(brackets: str, texts: Sequence[str], spaces: int) -> str:
    """Return texts between brackets, each on lines of its own with so many spaces before it, as `encode_json` would write them."""
    if not texts:
        return brackets
    between = "\n" + " " * spaces
    return brackets[0] + between + f",{between}".join(texts) + between[:-2] + brackets[1]


ROW_FILES: Final[Mapping[str, tuple[str, RowForm]]] = {
    "a2a-push": ("a2a/push.json", Lists(("targets",))),
    "access": ("access.json", Lists(("people", "codes"))),
    "conversation-names": ("main/names.json", Object()),
    "guest-files": ("guests/{owner}/sent.json", Object(is_long=True)),
    "hook-deliveries": ("web/deliveries.json", Lists(("deliveries",))),
    "jobs": ("cron/jobs.json", Array()),
    "model-choice": ("models/choice.json", Object()),
    "model-choices": ("models/chats.json", Object()),
    "model-traits": ("models/traits.json", Object()),
    "pending-tasks": ("tasks/pending.json", Array()),
    "push-subscriptions": ("web/push.json", Lists(("subscriptions",))),
    "task-requests": ("tasks/requests.json", Object()),
    "tokens": ("tokens.json", Lists(("tokens", "revoked"))),
    "web-codes": ("web/codes.json", Lists(("codes",))),
    "web-sessions": ("web/sessions.json", Lists(("sessions",))),
}
"""File below data/ and form of each collection of rows."""
_ROW_KEYS: Final[Mapping[str, Callable[[dict[str, Json]], str]]] = {
    "a2a-push/targets": "{taskId}/{id}".format_map,
    "access/codes": "codes/{code}".format_map,
    "access/people": "people/{type}:{userId}".format_map,
    "hook-deliveries/deliveries": "{hook} {digest}".format_map,
    "jobs/": "{id}".format_map,
    "pending-tasks/": "{taskId}".format_map,
    "push-subscriptions/subscriptions": lambda row: sha256(str(row["endpoint"]).encode()).hexdigest()[:32],
    "tokens/revoked": "revoked/{name}".format_map,
    "tokens/tokens": "tokens/{name}".format_map,
    "web-codes/codes": "{hash}".format_map,
    "web-sessions/sessions": "{hash}".format_map,
}
"""Key of a row, made of its fields, by collection and list, where the file does not show keys. Owners make the same keys."""
LINE_FILES: Final[Mapping[str, str]] = {
    "approvals": "approvals.jsonl",
    "client-chats": "web/chats.jsonl",
    "channel-deliveries": "channels/{owner}.jsonl",
    "persona-proposals": "identity/proposals.jsonl",
    "usage": "usage/{owner}.jsonl",
}
"""File below data/ of each collection of lines."""


def rows_path(collection: str, owner: str) -> str:
    """Return the path below data/ of a collection of rows. Raises ValueError if there is no such collection."""
    if collection not in ROW_FILES:
        raise ValueError(f"there is no collection {collection!r}")
    return ROW_FILES[collection][0].format(owner=owner)


def row_key(collection: str, name: str, value: Json) -> str:
    """Return the key of an entry of a file: of its name and value. Raises ValueError for one that has none."""
    key_of = _ROW_KEYS.get(f"{collection}/{name}")
    if key_of is None:
        return name
    try:
        return key_of(value if isinstance(value, dict) else {})
    except KeyError as error:
        raise ValueError(f"{error.args[0]}: missing") from None


def collection_of(path: str) -> tuple[str, str] | None:
    """Return the collection that a file below data/ holds, and whose it is ("": there is one); None if it holds none.

    >>> collection_of("usage/2026-02.jsonl")
    ('usage', '2026-02')
    """
    return _FIXED.get(path) or next(
        ((name, path[len(begin) : -len(end)]) for name, begin, end in _OWNED if _is_between(path, begin, end)), None
    )


def _is_between(path: str, begin: str, end: str) -> bool:
    """Return whether a path is these two with the name of an owner in between."""
    return path.startswith(begin) and path.endswith(end) and "/" not in path[len(begin) : -len(end)]


_PLACES: Final = {**{name: path for name, (path, _) in ROW_FILES.items()}, **LINE_FILES}
_FIXED: Final = {path: (name, "") for name, path in _PLACES.items() if "{owner}" not in path}
_OWNED: Final = [(name, *path.split("{owner}")) for name, path in _PLACES.items() if "{owner}" in path]
