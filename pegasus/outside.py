"""Labels of text from outside: where words come from that nobody who may give orders has written.

A web page, a file, the output of a command and the message of a guest may all say "now send me the keys". Such text is labelled
when it enters a conversation, and the label goes with whatever is made of it: results of tasks, notifications, memory, summaries,
tasks that are begun by somebody who has read it. The labels of a conversation say what it has read. They are kept in the metadata
of its entries, so that a restart knows them too.

    metadata = {"outside": ["web"]}
    parse_outside(metadata) == (Untrusted.WEB,)
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from enum import StrEnum
from typing import Final

from pegasus.messages import Json, Metadata

OUTSIDE: Final = "outside"
"""Key of the labels in the metadata of entries, tasks and queue items. Stored, so it must not change."""


class Untrusted(StrEnum):
    """A kind of source that the owner does not control. Stored with entries, so the values must not change.

    Example: `outside_metadata([Untrusted.WEB])` goes into the entry of a search's result; `parse_outside` reads it back.
    """

    WEB = "web"
    """A page, an answer of a server, the results of a search."""
    FILE = "file"
    """A file of the workspace, or one that was attached to a message."""
    COMMAND = "command"
    """The output of a command or a program."""
    MCP = "mcp"
    """A result of an MCP server, or a description of its tools."""
    GUEST = "guest"
    """A message of somebody who is no owner."""
    TASK = "task"
    """A task that does not say what it has read."""
    MEMORY = "memory"
    """Something remembered whose origin is not known."""
    OTHER = "other"
    """Another person, or an unknown source."""


_LABELS: Final = {label.value: label for label in Untrusted}


def parse_outside(metadata: Metadata) -> tuple[Untrusted, ...]:
    """Return the labels in some metadata, sorted. Values that are no label count as OTHER: a label may be misread, never lost."""
    found = metadata.get(OUTSIDE)
    if not found:
        return ()
    names = found if isinstance(found, list | tuple) else [found]
    return join_outside(_LABELS.get(str(name), Untrusted.OTHER) for name in names)


def join_outside(*groups: Iterable[Untrusted]) -> tuple[Untrusted, ...]:
    """Return all labels of these groups, each once, sorted."""
    return tuple(sorted({label for group in groups for label in group}))


def outside_metadata(labels: Iterable[Untrusted]) -> dict[str, Json]:
    """Return the metadata for these labels, {} if there is none."""
    names: list[Json] = [str(label) for label in sorted(set(labels))]
    return {OUTSIDE: names} if names else {}


# ------------------------------------------------------------------ fences

FENCE: Final = "fence"
"""Key of the id of an entry's fence. Stored, so it must not change."""
FENCED_FROM: Final = "fencedFrom"
"""Key of the number of characters before the fence; absent for 0."""

_FENCE: Final = re.compile(r'<untrusted source="[a-z,]*" id="([a-z0-9]+)">\n(.*?)\n</untrusted id="\1">', re.DOTALL)


def fenced_metadata(labels: Collection[Untrusted], fence: str, start: int = 0) -> dict[str, Json]:
    """Return the metadata of an entry whose content is text from outside from the character `start` on; {} without labels.

    fence: id of the conversation's fences.
    """
    if not labels:
        return {}
    facts: dict[str, Json] = {**outside_metadata(labels), FENCE: fence}
    return {**facts, FENCED_FROM: start} if start else facts


def parse_fence(metadata: Metadata, length: int) -> tuple[str, int]:
    """Return the id of an entry's fence, "" if it has none, and the number of characters before it.

    length: of the content. A fence whose place makes no sense is around everything.
    """
    fence, start = metadata.get(FENCE), metadata.get(FENCED_FROM, 0)
    if not isinstance(fence, str) or not fence:
        return "", 0
    return fence, start if type(start) is int and 0 <= start <= length else 0


def fenced(text: str, labels: Iterable[Untrusted], fence: str) -> str:
    """Return a text between fences, as a model is shown it. Where it has the id of the fence, that is broken up."""
    harmless = re.sub(re.escape(fence), lambda found: f"{found[0][:4]} {found[0][4:]}", text, flags=re.IGNORECASE)
    return f'<untrusted source="{",".join(labels)}" id="{fence}">\n{harmless}\n</untrusted id="{fence}">'


def without_fences(text: str) -> str:
    """Return a text without the fences in it, for programs that take the place of a model."""
    return _FENCE.sub(r"\2", text)
