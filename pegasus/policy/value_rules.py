"""Calls that need no question after text from outside was read, by the kind of their tool and by their values.

* A private reader passes with any arguments: they reach nobody, and what it returns is the owner's own.
* An open reader, and a private one with an argument that is an address, may tell others what it is asked. It passes with owner's
  values alone, each different call once in a task, and MOST_OPEN different ones in all: the order and the repetition of calls could
  say something, too.
* An act passes if all its values are owner's values of one message, and there is at least one: the owner has then named what it
  does. It passes once for each message that names it, since twice is not what was asked for. What cannot be taken back never passes.

Which calls were made before is read from the conversation, so a restart knows it, and it is counted by what they say rather than by
how it is written: arguments that are the default or empty make no other call of one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

import attrs

from pegasus.messages import Json, Metadata
from pegasus.policy.owner_values import OwnerMessage, OwnerText, ValueUnit, units_of
from pegasus.policy.shown_text import texts_of
from pegasus.wire import encode_json

MOST_OPEN: Final = 20
"""Different calls of open readers that pass in a task."""
MOST_NAMED: Final = 3
"""Parameters that a reason names."""
REACHES_OUT: Final = "the call reaches out"
"""Reason to ask about a call of a tool of this program."""
_ADDRESS_FIELDS: Final = frozenset(
    {"url", "urls", "uri", "uris", "href", "link", "links", "host", "hosts", "hostname", "domain", "ip"}
    | {"endpoint", "webhook"}
)
"""Words in the name of a parameter that holds an address on a network."""
_ADDRESS_FORMATS: Final = frozenset(
    ("uri", "uri-reference", "iri", "iri-reference", "url", "hostname", "idn-hostname", "ipv4", "ipv6")
)
"""Formats of JSON Schema for such a parameter."""
_ADDRESS: Final = re.compile(
    r"[a-z][a-z0-9+.-]*://|//|www\.|\[[0-9a-f:.]+\]|\d{1,3}(?:\.\d{1,3}){3}(?:[:/]|\Z)|[^\s/@]+\.[^\s/@.]{2,}(?::\d|/|\?)"
    r"|(?:data|javascript|mailto|tel|file):",
    re.IGNORECASE,
)
"""Beginning of a text that is an address, whatever its parameter is called."""
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,40}")
"""Name of a parameter that a reason shows."""
_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


class ToolKind(StrEnum):
    """Harm that a call of a tool of another program can do once its work has read text from outside.

    `pegasus.mcp` sorts the tools of a server: by the owner's lists first, then by what a trusted server says of them.

    Example: `ToolKind.ACT` is the kind of every tool of a server that nobody has sorted.
    """

    PRIVATE_READER = "private_reader"
    """Reads the owner's own data, and its arguments reach nobody else."""
    OPEN_READER = "open_reader"
    """Changes nothing, but others may see what it asks for."""
    ACT = "act"
    """Changes something or sends something."""
    DESTRUCTIVE = "destructive"
    """Changes something in a way that cannot be taken back. The values of a call never let it pass by themselves."""


@attrs.frozen(eq=False, repr=False)
class ValueCall:
    """A call of a tool that has a kind, as far as its values matter."""

    tool: str
    """Name of the tool."""
    kind: ToolKind | None
    """Kind of the tool; None for one of this program."""
    arguments: Metadata
    """Its arguments."""
    schema: Metadata
    """Schema of the arguments."""

    @property
    def is_open(self) -> bool:
        """True if it reads, and others may see what it asks for."""
        is_reader = self.kind in (ToolKind.PRIVATE_READER, ToolKind.OPEN_READER)
        return is_reader and (self.kind is ToolKind.OPEN_READER or has_address(self.arguments, self.schema))

    @property
    def digest(self) -> str:
        """The call without what says nothing: nulls, defaults, empty lists and objects, the order of keys, the form of numbers."""
        return encode_json([self.tool, _plain(self.arguments, self.schema)])


