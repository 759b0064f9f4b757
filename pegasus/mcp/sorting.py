"""Kinds of a server's tools (`ToolKind`): what the owner says of them, then what the server says where the owner trusts it.

A tool that only reads is worth no question, and the agent would ask for every call of one whose kind is not known. Nobody but the
owner knows: names and annotations are words of the server. So the lists of the settings count first, in an order in which a mistake
costs a question and no harm (`acts` and `asks` before `reads` and `fetches`). Annotations count only with `trust = "hints"`, and
only in the type that the protocol gives them: the text "true" is no hint.

A name that speaks of destruction is believed from everybody, since it asks for more care and never for less. Only the owner's lists
of readers stand above it, and only with the whole name: a pattern was written before such a tool may have been there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final
from unicodedata import normalize

import attrs

from pegasus.conversation import sanitize_for_prompt
from pegasus.formatting import cut_text
from pegasus.messages import Metadata
from pegasus.policy import ToolKind
from pegasus.settings import McpServerSettings

SORTING_KEYS: Final = ("trust", "reads", "fetches", "acts", "asks")
"""Keys of a server's settings that decide about the kinds of its tools."""
_DESTROYS: Final = (
    "delete",
    "remove",
    "purge",
    "cancel",
    "reset",
    "revoke",
    "password",
    "grant",
    "sharepublic",
)
"""Parts of names of tools whose calls cannot be taken back, or open something to others. Only letters of a name are compared."""
LONGEST_SHOWN_NAME: Final = 64
"""Characters of a tool's name that people are shown."""
KINDS: Final[Mapping[ToolKind, tuple[str, str]]] = {
    ToolKind.PRIVATE_READER: ("private reader", "private readers"),
    ToolKind.OPEN_READER: ("open reader", "open readers"),
    ToolKind.ACT: ("act", "acts"),
    ToolKind.DESTRUCTIVE: ("destructive act", "destructive acts"),
}
"""Kinds for people, one and several, those that harm least first."""


@attrs.frozen
class ToolHints:
    """Annotations of a tool, as far as they are what the protocol says; None where the server says nothing.

    Example: `read_hints({"annotations": {"readOnlyHint": True, "openWorldHint": "no"}})` is `ToolHints(reads=True)`.
    """

    reads: bool | None = None
    """`readOnlyHint`: it changes nothing."""
    destroys: bool | None = None
    """`destructiveHint`: what it changes may be lost. Nothing said means true."""
    repeats: bool | None = None
    """`idempotentHint`: a second call changes nothing more."""
    is_open: bool | None = None
    """`openWorldHint`: it reaches others. Nothing said means true."""

    @property
    def text(self) -> str:
        """The same for people, "" where the server says nothing."""
        words = (
            (self.reads, "only reads", "changes something"),
            (self.destroys, "destructive", "not destructive"),
            (self.is_open, "reaches others", "reaches nobody else"),
        )
        return ", ".join(yes if hint else no for hint, yes, no in words if hint is not None)


NO_HINTS: Final = ToolHints()
"""Hints of a server that says nothing."""


@attrs.frozen(eq=False, repr=False)
class SortedTool:
    """A tool of a server with its kind, for people."""

    name: str
    """The server's own name of it, cleaned."""
    kind: ToolKind
    """The kind that the settings give it."""
    if_trusted: ToolKind
    """The kind that it would have if its server were trusted."""
    says: str = ""
    """The server's words about it; "" if it says nothing."""


def read_hints(entry: Mapping[str, object]) -> ToolHints:
    """Return the annotations of an entry of a server's list, whatever it holds."""
    found = entry.get("annotations")
    if not isinstance(found, Mapping):
        return NO_HINTS
    names = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
    return ToolHints(*(value if isinstance(value := found.get(name), bool) else None for name in names))


def sort_tool(name: str, hints: ToolHints, settings: McpServerSettings) -> ToolKind:
    """Return the kind of a tool. name: the server's own name of it.

    >>> sort_tool("send_mail", ToolHints(), McpServerSettings(command="mail", acts=("send_*",)))
    <ToolKind.ACT: 'act'>
    """
    is_trusted = settings.trust == "hints"
    # A name with characters that nobody sees is in the lists that ask for care by what is seen, and in the others by what it is.
    names = (name, shown_name(name))
    if any(is_named(each, settings.asks) for each in names):
        return ToolKind.DESTRUCTIVE
    is_act = any(is_named(each, settings.acts) for each in names)
    if is_destructive_name(name) and (is_act or name not in (*settings.reads, *settings.fetches)):
        return ToolKind.DESTRUCTIVE
    if is_act:
        return ToolKind.ACT
    if is_named(name, settings.fetches):
        return ToolKind.OPEN_READER
    if is_named(name, settings.reads):
        return ToolKind.PRIVATE_READER
    if not is_trusted:
        return ToolKind.ACT
    # A server that says both that a tool only reads and that it destroys is taken at the worse word.
    if hints.reads is not True or hints.destroys is True:
        return ToolKind.ACT if hints.destroys is False else ToolKind.DESTRUCTIVE
    return ToolKind.PRIVATE_READER if hints.is_open is False else ToolKind.OPEN_READER


def shown_name(name: str) -> str:
    """Return the name of a tool as people see it."""
    return cut_text(" ".join(sanitize_for_prompt(name).split()), LONGEST_SHOWN_NAME)


def is_sorted(settings: McpServerSettings) -> bool:
    """Return whether the owner has said anything about the kinds of a server's tools."""
    return settings.trust != "none" or any((settings.reads, settings.fetches, settings.acts, settings.asks))


def is_named(name: str, patterns: Iterable[str]) -> bool:
    """Return whether a name is in a list of names and beginnings of names, as "get_*"."""
    return any(name == pattern or (pattern.endswith("*") and name.startswith(pattern[:-1])) for pattern in patterns)


def is_destructive_name(name: str) -> bool:
    """Return whether the name of a tool speaks of something that cannot be taken back.

    Words are found however they are joined: `delete_file`, `fileDelete`, `bulk-delete`, `deletefile`.

    >>> is_destructive_name("SharePublicLink"), is_destructive_name("get_balance")
    (True, False)
    """
    letters = "".join(filter(str.isalpha, normalize("NFKC", name))).casefold()
    return any(word in letters for word in _DESTROYS)


def identity_of(settings: McpServerSettings, name: str, hints: ToolHints) -> Metadata:
    """Return what a grant for a tool is bound to beside its description and schema.

    It is the place where its server comes from, the server's own name of the tool and its annotations. A server that runs another
    program, or says something else of a tool, has other tools.
    """
    return {
        "command": [settings.command, *settings.args],
        "cwd": settings.cwd,
        "url": settings.url,
        "name": name,
        "hints": [hints.reads, hints.destroys, hints.repeats, hints.is_open],
    }