def doubt_about(call: ValueCall, messages: Sequence[OwnerMessage], earlier: Sequence[ValueCall]) -> str:
    """Return why a call needs a question, by the rules at the top of this file, as the end of a sentence; "" if it needs none.

    messages: those of owners that the work comes of. earlier: calls that the work has made before, whatever became of them. Only names
    of parameters that the schema knows are part of the text: a model chooses all others, and the values.

    >>> doubt_about(ValueCall("mail__purge", ToolKind.DESTRUCTIVE, {}, {}), (), ())
    'it may change something for good'
    """
    if call.kind is ToolKind.PRIVATE_READER and not call.is_open:
        return ""
    if call.kind is ToolKind.DESTRUCTIVE:
        return "it may change something for good"
    if call.kind is None:
        return REACHES_OUT
    try:
        return (_doubt_about_reading if call.is_open else _doubt_about_act)(call, messages, earlier)
    except ValueError:  # more values than anybody has typed, or a number that JSON does not know
        return "it has more values than anybody types"


def _doubt_about_reading(call: ValueCall, messages: Sequence[OwnerMessage], earlier: Sequence[ValueCall]) -> str:
    """Return why an open reader needs a question. Raises ValueError."""
    texts = [OwnerText(message.text) for message in messages]
    units = units_of(call.arguments, call.schema)
    if foreign := [unit for unit in units if not any(text.holds(unit) for text in texts)]:
        return f"others may see what it asks for, and {_not_typed(foreign)}"
    made = {each.digest for each in earlier if each.is_open}
    if call.digest in made:
        return "others may see what it asks for, and it was asked before"
    return "" if len(made) < MOST_OPEN else f"others may see what it asks for, and {MOST_OPEN} such calls were made"


def _doubt_about_act(call: ValueCall, messages: Sequence[OwnerMessage], earlier: Sequence[ValueCall]) -> str:
    """Return why an act needs a question. Raises ValueError."""
    units = units_of(call.arguments, call.schema)
    if not units:
        return "it has no value that an owner could have typed"
    acting = [OwnerText(message.text) for message in messages if message.may_act]
    naming = sum(all(map(text.holds, units)) for text in acting)
    if not naming:  # most calls: what was made before need not be looked at
        foreign = [unit for unit in units if not any(text.holds(unit) for text in acting)]
        return _not_typed(foreign) if foreign else "its values are of several messages"
    digest = call.digest
    if sum(each.tool == call.tool and each.digest == digest for each in earlier) < naming:
        return ""
    return "it was made already for what an owner has typed"


def _not_typed(units: Sequence[ValueUnit]) -> str:
    """Return the parameters whose values are not an owner's, as a part of a sentence."""
    # The schema is a server's own: a name that could pass as a sentence is not shown.
    names = dict.fromkeys(unit.field if _NAME.fullmatch(unit.field) else "a parameter" for unit in units)
    shown = list(names)[:MOST_NAMED]
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    return f"an owner has not typed the value of {', '.join(shown)}{more}"


def has_address(arguments: Metadata, schema: Metadata) -> bool:
    """Return whether an argument is an address on a network, by its form, by the schema, or by the name of its parameter."""
    properties = schema.get("properties")
    known = properties if isinstance(properties, Mapping) else {}
    for name, value in arguments.items():
        described = known.get(name)
        format = described.get("format") if isinstance(described, Mapping) else None
        is_named = format in _ADDRESS_FORMATS or not _ADDRESS_FIELDS.isdisjoint(map(str.lower, _WORDS.findall(name)))
        if any((is_named and text) or _ADDRESS.match(text.strip()) for text in texts_of(value)):
            return True
    return False


def _plain(value: Json, schema: Metadata) -> Json:
    """Return a value without what says nothing in it."""
    if isinstance(value, list | tuple):
        return [_plain(each, {}) for each in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if not isinstance(value, Mapping):
        return value
    properties = schema.get("properties")
    known = properties if isinstance(properties, Mapping) else {}
    kept: dict[str, Json] = {}
    for name in sorted(value):
        described = known.get(name)
        described = described if isinstance(described, Mapping) else {}
        plain = _plain(value[name], described)
        is_default = "default" in described and _plain(described["default"], {}) == plain
        if plain not in (None, [], {}) and not is_default:
            kept[name] = plain
    return kept
